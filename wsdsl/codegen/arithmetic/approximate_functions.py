"""Functions of f32 values whose results are rounded to fewer bits (`approximate_math`).

The relative error is at most 2^-(bits + 2), a quarter of the rounding error of that many bits (of
gelu where it is above 2^-13; below, as that of f32, 2^-22 of 1); NaN gives NaN, and results below
2^-126 may be 0.
"""

from collections.abc import Callable

from wsdsl.codegen import nvvm
from wsdsl.codegen.arithmetic.float_functions import LOG2_E, UNARY, F, exp2, gelu_by

Function = Callable[[F, str], str]


def relaxed(name: str, bits: int) -> Function:
    """The fastest function with the accuracy of `bits`; the f32 one if no other has it."""
    fits = [function for most, function in RELAXED.get(name, ()) if bits <= most]
    return fits[0] if fits else UNARY[name]


def _exp(f: F, x: str) -> str:
    """The exponent is rounded to 24 bits, which costs 2^-17 at x = 88."""
    return exp2(f, f.mul(x, LOG2_E))


def _sigmoid(f: F, x: str) -> str:
    # By 2^-24 the reciprocal's operand and result are in range.
    scaled = f.fma(exp2(f, f.mul(x, -LOG2_E)), 2.0**-24, 2.0**-24)
    return f.mul(nvvm.reciprocal_approx(f.w, scaled), 2.0**-24)


GELU_8 = (2.55143154e-3, -3.65516761e-2, -4.81104292e-1, -1.14051169, -1.00086766)
GELU_11 = (-3.364087e-4, 5.98312862e-3, -4.87595534e-2, -4.63429594e-1, -1.14947668, -1.00010629)
"""Relative errors of 2^-10.7 and 2^-13.7, or 2^-23 where that is more: fitted to the logarithm with
the weight that an error has in the result."""


RELAXED: dict[str, tuple[tuple[int, Function], ...]] = {
    "exp": ((15, _exp),),
    "gelu": ((8, lambda f, x: gelu_by(f, x, GELU_8)), (11, lambda f, x: gelu_by(f, x, GELU_11))),
    "sigmoid": ((11, _sigmoid),),
    "silu": ((11, lambda f, x: f.mul(x, _sigmoid(f, x))),),
    "tanh": ((8, lambda f, x: nvvm.float_unary(f.w, "llvm.nvvm.tanh.approx.f32", x)),),
}
"""The most bits that each is accurate for, the fastest first."""
