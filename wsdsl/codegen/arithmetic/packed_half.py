"""Arithmetic on 16-bit floats, two of a register at once: half as many instructions as by f32, and
no conversions to it and back. Both round once: f32 has more than twice the bits of either and two
to spare, so what is rounded to it first is rounded as if it were not.
"""

from __future__ import annotations

from wsdsl.codegen.arithmetic.bits import arithmetic, pack_halves
from wsdsl.codegen.emission_context import Context
from wsdsl.codegen.fragment_registers import source_element
from wsdsl.codegen.llvm_types import is_packed, num_registers, scalar_type
from wsdsl.codegen.value_registers import Registers, Shape
from wsdsl.codegen.writer import Writer
from wsdsl.ir.ops import Map
from wsdsl.ir.types import DType

PAIRED = {"add": "rn", "sub": "rn", "mul": "rn", "max": "NaN", "min": "NaN"}
"""Of one rounding, or none, which PTX has for both types: with what it is to do."""


def paired(c: Context, op: Map, dtype: DType, shape: Shape) -> Registers | None:
    """None where the op, or how its operands are held, is of another kind."""
    halves = dtype.name in ("f16", "bf16") and is_packed(dtype, shape[1])
    if not halves or op.fn not in (*PAIRED, "where"):
        return None
    *others, first, second = (c.registers(a) for a in op.args)
    if first.dtype != dtype or second.dtype != dtype:
        return None
    pairs, results = _Pairs(c.w, shape), list[str]()
    of_rows = second.raised is not None and not second.raised.texts
    if op.fn == "sub" and first.shape == shape and first.raised and of_rows:
        return _less_zero_points(c.w, pairs, first, second)
    for i in range(num_registers(dtype, *shape)):
        a, b = pairs.of(first, i), pairs.of(second, i)
        if op.fn == "where":
            results.append(_either(c.w, pairs.mask(others[0], i), a, b))
        else:
            results.append(arithmetic(c.w, f"{op.fn}.{PAIRED[op.fn]}.{dtype.name}x2", a, b))
    return Registers(dtype, *shape, tuple(results))


def _less_zero_points(w: Writer, pairs: _Pairs, first: Registers, second: Registers) -> Registers:
    """Subtract 4-bit zero points, mostly of rows, from 4-bit integers: the offset of the conversion
    of the integers is subtracted with the zero point, exactly.
    """
    name, raised, cache = f"rn.{first.dtype.name}x2", first.raised, dict[str, str]()
    assert raised is not None
    results: list[str] = []
    for i, text in enumerate(raised.texts):
        other = pairs.of(second, i)
        if other not in cache:
            cache[other] = arithmetic(w, f"add.{name}", other, str(raised.offset))
        results.append(arithmetic(w, f"sub.{name}", text, cache[other]))
    return Registers(first.dtype, *first.shape, tuple(results))


def _either(w: Writer, mask: str, a: str, b: str) -> str:
    kept = w.binary("and", "i32", a, mask)
    rest = w.binary("and", "i32", b, w.binary("xor", "i32", mask, 0xFFFFFFFF))
    return w.binary("or", "i32", kept, rest)


class _Pairs:
    """Operands of a result of `shape`, by its registers."""

    def __init__(self, w: Writer, shape: Shape) -> None:
        self.w, self.shape = w, shape
        self.cache: dict[tuple[str, ...], str] = {}

    def of(self, value: Registers, i: int) -> str:
        """A register with the two elements that serve register `i`."""
        first = source_element(2 * i, self.shape, value.shape)
        if is_packed(value.dtype, value.columns):
            return value.texts[first // 2]
        text = value.texts[first]
        if (text,) not in self.cache:
            self.cache[text,] = pack_halves(self.w, scalar_type(value.dtype), text, text)
        return self.cache[text,]

    def mask(self, value: Registers, i: int) -> str:
        """Halves of ones where it is true."""
        low, high = (
            value.texts[source_element(2 * i + n, self.shape, value.shape)] for n in (0, 1)
        )
        if (low, high) not in self.cache:
            halves = ((low, 0xFFFF), (high, 0xFFFF0000))
            parts = [self.w.select(cond, "i32", str(ones), "0") for cond, ones in halves]
            self.cache[low, high] = self.w.binary("or", "i32", *parts)
        return self.cache[low, high]
