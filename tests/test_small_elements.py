"""Tensors of 4 and 6 bits and of exponents that threads load, compute with and store."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import wsdsl
from tests.case_table import parsed
from tests.kernels import CASES
from wsdsl import CompileError, Schedule
from wsdsl.ir.types import DTYPES, Tensor
from wsdsl.simulator.reference.arithmetic import numpy_dtype

SMALL = ("i4", "u4", "f4e2m1", "f6e2m3", "f6e3m2", "f8e8m0")
ELEMENTS = """
def elements(X: {source}[M, N], Y: {target}[M, N]):
    for m, n in tiles(M, N):
        x = X[m, n]
        Y[m, n] = {value}
"""
SIZES = [(65, 138), (3, 2), (128, 256)]


def kernel(text: str, **words: str) -> wsdsl.Kernel:
    return parsed(f"@kernel{text.format(**words)}")


def codes(name: str, rows: int, columns: int) -> Any:
    bits = DTYPES[name].bits
    raw = np.random.default_rng(rows).integers(0, 256, (rows, columns * min(bits, 8) // 8))
    raw = raw.astype(np.uint8)
    return raw.view(numpy_dtype(DTYPES[name])) if name == "f8e8m0" else raw


def floats(rows: int, columns: int) -> Any:
    """Whole and half steps of small types, too large ones, and others."""
    rng = np.random.default_rng(columns)
    made = rng.integers(-64, 65, (rows, columns)) / 8
    made = np.where(rng.random(made.shape) < 0.5, made, rng.standard_normal(made.shape) * 20)
    made[0, :2] = np.nan, -np.inf
    return made.astype(np.float32)


def same(a: Any, b: Any) -> bool:
    return a.dtype == b.dtype and a.tobytes() == b.tobytes()


def right_and_proved(own: wsdsl.Kernel, given: list[Any], **sizes: Any) -> None:
    assert same(own.simulate(*given, None), own.reference(*given, None))
    assert own.compile(**sizes).certificate is not None


@pytest.mark.sampled(12)
@pytest.mark.parametrize("sizes", SIZES, ids=repr)
@pytest.mark.parametrize("target", ["f32", "bf16", "f16"])
@pytest.mark.parametrize("source", SMALL)
def test_widened(source: str, target: str, sizes: tuple[int, int]) -> None:
    own = kernel(ELEMENTS, source=source, target=target, value=f"cast(x, {target})")
    right_and_proved(own, [codes(source, *sizes)], M=sizes[0], N=sizes[1])


@pytest.mark.sampled(4)
@pytest.mark.parametrize("sizes", SIZES, ids=repr)
@pytest.mark.parametrize("target", SMALL)
def test_narrowed(target: str, sizes: tuple[int, int]) -> None:
    own = kernel(ELEMENTS, source="f32", target=target, value=f"cast(x, {target})")
    right_and_proved(own, [floats(*sizes)], M=sizes[0], N=sizes[1])


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("source", "target", "value"),
    [
        ("f4e2m1", "f4e2m1", "where(x > 0.5, x, 1.5)"),
        ("f8e8m0", "f8e8m0", "max(x, 2.0)"),
        ("u4", "i4", "bitcast(x, i4)"),
        ("u4", "f4e2m1", "bitcast(x, f4e2m1)"),
        ("u8", "f6e3m2", "bitcast(x & 63, f6e3m2)"),
        ("i4", "i4", "x + 3"),
        ("i32", "u4", "x"),
        ("u4", "i32", "cast(x, i32) * 16 + index(n)"),
        ("bf16", "u4", "x * 2.0"),
    ],
)
def test_computed(source: str, target: str, value: str) -> None:
    m, n = SIZES[0]
    if source == "i32":
        given = np.random.default_rng(0).integers(-40, 40, (m, n)).astype(np.int32)
    else:
        given = floats(m, n).astype(ml_dtypes.bfloat16) if source == "bf16" else None
    own = kernel(ELEMENTS, source=source, target=target, value=value)
    right_and_proved(own, [codes(source, m, n) if given is None else given], M=m, N=n)


OTHERS = {
    "rows of scales": """
