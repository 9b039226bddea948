"""Functions of f32 values, each on one operand, in LLVM text.

Relative error about 2^-22 unless said; NaN gives NaN. ptxas' own `approx` instructions are used
where they are that good over their whole range, and polynomials elsewhere.
"""

import math
from collections.abc import Callable, Sequence

from wsdsl.codegen import nvvm
from wsdsl.codegen.arithmetic.literals import f32_literal, f64_literal, round_to_f32
from wsdsl.codegen.writer import Writer

LOG2_E = math.log2(math.e)
LOG2_E_LOW = LOG2_E - round_to_f32(LOG2_E)
ONE = f32_literal(1.0)


def _instruction(name: str) -> Callable[..., str]:
    """Return a method of `F` for an LLVM instruction."""
    return lambda f, *args: f.w.value(f"{name} float {', '.join(map(f.text, args))}")


def _intrinsic(name: str) -> Callable[..., str]:
    """Return a method of `F` for an LLVM intrinsic."""
    return lambda f, *args: f.w.call(name, "float", [("float", f.text(x)) for x in args])


class F:
    """f32 arithmetic without a line per operand type."""

    def __init__(self, w: Writer) -> None:
        self.w = w

    def text(self, x: str | float) -> str:
        return x if isinstance(x, str) else f32_literal(x)

    add, sub, mul = _instruction("fadd"), _instruction("fsub"), _instruction("fmul")
    neg = _instruction("fneg")
    fma = _intrinsic("llvm.fma.f32")
    div = _intrinsic("llvm.nvvm.div.full")
    """At most 2 ulp off; the correctly rounded one is a subroutine in each use."""
    abs, floor = _intrinsic("llvm.fabs.f32"), _intrinsic("llvm.floor.f32")
    min, max = _intrinsic("llvm.minimum.f32"), _intrinsic("llvm.maximum.f32")
    """NaN if either is."""
    copysign = _intrinsic("llvm.copysign.f32")

    def test(self, relation: str, a: str, b: str | float) -> str:
        return self.w.value(f"fcmp {relation} float {a}, {self.text(b)}")

    def select(self, cond: str, a: str | float, b: str | float) -> str:
        return self.w.select(cond, "float", self.text(a), self.text(b))

    def bits(self, a: str) -> str:
        return self.w.value(f"bitcast float {a} to i32")

    def from_bits(self, a: str) -> str:
        return self.w.value(f"bitcast i32 {a} to float")

    def polynomial(self, x: str, coefficients: Sequence[float]) -> str:
        """Highest power first."""
        result: str | float = coefficients[0]
        for coefficient in coefficients[1:]:
            result = self.fma(result, x, coefficient)
        assert isinstance(result, str)
        return result


def exp2(f: F, x: str) -> str:
    """2^x, relative error 2^-22; results below 2^-126 are 0."""
    return nvvm.float_unary(f.w, "llvm.nvvm.ex2.approx.ftz.f32", x)


def exp(f: F, x: str) -> str:
    """Clamped to where infinities do no harm."""
    return _exp_between(f, f.max(f.min(x, 128.0), -128.0))


def _exp_between(f: F, x: str) -> str:
    high, low = _exponent_in_parts(f, x)
    # 2^low is 1 + low ln 2. The product is right for 0 and infinity, where a sum would not be.
    return f.mul(exp2(f, high), f.fma(low, math.log(2), 1.0))


def _exponent_in_parts(f: F, x: str) -> tuple[str, str]:
    """x log2 e; rounded alone it would cost 7 bits at x = 88."""
    high = f.mul(x, LOG2_E)
    return high, f.fma(x, LOG2_E_LOW, f.fma(x, LOG2_E, f.neg(high)))


def _logistic(f: F, x: str) -> str:
    """1 / (1 + e^x), 2^24 times: so both sides of the reciprocal are in range, or 0 and infinity,
    and it needs none of what a division does.
    """
    high, low = _exponent_in_parts(f, f.max(f.min(x, 128.0), -128.0))
    rest = f.fma(low, math.log(2) * 2.0**-24, 2.0**-24)
    return nvvm.reciprocal_approx(f.w, f.fma(exp2(f, high), rest, 2.0**-24))


