"""The functions of f32 values, run on this machine: their LLVM text says what the GPU computes;
exact functions replace the `approx` instructions.
"""

import ctypes
import math

import numpy as np
import pytest

from wsdsl.codegen.arithmetic.float_functions import UNARY, F, power, remainder
from wsdsl.codegen.writer import Writer

STANDS_IN = {
    "llvm.nvvm.ex2.approx.ftz.f32": "llvm.exp2.f32",
    "llvm.nvvm.sqrt.approx.f": "llvm.sqrt.f32",
}
DIVIDE = "define float @divide(float %a, float %b) {\n  %q = fdiv float %a, %b\n  ret float %q\n}\n"
RECIPROCAL = (
    "define float @rcp(float %a) {\n  %q = fdiv float 1.0, %a\n"
    "  %n = call float @llvm.fabs.f32(float %q)\n  %t = fcmp olt float %n, 0x3810000000000000\n"
    "  %r = select i1 %t, float 0.0, float %q\n  ret float %r\n}\n"
)
RSQRT = (
    "define float @rsqrt(float %a) {\n  %s = call float @llvm.sqrt.f32(float %a)\n"
    "  %q = fdiv float 1.0, %s\n  ret float %q\n}\ndeclare float @llvm.sqrt.f32(float)\n"
)


def run(make, *arrays: np.ndarray) -> np.ndarray:
    """Apply what `make` writes to each element."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    w = Writer()
    names = [f"%x{i}" for i in range(len(arrays))]
    result = make(F(w), *names)
    lines = "\n".join(w.lines)
    declarations = dict(w.declarations)
    extra = ""
    for name, own, text in (
        ("llvm.nvvm.div.full", "divide", DIVIDE),
        ("llvm.nvvm.rcp.approx.ftz.f", "rcp", RECIPROCAL),
        ("llvm.nvvm.rsqrt.approx.f", "rsqrt", RSQRT),
    ):
        if declarations.pop(name, None):
            lines = lines.replace(f"@{name}(", f"@{own}(")
            extra += text
    if "@rcp(" in extra:
        declarations["llvm.fabs.f32"] = "declare float @llvm.fabs.f32(float)"
    made = "\n".join(declarations.values())
    for name, own in STANDS_IN.items():
        lines, made = lines.replace(f"@{name}(", f"@{own}("), made.replace(f"@{name}(", f"@{own}(")
    parameters = ", ".join(f"float {n}" for n in names)
    text = f"{made}\n{extra}define float @f({parameters}) {{\nentry:\n{lines}\n"
    text += f"  ret float {result}\n}}\n"
    pointers = ", ".join(f"ptr %p{i}" for i in range(len(arrays)))
    loads = "".join(
        f"  %g{i} = getelementptr float, ptr %p{i}, i64 %i\n  %y{i} = load float, ptr %g{i}\n"
        for i in range(len(arrays))
    )
    call = ", ".join(f"float %y{i}" for i in range(len(arrays)))
    text += (
        f"define void @run(ptr %out, i64 %n, {pointers}) {{\nentry:\n  br label %loop\nloop:\n"
        f"  %i = phi i64 [ 0, %entry ], [ %j, %loop ]\n{loads}  %r = call float @f({call})\n"
        "  %o = getelementptr float, ptr %out, i64 %i\n  store float %r, ptr %o\n"
        "  %j = add i64 %i, 1\n  %c = icmp ult i64 %j, %n\n"
        "  br i1 %c, label %loop, label %end\nend:\n  ret void\n}\n"
    )
    module = llvm.parse_assembly(text)
    module.verify()
    machine = llvm.Target.from_default_triple().create_target_machine(opt=2)
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    inputs = [np.ascontiguousarray(a, np.float32) for a in arrays]
    out = np.empty(inputs[0].shape, np.float32)
    types = [ctypes.c_void_p, ctypes.c_int64, *[ctypes.c_void_p] * len(inputs)]
    function = ctypes.CFUNCTYPE(None, *types)(engine.get_function_address("run"))
    function(out.ctypes.data, out.size, *(a.ctypes.data for a in inputs))
    return out


def error(got: np.ndarray, exact: np.ndarray) -> float:
    """The largest error, in units of the last place of an f32."""
    with np.errstate(all="ignore"):
        ulp = np.maximum(np.spacing(np.abs(exact.astype(np.float32))), 2.0**-149)
        same = (got == exact.astype(np.float32)) | (np.isnan(got) & np.isnan(exact))
        tiny = (np.abs(exact) < 2.0**-125) & (np.abs(got) < 2.0**-125)
        off = np.abs(got.astype(np.float64) - exact) / ulp
    return float(np.max(np.where(same | tiny, 0, off)))


ERF = np.vectorize(math.erf, otypes=[np.float64])
EXACT = {
    "exp": (np.exp, -100, 100, 2.5),
    "exp2": (np.exp2, -125, 127, 1),
    "sin": (np.sin, -1000, 1000, 1.5),
    "cos": (np.cos, -1000, 1000, 1.5),
    "tanh": (np.tanh, -12, 12, 2.5),
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), -80, 80, 3.5),
    "silu": (lambda x: x / (1 + np.exp(-x)), -80, 80, 3.5),
    "erf": (ERF, -6, 6, 1.5),
    "neg": (np.negative, -10, 10, 0),
    "abs": (np.abs, -10, 10, 0),
    "floor": (np.floor, -10, 10, 0),
    "round": (np.rint, -10, 10, 0),
    "relu": (lambda x: np.maximum(x, 0), -10, 10, 0),
}
POSITIVE = {"log": np.log, "log2": np.log2, "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x)}
SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 1e-40, -1e-40, 3e38, -3e38])


def samples(low: float, high: float) -> np.ndarray:
    rng = np.random.default_rng(1)
    x = rng.uniform(low, high, 200_000)
    return np.concatenate([x, x * 1e-3, x * 1e-6, [0.0]]).astype(np.float32)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", EXACT)
def test_everywhere(name: str) -> None:
    exact, low, high, ulps = EXACT[name]
    x = samples(low, high)
    assert error(run(UNARY[name], x), exact(x.astype(np.float64))) <= ulps


def test_a_sigmoid_may_be_denormal() -> None:
    x = np.linspace(-88.5, -80, 20_001).astype(np.float32)
    exact = EXACT["sigmoid"][0](x.astype(np.float64))
    assert np.max(np.abs(run(UNARY["sigmoid"], x) - exact) / np.maximum(exact, 2.0**-126)) < 4e-7
    assert run(UNARY["silu"], np.float32([-87.4]))[0] == pytest.approx(-9.6e-37, rel=0.01)


@pytest.mark.parametrize("name", POSITIVE)
def test_positive(name: str) -> None:
    rng = np.random.default_rng(2)
    spread = 2.0 ** rng.uniform(-140, 127, 200_000)
    x = np.concatenate([spread, rng.uniform(0.5, 2, 400_000), 1 + rng.normal(0, 1e-4, 100_000)])
    x = x.astype(np.float32)
    assert error(run(UNARY[name], x), POSITIVE[name](x.astype(np.float64))) <= 2.5


def test_gelu() -> None:
    x = samples(-12, 12)
    wide = x.astype(np.float64)
    exact = wide * 0.5 * (1 + ERF(wide / math.sqrt(2)))
    assert np.max(np.abs(run(UNARY["gelu"], x) - exact) / np.maximum(np.abs(wide), 1)) < 2e-7


@pytest.mark.parametrize("name", [*EXACT, *POSITIVE])
def test_special_values(name: str) -> None:
    """NumPy's result; results below 2^-126 may be 0."""
    exact = EXACT[name][0] if name in EXACT else POSITIVE[name]
    with np.errstate(all="ignore"):
        want = np.asarray(exact(SPECIAL.astype(np.float32).astype(np.float64)))
    got = run(UNARY[name], SPECIAL)
    usable = np.ones(len(SPECIAL), bool)
    if name in ("sin", "cos"):
        usable = np.abs(SPECIAL) < 1e15
        assert np.all(np.abs(got[np.isfinite(SPECIAL)]) <= 1)
        assert np.all(np.isnan(got[~np.isfinite(SPECIAL)]))
    with np.errstate(all="ignore"):
        assert error(got[usable], want[usable]) <= 4, list(zip(SPECIAL, got, want, strict=True))


