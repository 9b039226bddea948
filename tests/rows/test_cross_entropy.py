"""`cross_entropy` and its gradient in the simulator, against float64."""

from typing import Any

import numpy as np
import pytest

from tests.case_data import rejects
from tests.rows.expected import close, drawn, wide
from wsdsl.kernels import cross_entropy, cross_entropy_backward, cross_entropy_with_lse

UNIT = 2.0**-24


def drawn_targets(m: int, n: int, dtype: Any = np.int64) -> Any:
    """The last one is ignored."""
    found = np.random.default_rng(2).integers(0, n, m).astype(dtype)
    found[-1] = -100
    return found


def exact(x: Any, targets: Any) -> tuple[Any, Any, Any]:
    """Losses, log(sum(exp(x))), and the gradient of the sum of losses."""
    x, kept = wide(x), targets != -100
    most = x.max(-1)
    lse = most + np.log(np.exp(x - most[:, None]).sum(-1))
    losses = np.where(kept, lse - x[np.arange(len(x)), targets * kept], 0)
    slope = np.exp(x - lse[:, None]) - (np.arange(x.shape[1]) == targets[:, None])
    return losses, lse, slope * kept[:, None]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("shape", "dtype", "indices"),
    [
        ((5, 131), "f32", np.int64),
        ((5, 131), "f16", np.int32),
        ((5, 131), "bf16", np.int64),
        ((70, 300), "bf16", np.int32),
    ],
)
def test_right(shape: tuple[int, int], dtype: str, indices: Any) -> None:
    x, targets = drawn(*shape, dtype=dtype), drawn_targets(*shape, indices)
    losses, lse, slope = exact(x, targets)
    bound = (shape[1] + 16) * UNIT
    got, got_lse = cross_entropy_with_lse(x, targets)
    assert got.dtype == np.float32 and close(got, losses, bound) and close(got_lse, lse, bound)
    g = drawn(shape[0], seed=3)
    made = cross_entropy_backward(g, x, targets, got_lse)
    assert made.dtype == x.dtype
    assert close(made, slope * wide(g)[:, None], 2 * bound * abs(wide(g))[:, None], dtype)
    changed = x.copy()
    assert cross_entropy_backward(g, changed, targets, got_lse, out=changed) is changed
    assert changed.tobytes() == made.tobytes()


def test_reductions_and_shapes() -> None:
    x, targets = drawn(2, 3, 40), drawn_targets(6, 40).reshape(2, 3)
    losses = cross_entropy(x, targets, "none")
    assert losses.shape == (2, 3) and losses[1, 2] == 0
    total, mean = cross_entropy(x, targets, "sum"), cross_entropy(x, targets)
    assert total.dtype == mean.dtype == np.float32
    assert np.isclose(total, losses.sum()) and np.isclose(mean, losses.sum() / 5)
    own = cross_entropy(x, targets, ignore_index=int(targets[0, 0]), reduction="none")
    assert own[0, 0] == 0 and np.isnan(own[1, 2])
    single = cross_entropy(x[0, 0], targets[0, 0], "none")
    assert single.shape == () and single == losses[0, 0]


def test_infinities_and_targets_that_are_no_class() -> None:
    x, targets = drawn(5, 200), np.array([3, 3, 3, 200, -1], np.int32)
    x[0, :150], x[1, 9] = -np.inf, np.inf
    losses = cross_entropy(x, targets, "none")
    assert losses[0] == np.inf and np.isnan(losses[[1, 3, 4]]).all() and np.isfinite(losses[2])


@pytest.mark.parametrize("ignored", [-100, -1, 3, 0, -(2**31), 2**31 - 1])
@pytest.mark.parametrize("indices", [np.int32, np.int64])
def test_every_target_is_a_class_or_ignored_or_gives_nan(indices: Any, ignored: int) -> None:
    """By all of its bits, in both directions."""
    limits = np.iinfo(indices)
    parts = 0, 2**31, 2**32, -(2**31), -(2**32), int(limits.min), int(limits.max)
    near = {part + i for part in parts for i in (-101, -100, -2, -1, 0, 3, 5, 39, 40)}
    targets = np.array([t for t in near if limits.min <= t <= limits.max], indices)
    x = drawn(len(targets), 40)
    losses, lse = cross_entropy_with_lse(x, targets, ignored)
    slope = cross_entropy_backward(np.ones_like(losses), x, targets, lse, ignored)
    skipped, known = targets == ignored, (targets >= 0) & (targets < 40)
    assert np.array_equal(np.isnan(losses), ~skipped & ~known) and not losses[skipped].any()
    assert np.array_equal(np.isnan(slope), np.isnan(losses)[:, None] | np.zeros((1, 40), bool))
    assert not slope[skipped].any() and (slope[known & ~skipped].min(-1) < -0.5).all()


def test_refusals() -> None:
    x: Any = drawn(4, 32)
    rejects(r"targets has shape \(3,\), expected \(4,\)", cross_entropy, x, np.zeros(3, np.int32))
    rejects("a list is not an array", cross_entropy, x, [0, 1, 2, 3])
    rejects("targets is float32, expected int32, int64", cross_entropy, x, x[:, 0])
    rejects("reduction is 'max', expected none, sum, mean", cross_entropy, x, x[:, 0], "max")
