"""Floats of 4 and 6 bits, and scales f8e8m0, to 16-bit floats by their bits, two at a time: sm_90a
has no conversion of them.

Sign, exponent and mantissa move to their positions in the 16-bit float; its exponent is then too
small by the difference of the biases, for subnormals, too. Multiplying by a power of two corrects
that exactly. A scale is an exponent of bf16 and nothing else.
"""

from wsdsl.codegen.arithmetic.bits import AND_OR, arithmetic, lop3, twice
from wsdsl.codegen.writer import Writer
from wsdsl.ir.types import DType

SMALL_FORMATS = {"f4e2m1": (2, 1), "f6e2m3": (2, 3), "f6e3m2": (3, 2), "f8e8m0": (8, 0)}
"""Bits of exponent and mantissa."""
LARGEST = {"f4e2m1": 0x40C00000, "f6e2m3": 0x40F00000, "f6e3m2": 0x41E00000}
"""6, 7.5 and 28, as the bits of f32."""
INFINITE = 0x7F800000
HALVES = {"bf16": (8, 7), "f16": (5, 10)}


def small_to_half(w: Writer, pair: str, source: DType, target: DType) -> str:
    """`pair`: the codes in the lowest bits of both halves, with anything in the others."""
    if source.name == "f8e8m0":
        return _scales(w, pair)
    (exponent, mantissa), (wide, places) = SMALL_FORMATS[source.name], HALVES[target.name]
    sign = w.binary("shl", "i32", pair, 15 - exponent - mantissa)
    rest = w.binary("shl", "i32", pair, places - mantissa)
    sign = w.binary("and", "i32", sign, twice(0x8000))
    mask = (1 << exponent + mantissa) - 1 << places - mantissa
    value = lop3(w, rest, twice(mask), sign, AND_OR)
    bias, own = ((1 << bits - 1) - 1 for bits in (wide, exponent))
    power = twice(2 * bias - own << places)
    return arithmetic(w, f"mul.rn.{target.name}x2", value, str(power))


def small_from_float(w: Writer, x: str, target: DType) -> str:
    """The code of the nearest value to an f32, as an i32: of two the even one, of scales the larger
    one; saturated, and of NaN as `cast` has it.
    """
    bits = w.value(f"bitcast float {x} to i32")
    size = w.binary("and", "i32", bits, 0x7FFFFFFF)
    is_nan = w.compare("ugt", size, INFINITE)
    if target.name == "f8e8m0":
        return _scale_of(w, bits, size, is_nan)
    exponent, mantissa = SMALL_FORMATS[target.name]
    bias, dropped = (1 << exponent - 1) - 1, 23 - mantissa
    sign = w.binary(
        "and",
        "i32",
        w.binary("lshr", "i32", bits, 31 - exponent - mantissa),
        1 << exponent + mantissa,
    )
    sign = w.select(is_nan, "i32", "0", sign)
    # Infinity and NaN are larger than any, as whole numbers, too.
    size = w.select(
        w.compare("ult", size, LARGEST[target.name]), "i32", size, str(LARGEST[target.name])
    )
    odd = w.binary("and", "i32", w.binary("lshr", "i32", size, dropped), 1)
    half = w.binary("add", "i32", w.binary("add", "i32", size, (1 << dropped - 1) - 1), odd)
    normal = w.binary("sub", "i32", w.binary("lshr", "i32", half, dropped), 127 - bias << mantissa)
    # A sum whose last place is worth a step of subnormals rounds to such steps.
    step = 150 + 1 - bias - mantissa << 23
    wide, one = (w.value(f"bitcast i32 {each} to float") for each in (size, step))
    summed = w.value(f"fadd float {wide}, {one}")
    steps = w.binary("sub", "i32", w.value(f"bitcast float {summed} to i32"), step)
    small = w.compare("ult", size, 128 - bias << 23)
    return w.binary("or", "i32", w.select(small, "i32", steps, normal), sign)


def _scale_of(w: Writer, bits: str, size: str, is_nan: str) -> str:
    """Half a step up is half of the mantissa's range; below 2^-126 it has no leading one."""
    half = w.select(w.compare("ult", size, 1 << 23), "i32", str(1 << 21), str(1 << 22))
    code = w.binary("lshr", "i32", w.binary("add", "i32", size, half), 23)
    code = w.select(w.compare("ult", code, 254), "i32", code, "254")
    negative = w.compare("ugt", bits, 1 << 31)
    return w.select(w.binary("or", "i1", is_nan, negative), "i32", "255", code)


def _scales(w: Writer, pair: str) -> str:
    """As bf16; 0 is 2^-127, which is subnormal there, and 255 is NaN."""
    code = w.binary("and", "i32", pair, twice(0xFF))
    number = arithmetic(w, "max.u16x2", w.binary("shl", "i32", code, 7), str(twice(0x40)))
    over = w.binary("lshr", "i32", w.binary("add", "i32", code, twice(1)), 2)
    return lop3(w, over, twice(0x40), number, AND_OR)