def scaled(X: u4[M, N], s: f8e8m0[M, G], Y: f32[M, N]):
    for m, n in tiles(M, N):
        Y[m, n] = cast(X[m, n], f32) * cast(s[m, index(n) // 32], f32)
""",
    "across": """
def across(X: i4[N, M], Y: i4[M, N]):
    for m, n in tiles(M, N):
        Y[m, n] = X[n, m]
""",
    "one by one": """
def one(X: i4[M, N], Y: f32[M, N]):
    for i in each(M):
        for n in tiles(N):
            Y[i, n] = cast(X[i, 1], f32) + cast(X[i, n], f32)
""",
    "the largest": """
def largest(X: f8e8m0[M, N], Y: f8e8m0[M]):
    for m in tiles(M):
        top = full(f8e8m0[m], 1.0)
        for n in tiles(N):
            top = max(top, max(X[m, n], over=n))
        Y[m] = top
""",
    "looked up": """
def looked(X: u4[M, N], T: f4e2m1[16], Y: bf16[M, N]):
    for m, n in tiles(M, N):
        Y[m, n] = cast(lookup(T, cast(X[m, n], i32)), bf16)
""",
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", OTHERS)
def test_others(name: str) -> None:
    own, known = kernel(OTHERS[name]), {"M": 70, "N": 96, "G": 3}
    given: list[Any] = []
    for param in own.params[:-1]:
        kind = param.type
        assert isinstance(kind, Tensor)
        rows, *rest = (int(known.get(str(d), d)) for d in kind.dims)
        made = codes(kind.dtype.name, *((rows, *rest) if rest else (1, rows)))
        given.append(made if rest else made.reshape(-1))
    if name == "the largest":
        given[0] = (2.0 ** np.arange(-40, 80).reshape(-1, 1).repeat(56, 1)).ravel()[: 70 * 96]
        given[0] = given[0].reshape(70, 96).astype(ml_dtypes.float8_e8m0fnu)
    right_and_proved(own, given, **{dim: known[dim] for dim in own.dims})


@pytest.mark.sampled(2)
@pytest.mark.parametrize("rows", [8, 96])
@pytest.mark.parametrize("scheduler", [None, "split_k"])
def test_a_product_is_stored_by_columns(rows: int, scheduler: Any) -> None:
    """Whoever has a column has its neighbour, few rows or many."""
    own, rng = parsed(CASES["gemm"].text.replace("C: bf16", "C: i4")), np.random.default_rng(0)
    a, b = (rng.integers(-2, 3, (n, 80)).astype(ml_dtypes.bfloat16) for n in (rows, 136))
    schedule = Schedule(scheduler=scheduler)
    assert same(own.simulate(a, b, None, schedule=schedule), own.reference(a, b, None))
    assert own.compile(schedule, M=rows, N=136, K=80).schedule.mma_m in (None, "m")


PARTS = {
    "each": "Y[g, m, n] = {x}",
    "in place": "Y[g, m, n] = Y[g, m, n] * 0.5 + {x}",
    "added": "Y[g, m, n] += {x}",
    "across": "Y[g, m, n] = {x} + cast(X[n, m], f32)",
    "summed": "acc += sum({x}, over=n)",
    "the largest": "acc = max(acc, max({x}, over=n))",
}


@pytest.mark.sampled(24)
@pytest.mark.parametrize("at", ["n", "index(n) + 1", "index(n) + 2"])
@pytest.mark.parametrize("start", ["1", "2", "s", "o[0]", "o[g] + 1"])
@pytest.mark.parametrize("source", ["i4", "u4", "f4e2m1"])
@pytest.mark.parametrize("form", PARTS)
def test_parts_begin_amid_a_byte(form: str, source: str, start: str, at: str) -> None:
    """Which half of a byte is whose does not depend on where a loop starts."""
    text = f"""
def part(X: {source}[N, N], Y: f32[G, N, N], o: i32[G], s: i32, S: f32[N]):
    for m in tiles(N):
        acc = zeros(f32[m])
        for g in each(G):
            for n in tiles({start}, o[1], of=N):
                {PARTS[form].format(x=f"cast(X[m, {at}], f32)")}
        S[m] = acc
"""
    given = [codes(source, 140, 140), np.stack([floats(140, 140)] * 2)]
    given += [np.array([3, 131], np.int32), 5, np.zeros(140, np.float32)]
    copies = [[np.copy(x) if isinstance(x, np.ndarray) else x for x in given] for _ in range(2)]
    own = kernel(text)
    own.simulate(*copies[0])
    own.reference(*copies[1])
    assert all(same(a, b) for a, b in zip(*copies, strict=True) if isinstance(a, np.ndarray))
    assert own.compile(N=140, G=2).certificate is not None


REFUSED = {
    "for m, n in tiles(M, N):|    Z[m] = sum(X[m, n], over=n)": "needs `m` as the columns of",
    "for m, n in tiles(M, N):|    Y[m, index(n) + 1] = X[m, n]": "stores single elements of its",
    "for m in tiles(M):|    Y[m, 0] = X[m, 1]": "stores single elements of its rows",
    "for m in tiles(M):|    for n in tiles(2, b, of=N):|        Y[m, n] = X[m, n]": "stores a part",
}


@pytest.mark.parametrize("body", REFUSED)
def test_refused_by_name(body: str) -> None:
    text = "\ndef k(X: f32[M, N], b: i32, Y: u4[M, N], Z: u4[M]):\n    "
    text += body.replace("|", "\n    ") + "\n"
    with pytest.raises(CompileError, match=REFUSED[body]):
        kernel(text).compile(M=64, N=64)


def test_scalars_are_refused() -> None:
    text = "\ndef k(X: f32[M], s: f8e8m0, Y: f32[M]):\n    for m in tiles(M):\n"
    text += "        Y[m] = X[m] * cast(s, f32)\n"
    told = r"(?s)scalars of f8e8m0 are not lowered.*declare it as f32"
    with pytest.raises(CompileError, match=told):
        kernel(text).compile()