LOG1P = (
    -0.130187988, 0.140889585, -0.121489584, 0.139809534, -0.166845024, 0.200121149,
    -0.249996364, 0.333331943, -0.5,
)  # fmt: skip


def _mantissa_and_exponent(f: F, x: str, least: int) -> tuple[str, str]:
    """m and e with x = 2^e m, of a positive x; m is from the float with the bits `least` to its
    double.
    """
    w = f.w
    small = f.test("olt", x, 2.0**-126)
    bits = f.bits(f.select(small, f.mul(x, 2.0**23), x))
    exponent = w.binary("and", "i32", w.binary("sub", "i32", bits, least), 0xFF800000)
    mantissa = f.from_bits(w.binary("sub", "i32", bits, exponent))
    number = w.value(f"sitofp i32 {exponent} to float")
    return mantissa, f.fma(number, 2.0**-23, f.select(small, -23.0, 0.0))


def _logarithm(f: F, x: str, of_two: bool) -> str:
    """x = 2^e m with m in [2/3, 4/3); log m by a polynomial in m - 1. Error below 1.5 ulp."""
    mantissa, power = _mantissa_and_exponent(f, x, 0x3F2AAAAB)
    t = f.sub(mantissa, 1.0)
    square = f.mul(t, t)
    # Two chains for the highest powers are shorter than one.
    a = f.fma(LOG1P[0], t, LOG1P[1])
    b = f.fma(LOG1P[2], t, LOG1P[3])
    result = f.fma(a, square, b)
    for coefficient in LOG1P[4:]:
        result = f.fma(result, t, coefficient)
    result = f.fma(result, square, t)
    if of_two:
        high = f.mul(result, LOG2_E)
        low = f.fma(result, LOG2_E, f.neg(high))
        low = f.fma(result, LOG2_E_LOW, low)
        result = f.add(f.add(power, high), low)
    else:
        result = f.fma(power, math.log(2), result)
    # 0, infinity, NaN and negative numbers.
    result = f.select(f.test("ueq", x, math.inf), x, result)
    result = f.select(f.test("olt", x, 0.0), math.nan, result)
    return f.select(f.test("oeq", x, 0.0), -math.inf, result)


PI_2_HIGH = math.pi / 2
PI_2_LOW = 6.123233995736766e-17
SIN = (2.86567956e-6, -1.98559923e-4, 8.33338592e-3, -1.66666672e-1)
COS = (2.44677067e-5, -1.38877297e-3, 4.16666567e-2, -5.00000000e-1, 1.0)
ROUNDER = 1.5 * 2.0**52
"""Adding it to a double rounds to an integer in the low bits."""


def _sine(f: F, x: str, quarter_turns: int) -> str:
    """Reduced to [-pi/4, pi/4] in f64: exact enough below 2^50, beyond that within [-1, 1]."""
    w = f.w
    wide = w.value(f"fpext float {x} to double")
    turned = nvvm.double_fma(w, wide, f64_literal(2 / math.pi), f64_literal(ROUNDER))
    word = w.value(f"trunc i64 {w.value(f'bitcast double {turned} to i64')} to i32")
    count = w.value(f"fsub double {turned}, {f64_literal(ROUNDER)}")
    minus = w.value(f"fneg double {count}")
    rest = nvvm.double_fma(w, minus, f64_literal(PI_2_HIGH), wide)
    rest = nvvm.double_fma(w, minus, f64_literal(PI_2_LOW), rest)
    r = w.value(f"fptrunc double {rest} to float")
    r = f.max(f.min(r, 0.7854), -0.7854)
    square = f.mul(r, r)
    sine = f.fma(f.polynomial(square, SIN), f.mul(r, square), r)
    cosine = f.polynomial(square, COS)
    quadrant = w.binary("add", "i32", word, quarter_turns)
    result = f.select(w.compare("ne", w.binary("and", "i32", quadrant, 1), 0), cosine, sine)
    flip = w.binary("shl", "i32", w.binary("and", "i32", quadrant, 2), 30)
    result = f.from_bits(w.binary("xor", "i32", f.bits(result), flip))
    # infinity - infinity: NaN for infinity and NaN.
    return f.select(f.test("ueq", f.abs(x), math.inf), f.sub(x, x), result)


