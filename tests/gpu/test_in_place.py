"""Kernels that read what they write: the same in every run, and what their text says."""

from typing import Any

import numpy as np
import pytest

from tests.in_place_kernels import BODIES, agree, arrays, in_place
from wsdsl import Schedule, parse

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu
RUNS = 30
TEXTS = {
    "stored in the loop": """
        s = X[m, n]
        for t in each(T):
            s = s + X[m, n] * W[t, n]
            X[m, n] = s""",
    "stored behind it": """
        s = X[m, n]
        for t in each(T):
            s = s + X[m, n] * W[t, n]
        X[m, n] = s""",
    "added in the loop": """
        s = zeros(f32[m, n])
        for t in each(T):
            s = s + X[m, n] * W[t, n]
            X[m, n] += s""",
}


def wanted(name: str, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    s = np.zeros_like(x) if name.startswith("added") else x.copy()
    x = x.copy()
    for row in w:
        s = s + x * row
        if name == "stored in the loop":
            x = s.copy()
        elif name == "added in the loop":
            x = x + s
    return x if name.startswith("added") else s


@pytest.mark.parametrize(("m", "n", "t"), [(4096, 4096, 8), (1000, 512, 5)])
@pytest.mark.parametrize("name", TEXTS)
def test_every_run(name: str, m: int, n: int, t: int) -> None:
    head = "@kernel\ndef f(X: f32[M, N], W: f32[T, N]):\n    for m, n in tiles(M, N):"
    kernel = parse(head + TEXTS[name] + "\n").f
    rng = np.random.default_rng(0)
    x, w = rng.integers(-2, 3, (m, n)), rng.integers(-2, 3, (t, n))
    right = torch.tensor(wanted(name, x.astype(np.float64), w.astype(np.float64))).cuda()
    given = torch.tensor(x, dtype=torch.float32).cuda()
    weights = torch.tensor(w * 1.0, dtype=torch.float32).cuda()
    wrong = 0
    for _ in range(RUNS):
        found = given.clone()
        kernel(found, weights)
        wrong += not torch.allclose(found.double(), right, rtol=1e-4, atol=1e-3)
    assert wrong == 0


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
@pytest.mark.parametrize("name", BODIES)
def test_in_all_clothes(name: str, dtype: str) -> None:
    sizes = dict(M=1000, N=520, K=64, E=3, G=40)
    kernel = in_place(name, dtype)
    right = arrays(kernel, sizes)
    kernel.reference(*right)
    for consumers in (1, 2):
        for _ in range(5):
            found = arrays(kernel, sizes)
            kernel(*found, schedule=Schedule(consumers=consumers))
            agree(found, right)
