"""The size of a tile never shows in a result."""

import ml_dtypes
import numpy as np
import pytest

import wsdsl
from wsdsl import CompileError, Kernel, LaunchError, Schedule, ScheduleError, TypeCheckError
from wsdsl.ir.types import DTYPES
from wsdsl.simulator.reference.arithmetic import numpy_dtype

HEAD = """
@kernel
def f(A: bf16[M, K], B: bf16[N, K], R: f32[M, N], I: i8[M, N], Y: f32[M, N], S: f32[M], C: i32[M],
      B8: bool[M]):
"""


def made(text: str) -> Kernel:
    lines = text.strip("\n").split("\n")
    kernel: Kernel = wsdsl.parse(HEAD + "\n".join(f"    {line}" for line in lines) + "\n").f
    _ = kernel.tile_ir
    return kernel


def rows(*inside: str, start: str = "s = zeros(f32[m])", behind: str = "S[m] = s") -> str:
    """A loop over n inside one over m, which carries s."""
    body = "\n".join(f"        {line}" for line in inside)
    return f"for m in tiles(M):\n    {start}\n    for n in tiles(N):\n{body}\n    {behind}"


SAME = {
    "a sum": rows("s += sum(R[m, n], over=n)"),
    "a difference, scaled": rows("s -= sum(R[m, n] * R[m, n], over=n) * 0.5"),
    "a maximum": rows("s = max(s, max(R[m, n], over=n))"),
    "a sum, stored by each tile": rows("s += sum(R[m, n], over=n)", "S[m] = s", behind="C[m] = 1"),
    "a maximum in eight bits": rows("s = max(s, cast(cast(max(R[m, n], over=n), f8e4m3), f32))"),
    "where a scalar says so": rows("if N > 3:", "    s += sum(R[m, n], over=n)"),
    "bytes, summed as i32": rows(
        "s += sum(I[m, n], over=n)", start="s = zeros(i32[m])", behind="C[m] = s"
    ),
    "an inner loop": """
for m, n in tiles(M, N):
    acc = zeros(f32[m, n])
    for k in tiles(K):
        acc += A[m, k] @ B[n, k]
    Y[m, n] = acc
""",
    "added to a tensor": "for m, n in tiles(M, N):\n    S[m] += 2.0 * sum(R[m, n], over=n)",
    "rescaled": rows(
        "new = max(top, max(R[m, n], over=n))",
        "s = s * exp(top - new) + sum(exp(R[m, n] - new), over=n)",
        "top = new",
        start="s, top = zeros(f32[m]), full(f32[m], -inf)",
    ),
    "all that the text says": """
for m in tiles(M):
    for n in tiles(N, by=64):
        S[m] += cast(end(n), f32) * max(R[m, n], over=n)
""",
}


@pytest.mark.parametrize("name", SAME)
def test_what_is_the_same_for_all_sizes(name: str) -> None:
    assert made(SAME[name]).whole_dims == ()