TANH = (-5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1)


def tanh(f: F, x: str) -> str:
    size = f.abs(x)
    large = f.fma(-(2.0**-23), _logistic(f, f.add(size, size)), 1.0)
    square = f.mul(x, x)
    small = f.fma(f.mul(f.polynomial(square, TANH), square), x, x)
    return f.select(f.test("olt", size, 0.625), small, f.copysign(large, x))


def sigmoid(f: F, x: str) -> str:
    return f.mul(_logistic(f, f.neg(x)), 2.0**-24)


ERF_SMALL = (
    -5.96761703e-4, 4.99119423e-3, -2.67681349e-2, 1.12819925e-1, -3.76125336e-1, 1.28379166e-1,
)  # fmt: skip


def erf(f: F, x: str) -> str:
    """Error below 1.5 ulp."""
    size, square = f.abs(x), f.mul(x, x)
    # From 4 on it is 1, and the polynomial would not do.
    t = f.min(size, 4.0)
    s = f.min(square, 16.0)
    a = f.fma(-1.72853470e-5, t, 3.83197126e-4)
    b = f.fma(-3.88396438e-3, t, 2.42546219e-2)
    result = f.fma(a, s, b)
    for coefficient in (-1.06777877e-1, -6.34846687e-1, -1.28717512e-1):
        result = f.fma(result, t, coefficient)
    result = f.fma(result, t, f.neg(t))
    large = f.copysign(f.sub(1.0, _exp_between(f, result)), x)
    small = f.fma(f.polynomial(square, ERF_SMALL), x, x)
    return f.select(f.test("ogt", size, 0.921875), large, small)


GELU = (
    6.46733542e-6, -3.61838393e-5, -4.79466195e-4, 7.47754751e-3, -5.27529381e-2, -4.59136248e-1,
    -1.15111172, -1.0,
)  # fmt: skip


def gelu(f: F, x: str) -> str:
    """x (1 + erf(x / sqrt 2)) / 2. The error is below 2^-22 of x, below -1 of 1; for small x below
    2^-21 of the result.
    """
    return gelu_by(f, x, GELU)


def gelu_by(f: F, x: str, coefficients: Sequence[float]) -> str:
    """max(x, 0) - t 2^p with t = |x| and 2^p = erfc(t / sqrt 2) / 2; p is nearly a polynomial.

    From 5.5 on t 2^p is less than an error, and the polynomial would not do.
    """
    t = f.min(f.abs(x), 5.5)
    return f.fma(f.neg(t), exp2(f, f.polynomial(t, coefficients)), f.max(x, 0.0))


UNARY: dict[str, Callable[[F, str], str]] = {
    "neg": F.neg,
    "abs": F.abs,
    "floor": F.floor,
    "round": lambda f, x: nvvm.float_unary(f.w, "llvm.roundeven.f32", x),
    "sqrt": lambda f, x: nvvm.float_unary(f.w, "llvm.nvvm.sqrt.approx.f", x),
    "rsqrt": lambda f, x: nvvm.float_unary(f.w, "llvm.nvvm.rsqrt.approx.f", x),
    "exp": exp,
    "exp2": exp2,
    "log": lambda f, x: _logarithm(f, x, of_two=False),
    "log2": lambda f, x: _logarithm(f, x, of_two=True),
    "sin": lambda f, x: _sine(f, x, 0),
    "cos": lambda f, x: _sine(f, x, 1),
    "tanh": tanh,
    "sigmoid": sigmoid,
    "relu": lambda f, x: f.max(x, 0.0),
    "gelu": gelu,
    "silu": lambda f, x: f.mul(x, sigmoid(f, x)),
    "erf": erf,
}


