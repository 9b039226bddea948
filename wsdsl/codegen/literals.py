"""Constants as LLVM writes them: floats by their bits, so that nothing is rounded twice."""

from __future__ import annotations

import math
import struct

from wsdsl.ir.types import DType


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


def literal(value: int | float | bool, dtype: DType) -> str:
    match dtype.name:
        case "f32":
            return f32_literal(float(value))
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