LARGE = "depends on the tile size"
SHOWN = {
    "a count of tiles": (rows("s += 1.0"), LARGE),
    "a count that a store saturates": (
        rows("s += 1", start="s = zeros(i32[m])", behind="B8[m] = cast(s > 100, bool)"), LARGE),
    "a count where sizes say so": (rows("if N > 1000:", "    s += 1.0"), LARGE),
    "a maximum where an integer in memory is one that the text names": (
        rows("top = max(R[m, n], over=n)", "s += where(C[m] == 1234, top, 0.0)"), LARGE),
    "a maximum where a float in memory is one that the text names": (
        rows("top = max(R[m, n], over=n)", "s += sum(where(R[m, n] == 0.3, top, 0.0), over=n)"),
        LARGE),
    "a count in memory": ("for m, n in tiles(M, N):\n    S[m] += 1.0", "added once per tile"),
    "a bias once a tile": (rows("s += sum(R[m, n], over=n) + 1.0"), LARGE),
    "the last tile": (rows("s = sum(R[m, n], over=n)"), LARGE),
    "the last tile, where a store saturates": (
        rows("s = sum(R[m, n] - 1e20, over=n)", behind="C[m] = cast(s, i32)"), LARGE),
    "the last tile as a bool": (
        rows("s = sum(R[m, n], over=n)", behind="B8[m] = cast(s, bool)"), LARGE),
    "a decay": (rows("s = s * 0.5 + sum(R[m, n], over=n)"), LARGE),
    "a decay that infinities hide": (
        rows("s = 0.5 * s + sum(R[m, n], over=n)", behind="S[m] = s + log(R[m, 0] - 99.0)"), LARGE),
    "the last tile, which NaN hides": (
        rows("s = sum(R[m, n], over=n)", "t += sum(log(R[0, n]) + sqrt(R[1, n] - 0.75), over=n)",
             start="s, t = zeros(f32[m]), zeros(f32[m])", behind="S[m] = s + t"), LARGE),
    "the last tile, which infinity hides": (
        rows("s = sum(R[m, n], over=n)", "t += sum(log(max(R[0, n] - 1.75, 0.0)), over=n)",
             start="s, t = zeros(f32[m]), zeros(f32[m])", behind="S[m] = s + t"), LARGE),
    "a function of each tile's sum": (rows("s += exp(sum(R[m, n], over=n))"), LARGE),
    "a prefix": (rows("s += sum(R[m, n], over=n)", "Y[m, n] = R[m, n] * s"), LARGE),
    "the tile before": (
        rows("t = s", "s = sum(R[m, n], over=n)", start="s, t = zeros(f32[m]), zeros(f32[m])",
             behind="S[m] = t"), LARGE),
    "an end in a value": (
        "for m, n in tiles(M, N):\n    Y[m, n] = R[m, n] + cast(end(n), f32)",
        r"depends on `end\(n\)`"),
    "an end in an if": (
        rows("if end(n) > 1000:", "    s += sum(R[m, n], over=n)"), r"depends on `end\(n\)`"),
    "an end in an index": (
        "for m, n in tiles(M, N):\n    Y[m, end(n) - 1] = R[m, 0]", r"depends on `end\(n\)`"),
    "an if by a tile's sum": (
        "for m in tiles(M):\n    s = zeros(f32[m])\n    for n in tiles(N):\n"
        "        if max(sum(R[m, n], over=n), over=m) > 1e30:\n"
        "            s += sum(R[m, n], over=n)\n"
        "    S[m] = s", "this `if` tests a result of one tile of `n`"),
    "a bound that is not masked": (
        "for m in tiles(M):\n    s = zeros(f32[m])\n    for n in tiles(0, end(m), of=N):\n"
        "        s += sum(R[m, n], over=n)\n    S[m] = s", "the trip count of this loop"),
    "what is so far, and more": (
        rows("s += sum(R[m, n], over=n)", "S[m] = s", "s += sum(R[m, n] * R[m, n], over=n)",
             behind="C[m] = 1"),
        "the loop over `.` changes later"),
    "what is so far, and more in an inner loop": (
        "for n in tiles(N):\n    s = zeros(f32[n])\n    for k in tiles(K):\n"
        "        for m in each(M):\n"
        "            s += sum(cast(A[m, k] * B[n, k], f32), over=k)\n            Y[m, n] = s",
        "the loop over `.` changes later"),
    "a sum that saturates": (
        rows("s += cast(cast(sum(R[m, n], over=n), f8e4m3), f32)"), "f8e4m3 saturates"),
    "a number that small sums do not reach": (
        rows("s = where(s > 100.0, s, s + sum(R[m, n], over=n))"), LARGE),
    "a tensor that carries": (
        "for m, n in tiles(M, N):\n    S[m] = S[m] + R[m, 0]",
        "each tile of `n` reads and stores `S`"),
}  # fmt: skip


@pytest.mark.parametrize("name", SHOWN)
def test_what_would_show_it_is_refused(name: str) -> None:
    text, words = SHOWN[name]
    with pytest.raises(TypeCheckError, match=words) as refused:
        made(text)
    assert all(f.loc and f.hint for f in refused.value.findings)


@pytest.mark.parametrize(
    "part", ["N", "3, N, of=N", "60, N, of=N", "0, N - 90, of=N", "0, 60, of=N"]
)
@pytest.mark.parametrize("least", [0, 9, 40])
def test_the_last_tile_of_a_part_is_refused(part: str, least: int) -> None:
    text = rows(f"s = sum(where(index(n) >= {least}, R[m, n], 0.0), over=n)")
    with pytest.raises(TypeCheckError, match=LARGE):
        made(text.replace("tiles(N)", f"tiles({part})"))


