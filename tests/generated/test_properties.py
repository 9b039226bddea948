"""Random kernels of five forms: the simulator gives the result of the reference, or of NumPy."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from wsdsl import Schedule, parse
from wsdsl.ir.types import DTYPES
from wsdsl.simulator.reference.arithmetic import numpy_dtype

Form = Callable[[Random], tuple[str, dict[str, int], Schedule]]
HEAD = "@kernel\ndef made({}):\n"
GEMM = """    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += {} @ {}
"""


def masked_columns(rng: Random) -> tuple[str, dict[str, int], Schedule]:
    """Values of accumulators reduced over an output axis that ends within a tile."""
    over, value = rng.choice("mn"), rng.choice(("acc + 1.0", "exp(acc) + 0.5", "acc * 0.0 - 3.0"))
    out = "n" if over == "m" else "m"
    store = rng.choice(("Y[{0}] += sum({2}, over={1})", "Y[{0}] = max({2} - 99.0, over={1})"))
    text = HEAD.format(f"A: bf16[M, K], B: bf16[N, K], Y: f32[{out.upper()}]")
    text += GEMM.format("A[m, k]", "B[n, k]") + f"        {store.format(out, over, value)}\n"
    sizes = dict(M=rng.choice((4, 130)), N=rng.choice((13, 200)), K=16)
    return text, sizes, Schedule(arch="sm_100a", scheduler=rng.choice(("persistent", "dynamic")))


def one_number_per_tile(rng: Random) -> tuple[str, dict[str, int], Schedule]:
    """Loads of a loop over back-to-back MMAs whose index is one number per tile."""
    by = rng.choice((64, 128))
    number = f"F[index(t) // {by}]"
    made = rng.choice(("s * {0}", "s + {0}", "where({0} > 1.0, s, {0})")).format(number)
    walked = rng.choice(("T", f"T, by={by}"))
    text = HEAD.format("A: bf16[S, D], B: bf16[T, D], V: bf16[T, D], F: f32[H], Y: f32[S, D]")
    text += f"""    for q in tiles(S):
        acc, total = zeros(f32[q, D]), zeros(f32[q])
        for t in tiles({walked}):
            s = A[q, :] @ B[t, :]
            p = {made}
            total += sum(p, over=t)
            acc += cast(p, bf16) @ V[t, :]
        Y[q, :] = acc + total
"""
    tile = None if "by" in walked else dict(t=64)
    return text, dict(S=64, D=16, T=320, H=5), Schedule(arch="sm_100a", tile=tile)


def odd_start(rng: Random) -> tuple[str, dict[str, int], Schedule]:
    """A loop over packed elements that begins within a byte."""
    start, source = rng.choice(("1", "3", "I[0]")), rng.choice(("i4", "u4", "f4e2m1"))
    value = "cast(X[m, n], f32)"
    into = rng.choice(("Y[m, n] = {}", "Y[m, n] = Y[m, n] - {}", "Z[m] += sum({}, over=n)"))
    text = HEAD.format(f"X: {source}[M, N], I: i32[1], Y: f32[M, N], Z: f32[M]")
    text += f"    for m in tiles(M):\n        for n in tiles({start}, N - 1, of=N):\n"
    schedule = Schedule(tile=dict(n=64), stages=rng.randint(1, 4))
    return text + f"            {into.format(value)}\n", dict(M=9, N=70), schedule


def cast_operands(rng: Random) -> tuple[str, dict[str, int], Schedule]:
    """Operands of 8 bits, cast to 16, in any order of their axes."""
    whole = rng.random() < 0.5
    a, b = (rng.choice(("f8e4m3", "f8e5m2", "i8")) for _ in range(2))
    sides = [(x, rng.choice(("{0}, k", "k, {0}")).format(x)) for x in "mn"]
    (left, right) = (index.replace("k", "D" if whole else "K") for _, index in sides)
    text = HEAD.format(f"A: {a}[{left.upper()}], B: {b}[{right.upper()}], Y: f32[M, N]")
    index = [own.replace("k", ":") if whole else own for _, own in sides]
    pair = [f"cast({x}[{own}], bf16)" for x, own in zip("AB", index, strict=True)]
    text += (
        f"    for m, n in tiles(M, N):\n        acc = {pair[0]} @ {pair[1]}\n"
        if whole
        else GEMM.format(*pair)
    )
    sizes = dict(M=70, N=40) | ({"D": rng.choice((8, 16, 33, 48))} if whole else {"K": 80})
    return text + "        Y[m, n] = acc\n", sizes, Schedule(arch=rng.choice(("sm_90a", "sm_100a")))


FORMS: tuple[Form, ...] = (masked_columns, one_number_per_tile, odd_start, cast_operands)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_simulator_gives_the_result_of_the_reference(form: Form, seed: int) -> None:
    text, sizes, schedule = form(Random(seed))
    made, draw = parse(text).made, np.random.default_rng(seed)
    arrays: dict[str, Any] = {}
    for param in made.tile_ir.params:
        kind = param.as_tensor
        shape = [sizes.get(str(dim), 1) for dim in kind.dims]
        if kind.dtype.bits < 8:
            shape[-1] //= 2
            arrays[param.name] = draw.integers(0, 256, shape).astype(np.uint8)
            continue
        held = numpy_dtype(kind.dtype)
        values = (
            draw.choice((1, 2, 3), shape) if param.name in "FI" else draw.integers(-2, 3, shape)
        )
        arrays[param.name] = (values * (param.name not in "YZ")).astype(held)
    wanted = {name: array.copy() for name, array in arrays.items()}
    made.reference(**wanted)
    made.simulate(**arrays, schedule=schedule)
    for name in "YZ":
        if name in arrays:
            np.testing.assert_allclose(arrays[name], wanted[name], rtol=1e-5, err_msg=text)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_literals_keep_their_digits(dtype: str) -> None:
    """The error of an operation is that of one rounding, whatever the literal's digits."""
    rng, held = Random(2), numpy_dtype(DTYPES[dtype])
    x = np.arange(1, 9).astype(held)
    for form in ("x * {}", "{} - x", "x / {}", "max(x, {})", "where(x > {0}, x, {0})") * 4:
        value = form.format(rng.uniform(1, 8))
        text = HEAD.format(f"X: {dtype}[M], Y: f32[M]") + "    for m in tiles(M):\n"
        text += f"        x = X[m]\n        Y[m] = {value}\n"
        names: dict[str, Any] = dict(x=x.astype(np.float64), max=np.maximum, where=np.where)
        found = np.zeros(8, np.float32)
        parse(text).made.reference(x, found)
        one = float(ml_dtypes.finfo(held).eps) / 2
        np.testing.assert_allclose(found, eval(value, names), rtol=1.001 * one, err_msg=text)
