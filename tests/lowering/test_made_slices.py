"""What is computed for slots, beside loops that have axes of the same names."""

import numpy as np

from wsdsl import parse

KERNEL = parse("""
@kernel
def beside(X: f32[M, D], A: f16[M, D], W: f32[N, D], Z: f32[T], C: f32[M, N], top: f32[M]):
    for m in tiles(M):
        most = full(f32[m], -inf)
        for t in tiles(T):
            most = max(most, max(zeros(f32[m, t]) + max(X[m, :], over=D), over=t))
        top[m] = most
        for n in tiles(N):
            C[m, n] = A[m, :] @ cast(W[n, :], f16)
""").beside


def test_an_axis_is_that_of_the_product() -> None:
    draw = np.random.default_rng(0)
    x, w = (draw.standard_normal((rows, 16)).astype(np.float32) for rows in (70, 50))
    a, z = x.astype(np.float16), np.zeros(20, np.float32)
    c, top = np.zeros((70, 50), np.float32), np.zeros(70, np.float32)
    KERNEL.simulate(x, a, w, z, c, top)
    assert np.array_equal(top, x.max(1))
    wanted = a.astype(np.float64) @ w.astype(np.float16).astype(np.float64).T
    np.testing.assert_allclose(c, wanted, rtol=1e-3, atol=1e-3)
