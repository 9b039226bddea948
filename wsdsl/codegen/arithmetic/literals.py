"""Constants as LLVM writes them: floats by their bits, so that nothing is rounded twice."""

import math
import struct

from wsdsl.ir.types import FLOATS, DType


def round_to_f32(value: float) -> float:
    try:
        return struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)


def f32_literal(value: float) -> str:
    """LLVM writes a float as the bits of the double that equals it."""
    return f"0x{struct.unpack('<Q', struct.pack('<d', round_to_f32(value)))[0]:016X}"


def f64_literal(value: float) -> str:
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def bf16_bits(value: float) -> int:
    """Rounded to nearest even."""
    if math.isnan(value):
        return 0x7FC0
    bits: int = struct.unpack("<I", struct.pack("<f", round_to_f32(value)))[0]
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16


def f16_bits(value: float) -> int:
    try:
        return struct.unpack("<H", struct.pack("<e", value))[0]
    except OverflowError:
        return 0xFC00 if value < 0 else 0x7C00


NAN = {"f8e4m3": 0x7F, "f8e5m2": 0x7F, "f6e2m3": 0x1F, "f6e3m2": 0x1F, "f4e2m1": 0x7}
"""All bits but the sign: NaN where there is one, and else the largest value."""


def f8_bits(value: float, name: str) -> int:
    """Rounded to nearest even; larger values become the largest finite value."""
    (significant, least, largest), of_nan = FLOATS[name], NAN[name]
    mantissa, bias = significant - 1, 1 - least
    if math.isnan(value):
        return of_nan
    sign = of_nan + 1 if math.copysign(1.0, value) < 0 else 0
    size = min(abs(round_to_f32(value)), largest)
    exponent = max(math.frexp(size)[1] - 1, 1 - bias) if size else 1 - bias
    # With the leading bit, which is one step of the exponent; subnormals have none.
    steps = round(math.ldexp(size, mantissa - exponent))
    return sign | (exponent + bias - 1 << mantissa) + steps


def scale_bits(value: float) -> int:
    """f8e8m0: the nearest power of two, of two the larger one; negative values become NaN."""
    if math.isnan(value) or value < 0:
        return 0xFF
    mantissa, exponent = math.frexp(min(max(value, 2.0**-127), 2.0**127))
    return exponent + 126 + (mantissa >= 0.75)


def tf32_value(value: float) -> float:
    """Rounded to 10 bits of mantissa, ties away from zero."""
    bits: int = struct.unpack("<I", struct.pack("<f", round_to_f32(value)))[0]
    if not math.isfinite(value):
        return value
    return struct.unpack("<f", struct.pack("<I", bits + 0x1000 & 0xFFFFE000))[0]


def literal(value: int | float | bool, dtype: DType) -> str:
    match dtype.name:
        case "f32":
            return f32_literal(float(value))
        case "tf32":
            return f32_literal(tf32_value(float(value)))
        case "f8e8m0":
            return str(scale_bits(float(value)))
        case name if name in NAN:
            bits, whole = f8_bits(float(value), name), 1 << dtype.bits
            return str(bits - whole if bits >= whole // 2 else bits)
        case "f16":
            return f"0xH{f16_bits(float(value)):04X}"
        case "bf16":
            return f"0xR{bf16_bits(float(value)):04X}"
        case "bool":
            return "true" if value else "false"
        case _:
            wrapped = int(value) & (1 << dtype.bits) - 1
            # LLVM's integers have no sign; the negative form is the readable one.
            signed = dtype.kind == "int" and wrapped >> (dtype.bits - 1)
            return str(wrapped - (1 << dtype.bits) if signed else wrapped)
