"""Conversions on the values where it could go wrong; whatever runs kernels gives these bits."""

from typing import Any

import ml_dtypes
import numpy as np

import wsdsl

KERNEL = wsdsl.parse("""
@kernel
def conversions(
    X: f32[M, N], I: i32[M, N], P: f8e4m3[M, N], Q: f8e5m2[M, N],
    F: f8e4m3[M, N], G: f8e5m2[N, M], T: tf32[M, N], A: i8[M, N], B: u8[N, M], C: i16[M, N],
    D: i8[M, N], E: u8[N, M], H: u16[M, N], L: u8[M, N], R: f32[M, N], S: bf16[M, N], V: u32[M, N]
):
    for m, n in tiles(M, N):
        x, i = X[m, n], I[m, n]
        F[m, n] = x
        G[n, m] = x
        T[m, n] = x
        A[m, n] = x
        B[n, m] = x
        C[m, n] = x
        D[m, n] = i
        E[n, m] = i
        H[m, n] = i
        L[m, n] = cast(i, u8)
        R[m, n] = cast(P[m, n], f32)
        S[m, n] = cast(Q[m, n], bf16)
        V[m, n] = i
""").conversions
M, N = 64, 16
OUTPUTS: dict[str, Any] = {
    "F": ml_dtypes.float8_e4m3fn, "G": ml_dtypes.float8_e5m2, "T": np.float32, "A": np.int8,
    "B": np.uint8, "C": np.int16, "D": np.int8, "E": np.uint8, "H": np.uint16, "L": np.uint8,
    "R": np.float32, "S": ml_dtypes.bfloat16, "V": np.uint32,
}  # fmt: skip
TRANSPOSED = ("G", "B", "E")


def floats() -> np.ndarray:
    """Around each power of two that any of the types has: values, ties, and what lies beside."""
    rng = np.random.default_rng(0)
    found = [0.0, -0.0, np.inf, -np.inf, np.nan, 448.0, 449.0, 464.0, 465.0, 57344.0, 61440.0, 1e9]
    found += [float(n) + d for n in (-129, -128, -1, 0, 126, 127, 255, 256) for d in (-0.5, 0.5)]
    while len(found) < M * N:
        scale = np.ldexp(1.0, int(rng.integers(-20, 20)))
        steps = float(rng.integers(8, 33)) / 16
        found.append(float(rng.choice([-1, 1]) * scale * (steps + rng.choice([-1e-6, 0, 1e-6]))))
    return np.array(found[: M * N], np.float32).reshape(M, N)


def arguments() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    i = rng.integers(-400, 400, (M, N)).astype(np.int32)
    i[0, :6] = [2**31 - 1, -(2**31), 70000, -70000, 32768, 65535]
    every = np.resize(np.arange(256, dtype=np.uint8), (M, N))
    made = {"X": floats(), "I": i, "P": every.view(ml_dtypes.float8_e4m3fn),
            "Q": every.view(ml_dtypes.float8_e5m2)}  # fmt: skip
    for name, dtype in OUTPUTS.items():
        made[name] = np.zeros((N, M) if name in TRANSPOSED else (M, N), dtype)
    return made


def expected() -> dict[str, np.ndarray]:
    """In NumPy's own words."""
    given = arguments()
    x, i = given["X"], given["I"].astype(np.int64)
    whole = np.nan_to_num(np.trunc(x.astype(np.float64)), nan=0.0, posinf=1e18, neginf=-1e18)

    def fp8(dtype: Any, largest: float) -> np.ndarray:
        made = np.clip(x, -largest, largest).astype(dtype)
        return np.where(np.isnan(x), np.uint8(0x7F), made.view(np.uint8)).view(dtype)

    half_step = np.uint32(1 << 12)
    tf32 = ((x.view(np.uint32) + half_step) & ~np.uint32(0x1FFF)).view(np.float32)
    return {
        "F": fp8(ml_dtypes.float8_e4m3fn, 448),
        "G": fp8(ml_dtypes.float8_e5m2, 57344).T,
        "T": np.where(np.isfinite(x), tf32, x),
        "A": np.clip(whole, -128, 127).astype(np.int8),
        "B": np.clip(whole, 0, 255).astype(np.uint8).T,
        "C": np.clip(whole, -(2**15), 2**15 - 1).astype(np.int16),
        "D": np.clip(i, -128, 127).astype(np.int8),
        "E": np.clip(i, 0, 255).astype(np.uint8).T,
        "H": np.clip(i, 0, 65535).astype(np.uint16),
        "L": (i & 255).astype(np.uint8),
        "R": given["P"].astype(np.float32),
        "S": given["Q"].astype(ml_dtypes.bfloat16),
        "V": np.maximum(i, 0).astype(np.uint32),
    }


def check(got: dict[str, np.ndarray]) -> None:
    for name, want in expected().items():
        held = got[name]
        same = (held == want) | ((held != held) & (want != want))
        if held.dtype.itemsize == 1:
            same = held.view(np.uint8) == want.view(np.uint8)
        assert same.all(), (name, np.argwhere(~same)[:3], held[~same][:3], want[~same][:3])