WHOLE = {
    "a norm": "Y[m, n] = R[m, n] * rsqrt(sum(R[m, n] * R[m, n], over=n) / cast(N, f32))",
    "a row's sum": "S[m] = sum(R[m, n], over=n)",
    "not only added": "S[m] += exp(sum(R[m, n], over=n))",
    "rounded to integers": "C[m] += cast(sum(R[m, n], over=n), i32)",
}


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("size", [1, 100, 256])
def test_a_reduction_over_a_parallel_loop_is_of_all_of_it(name: str, size: int) -> None:
    kernel = made(f"for m, n in tiles(M, N):\n    {WHOLE[name]}")
    rng = np.random.default_rng(size)
    r, like = rng.standard_normal((70, size)).astype(np.float32), np.zeros((70, size), np.float32)
    outputs = {"Y": like.copy(), "S": np.zeros(70, np.float32), "C": np.zeros(70, np.int32)}
    outputs["B8"] = np.zeros(70, np.bool_)
    operands = [np.zeros((n, 8), ml_dtypes.bfloat16) for n in (70, size)]
    kernel.simulate(*operands, r, like.astype(np.int8), *outputs.values())
    exact = r.astype(np.float64)
    if "C[" in WHOLE[name]:
        # Truncated once: a sum that is nearly whole may go either way.
        assert np.all(np.abs(outputs["C"] - np.trunc(exact.sum(axis=1))) <= 1)
    elif "Y[" in WHOLE[name]:
        wanted = exact / np.sqrt((exact * exact).mean(axis=1, keepdims=True))
        np.testing.assert_allclose(outputs["Y"], wanted, rtol=1e-5)
    else:
        total = exact.sum(axis=1)
        wanted = np.exp(total) if "exp" in WHOLE[name] else total
        np.testing.assert_allclose(outputs["S"], wanted, rtol=1e-4, atol=1e-5)


def test_what_does_not_fit_one_tile_is_refused_with_what_would() -> None:
    kernel = made(f"for m, n in tiles(M, N):\n    {WHOLE['a norm']}")
    with pytest.raises(CompileError, match="it has 3000000 elements") as refused:
        kernel.compile(M=70, N=3_000_000, K=8)
    assert all(x in str(refused.value) for x in ("for n in tiles(N)", "+= sum(", "by=128"))
    with pytest.raises(CompileError, match="must be known at compile time"):
        kernel.compile()
    with pytest.raises(ScheduleError, match="reduces all 100 of `N` in one tile"):
        kernel.schedule(Schedule(tile=dict(n=64)), M=70, N=100, K=8)
    wider = kernel.schedule(Schedule(tile=dict(n=128)), M=70, N=100, K=8)
    assert wider.tile and wider.tile["n"] == 128


WINDOW = """
@kernel
def window(X: f32[Q, T], Y: f32[Q]):
    for q in tiles(Q):
        top, total = full(f32[q], -inf), zeros(f32[q])
        for t in tiles(T):
            s = where((index(t) <= index(q)) & (index(t) > index(q) - 3), X[q, t], -inf)
            new = max(top, max(s, over=t))
            base = {base}
            total = total * exp(top - base) + sum(exp(s - base), over=t)
            top = new
        Y[q] = total
"""


def test_tiles_that_are_masked_whole() -> None:
    """Of a small tile the maximum may be -inf, of a large one a number."""
    with pytest.raises(TypeCheckError, match="some tile sizes give NaN"):
        _ = wsdsl.parse(WINDOW.format(base="new")).window.tile_ir
    _ = wsdsl.parse(WINDOW.format(base="where(new == -inf, 0.0, new)")).window.tile_ir


ATTENTION = """
@kernel
def attention(Q: bf16[S, D], K: bf16[T, D], V: bf16[T, D], O: f32[S, D], L: f32[S], scale: f32):
    for q in tiles(S):
        top, total, acc = full(f32[q], -inf), zeros(f32[q]), zeros(f32[q, D])
        for t in tiles(0, end(q), of=T):
            s = where(index(q) >= index(t), Q[q, :] @ K[t, :], -inf)
            new = max(top, max(s, over=t) * scale)
            p, shrink = exp2(s * scale - new), exp2(top - new)
            total = total * shrink + sum(p, over=t)
            acc = acc * shrink + cast(p, bf16) @ V[t, :]
            top = new
        O[q, :] = acc / total
        L[q] = top + log2(total)
"""
NEAR = {
    "subtracted before it is updated": ("exp2(s * scale - new)", "exp2(s * scale - top)"),
    "total not rescaled": ("total * shrink", "total"),
    "accumulator not rescaled": ("acc * shrink", "acc"),
    "rescaled the wrong way": ("exp2(top - new)", "exp2(max(new, -9.0) - max(top, -9.0))"),
    "the last maximum": ("max(top, max(s, over=t) * scale)", "max(s, over=t) * scale"),
    "not carried on": ("            top = new\n", ""),
    "rescaled by another base": ("exp2(top - new)", "exp(top - new)"),
    "less than is masked": ("index(q) >= index(t)", "index(q) >= index(t) - 1"),
}


