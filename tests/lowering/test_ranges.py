"""Loops over a part of a dimension: what is masked, cleared and left out, and who is refused."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import wsdsl
from tests.case_data import DTYPES
from tests.range_kernels import TEXTS
from wsdsl import Schedule
from wsdsl.diagnostics import ScheduleError

SIZES = dict(G=6, M=72, N=40, T=300, S=200, H=2, D=64)
COOPERATIVE = dict(consumers=2, stages=2, scheduler="grid")
DRAWN: list[tuple[str, Schedule]] = [
    ("part", Schedule(tile=dict(m=128, n=32, k=64), **COOPERATIVE)),
    ("causal", Schedule(tile=dict(q=192, t=64), consumers=3, stages=2, order_barriers=True)),
    ("packed", Schedule(tile=dict(q=128, t=64), order_barriers=True, **COOPERATIVE)),
    ("ragged", Schedule(tile=dict(q=64, t=64), consumers=1)),
    ("elements", Schedule(tile=dict(m=64, t=64))),
    ("part", Schedule(arch="sm_100a", tile=dict(m=128, n=32, k=64), stages=2)),
    ("causal", Schedule(arch="sm_100a", tile=dict(q=64, t=128))),
    ("packed", Schedule(arch="sm_100a", tile=dict(q=128, t=64))),
    ("ragged", Schedule(arch="sm_100a", tile=dict(q=64, t=64), stages=1)),
]


def kernel_of(name: str) -> wsdsl.Kernel:
    return vars(wsdsl.parse(TEXTS[name]))[name]


def arrays_for(kernel: wsdsl.Kernel, seed: int) -> dict[str, Any]:
    """Bounds lie anywhere, also crossed and beyond both ends; NaN and infinities where few parts
    reach.
    """
    rng, made = np.random.default_rng(seed), dict[str, Any]()
    bounds = np.sort(rng.integers(60, 240, (2, SIZES["G"])), axis=0)
    bounds[:, 0] = -7, 75
    bounds[:, 1] = 225, SIZES["T"] + 40
    bounds[:, 2] = bounds[::-1, 2]
    bounds[:, 3] = 128, 192
    within = np.zeros(SIZES["T"], bool)
    for lo, hi in bounds[:, 3:].T:
        within[lo:hi] = True
    for p in kernel.tile_ir.params:
        kind: Any = p.type
        if not hasattr(kind, "dims"):
            made[p.name] = np.float32(0.125)
        elif kind.dtype.is_integer:
            made[p.name] = bounds[int(p.name == "hi")].astype(np.int32)
        elif p.name in kernel.access.only_written:
            shape = [SIZES[d] for d in kind.dims]
            made[p.name] = np.full(shape, -3, DTYPES[kind.dtype.name])
        else:
            shape = [SIZES[d] for d in kind.dims]
            held = rng.standard_normal(shape).astype(DTYPES[kind.dtype.name])
            if "T" in kind.dims:
                other = rng.choice([np.nan, np.inf, -np.inf, 1.0], shape)
                beside = ~within[:, None] if kind.dims[0] == "T" else ~within
                held = np.where(beside, other.astype(held.dtype), held)
            made[p.name] = held
    return made


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("name", "schedule"), DRAWN, ids=lambda x: str(x))
def test_as_the_reference_has_it(name: str, schedule: Schedule) -> None:
    kernel = kernel_of(name)
    known = {d: SIZES[d] for d in ("D",) if "D" in TEXTS[name]}
    compiled = kernel.compile(schedule=schedule, **known)
    for seed in range(2):
        arrays = arrays_for(kernel, seed)
        wanted = {n: np.copy(a) for n, a in arrays.items()}
        kernel.reference(**wanted)
        compiled.simulate(*arrays.values(), seed=seed)
        for n, got in arrays.items():
            near = 1e-2 if got.dtype == ml_dtypes.bfloat16 else 2e-3
            wide = (np.asarray(x, np.float64) for x in (got, wanted[n]))
            np.testing.assert_allclose(*wide, rtol=near, atol=near, err_msg=n)
    assert compiled.certificate is not None


@pytest.mark.parametrize("schedule", [dict(splits=2), dict(scheduler="stream_k")], ids=str)
def test_a_part_is_summed_by_one(schedule: dict[str, Any]) -> None:
    more = dict(scheduler="split_k") | schedule
    with pytest.raises(ScheduleError, match="cannot be split: its loop covers a part"):
        kernel_of("part").compile(schedule=Schedule(**more))
    with pytest.raises(ScheduleError, match="cannot be split: its loop covers a part"):
        kernel_of("part").compile(schedule=Schedule(cluster=dict(k=2)))