def power(f: F, x: str, y: str) -> str:
    """|x|^y by a logarithm in two parts, then NumPy's signs and special cases."""
    w = f.w
    size = f.abs(x)
    high, low = _extended_log(f, size)
    product = f.max(f.min(f.mul(high, y), 1000.0), -1000.0)
    rest = f.fma(high, y, f.neg(product))
    rest = f.fma(low, y, rest)
    # Where the product was clamped, or a factor is infinite, the rest means nothing.
    rest = f.select(f.test("olt", f.abs(product), 1000.0), rest, 0.0)
    result = exp(f, product)
    result = f.mul(result, f.add(rest, 1.0))
    large = f.test("oeq", size, math.inf)
    zero = f.test("oeq", size, 0.0)
    grows = f.test("ogt", y, 0.0)
    result = f.select(zero, f.select(grows, 0.0, math.inf), result)
    result = f.select(large, f.select(grows, math.inf, 0.0), result)
    whole = f.test("oeq", f.floor(y), y)
    half = f.mul(y, 0.5)
    odd = w.binary("and", "i1", whole, f.test("une", f.floor(half), half))
    negative = w.compare("slt", f.bits(x), 0)
    below = w.binary("and", "i1", f.test("olt", x, 0.0), f.test("une", x, -math.inf))
    result = f.select(w.binary("and", "i1", negative, odd), f.neg(result), result)
    result = f.select(
        w.binary("and", "i1", below, w.binary("xor", "i1", whole, "true")), math.nan, result
    )
    result = f.select(f.test("uno", x, y), math.nan, result)
    one = w.binary("or", "i1", f.test("oeq", x, 1.0), f.test("oeq", y, 0.0))
    minus_one = w.binary("and", "i1", f.test("oeq", x, -1.0), f.test("oeq", f.abs(y), math.inf))
    return f.select(w.binary("or", "i1", one, minus_one), 1.0, result)


def _extended_log(f: F, x: str) -> tuple[str, str]:
    """log x in two floats, relative error 2^-30; x is positive and finite."""
    mantissa, i = _mantissa_and_exponent(f, x, 0x3F3504F3)
    # q = (m - 1) / (m + 1) in two parts; log m = 2 atanh q.
    p, m = f.add(mantissa, 1.0), f.sub(mantissa, 1.0)
    r = f.div(1.0, p)
    q = f.mul(m, r)
    t = f.fma(q, -2.0, m)
    q_low = f.mul(r, f.fma(q, f.neg(m), t))
    s = f.mul(q, q)
    poly = f.polynomial(s, (0.1293334961, 0.1419928074, 0.2000148296, 0.3333332539))
    t = f.fma(q, f.add(q_low, q_low), f.fma(q, q, f.neg(s)))
    cube = f.mul(s, q)
    t = f.fma(s, q_low, f.fma(t, q, f.fma(s, q, f.neg(cube))))
    s = f.fma(poly, cube, f.fma(poly, t, q_low))
    r = f.mul(q, 2.0)
    ln2_high, ln2_low = 6.93147182e-1, -1.90465421e-9
    t = f.fma(ln2_high, i, r)
    p = f.fma(-ln2_high, i, t)
    s = f.fma(ln2_low, i, f.fma(2.0, s, f.sub(r, p)))
    high = f.add(t, s)
    return high, f.add(f.sub(t, high), s)


def remainder(f: F, a: str, b: str) -> tuple[str, str]:
    """(floor(a / b), what is left); exact for quotients below 2^23, the latter has b's sign."""
    q = f.floor(f.div(a, b))
    r = f.fma(f.neg(q), b, a)
    # The quotient may have been rounded across an integer, either way.
    below = f.test("olt", f.mul(f.copysign(ONE, b), r), 0.0)
    q = f.select(below, f.sub(q, 1.0), q)
    r = f.fma(f.neg(q), b, a)
    above = f.test("oge", f.abs(r), f.abs(b))
    above = f.w.binary("and", "i1", above, f.test("one", b, 0.0))
    q = f.select(above, f.add(q, 1.0), q)
    return q, f.fma(f.neg(q), b, a)