def test_power() -> None:
    rng = np.random.default_rng(3)
    x = (2.0 ** rng.uniform(-20, 20, 200_000)).astype(np.float32)
    y = rng.uniform(-6, 6, 200_000).astype(np.float32)
    assert error(run(power, x, y), np.power(x.astype(np.float64), y)) <= 4
    a, b = (v.ravel() for v in np.meshgrid(
        np.array([0, -0.0, 1, -1, 2, -2, 0.5, -0.5, np.inf, -np.inf, np.nan], np.float32),
        np.array([0, -0.0, 1, -1, 2, -3, 3, 0.5, -2.5, np.inf, -np.inf, np.nan], np.float32),
    ))  # fmt: skip
    with np.errstate(all="ignore"):
        want = np.power(a, b)
    got = run(power, a, b)
    wrong = ~(np.isclose(got, want, rtol=1e-6) | (np.isnan(got) & np.isnan(want)))
    wrong |= np.signbit(got) != np.signbit(want)
    wrong &= ~np.isnan(want) | ~np.isnan(got)
    assert not wrong.any(), list(zip(a[wrong], b[wrong], got[wrong], want[wrong], strict=True))


def test_remainder() -> None:
    rng = np.random.default_rng(4)
    a = np.concatenate([rng.uniform(-1000, 1000, 100_000), rng.integers(-99, 99, 50_000)])
    b = np.concatenate([rng.uniform(-10, 10, 100_000), rng.integers(1, 20, 50_000)])
    a, b = a.astype(np.float32), b.astype(np.float32)
    quotient = run(lambda f, x, y: remainder(f, x, y)[0], a, b)
    rest = run(lambda f, x, y: remainder(f, x, y)[1], a, b)
    want_q, want_r = np.divmod(a.astype(np.float64), b)
    assert np.array_equal(quotient, want_q)
    assert np.allclose(rest, want_r, atol=1e-6)


def test_round_takes_halves_to_the_even_number() -> None:
    x = np.arange(-20, 20, dtype=np.float32) / 2
    assert np.array_equal(run(UNARY["round"], x), np.rint(x))