@pytest.mark.parametrize("name", NEAR)
def test_almost_an_online_softmax_is_refused(name: str) -> None:
    with pytest.raises(TypeCheckError):
        _ = wsdsl.parse(ATTENTION.replace(*NEAR[name])).attention.tile_ir


def test_scalar_must_be_positive_where_trials_need_it() -> None:
    kernel = wsdsl.parse(ATTENTION).attention
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((48, 16)).astype(ml_dtypes.bfloat16) for _ in range(3))
    wanted = kernel.reference(q, k, v, None, None, 0.25)[0]
    np.testing.assert_allclose(kernel(q, k, v, None, None, 0.25)[0], wanted, rtol=0.02, atol=0.01)
    for call in (kernel, kernel.reference, kernel.compile(S=48, T=48, D=16).simulate):
        with pytest.raises(LaunchError, match=r"scale.*-1.0 is not positive"):
            call(q, k, v, None, None, -1.0)
    assert kernel.tile_ir.positive == ("scale",)
    scaled = ATTENTION.replace("@ K[t, :]", "@ K[t, :] * scale").replace("=t) * scale", "=t)")
    assert wsdsl.parse(scaled.replace("s * scale", "s")).attention.tile_ir.positive == ()


@pytest.mark.parametrize("bounds", ["from_, N", "0, from_"])
def test_loops_with_a_scalar_for_a_bound_are_tried(bounds: str) -> None:
    kernel = wsdsl.parse(f"""
@kernel
def f(from_: i32, rows: i32[B], X: f32[N], Y: f32[M, B]):
    for b in each(B):
        for m in tiles(M):
            last = zeros(f32[m])
            for n in tiles({bounds}, of=N):
                last = sum(zeros(f32[m]) + X[n], over=n)
            Y[m, b] = last
""").f
    with pytest.raises(TypeCheckError, match="depends on the tile size"):
        _ = kernel.tile_ir


def test_scalar_that_is_not_positive_is_tried() -> None:
    """At 0 the maximum is 0 for all sizes of the tiles; at -1 it is not."""
    kernel = wsdsl.parse("""
@kernel
def f(R: f32[M, N], S: f32[M], by: f32):
    for m in tiles(M):
        top = full(f32[m], -inf)
        for n in tiles(N):
            top = max(top, max(R[m, n], over=n) * by)
        S[m] = top
""").f
    r = np.arange(80, dtype=np.float32).reshape(8, 10)
    assert not np.any(kernel(r, by=0.0))
    with pytest.raises(LaunchError, match=r"-1\.0 is not positive"):
        kernel(r, by=-1.0)


def test_reference_tries_its_own_arguments() -> None:
    """Small arrays do not get to the bound by which this forgets."""
    kernel = wsdsl.parse("""
@kernel
def f(X: f32[M, N], bound: f32, S: f32[M]):
    for m in tiles(M):
        s = zeros(f32[m])
        for n in tiles(N):
            s = where(s > (1e5 + bound) * 1e5, 0.0, s) + sum(X[m, n], over=n)
        S[m] = s
""").f
    x = np.ones((4, 70), np.float32)
    kernel.reference(x, 1.0)
    with pytest.raises(TypeCheckError, match="depends on the tile size"):
        kernel.reference(x * 1e12, 1.0)


@pytest.mark.parametrize("name", ["i32", "u8", "u4", "bool", "bf16", "f4e2m1"])
def test_reference_takes_tensors_of_every_kind_of_type(name: str) -> None:
    """Unused, or stored to alone, beside a carry that is tried on the arguments."""
    dtype = DTYPES[name]
    value = "top > 0.0" if dtype.kind == "bool" else f"cast(top, {dtype})"
    kernel = wsdsl.parse(f"""
@kernel
def f(X: f32[M, N], U: {dtype}[M, T], S: f32[M], Y: {dtype}[M]):
    for m in tiles(M):
        top, at = full(f32[m], -inf), zeros(i32[m])
        for n in tiles(N):
            x = X[m, n]
            at = where(max(x, over=n) > top, argmax(x, over=n), at)
            top = max(top, max(x, over=n))
        S[m] = top
        Y[m] = {value}
""").f
    held = np.zeros((8, 4), numpy_dtype(dtype) if dtype.bits > 4 else np.uint8)
    kernel.reference(np.ones((8, 70), np.float32), held)
