"""Fragments that wgmma reads as its left operand: written before the fence, and there to stay.

PTX leaves undefined what wgmma reads of a register that was written after the last wgmma.fence.
LLVM takes a conversion for pure and moves it past the fence to its only user.

An operand of 8 bits is four bytes a register, where a fragment has pairs: of 16 columns, lanes 0 to
3 of a row have columns 0 1 8 9, 2 3 10 11, 4 5 12 13, 6 7 14 15, and shall have 0 to 3, 4 to 7, 8
to 11, 12 to 15. Lanes 0 and 2 want pairs of lanes 0 and 1, lanes 1 and 3 those of 2 and 3; the
first two lanes the low ones, the others the high ones.
"""

from __future__ import annotations

from collections.abc import Sequence

from wsdsl.codegen import nvvm, wgmma_ptx
from wsdsl.codegen.emission_context import Context
from wsdsl.codegen.fragment_registers import texts_of
from wsdsl.codegen.value_registers import Registers
from wsdsl.ir.op import Kernel, Value
from wsdsl.ir.ops import ConvertLayout, Wgmma, WgmmaFence, is_same_registers, registers_of
from wsdsl.ir.types import Fragment


def made_before_fences(kernel: Kernel) -> dict[int, tuple[Value, ...]]:
    """By the id of a fence (all fences are equal): what the products after it read."""
    made = kernel.definers
    found: dict[int, dict[Value, None]] = {}
    fence: WgmmaFence | None = None
    for op in kernel.of(WgmmaFence, Wgmma):
        if isinstance(op, WgmmaFence):
            fence = op
        elif isinstance(op.a.type, Fragment) and fence is not None:
            found.setdefault(id(fence), {}).update(dict.fromkeys(registers_of(op.a, made)))
    return {key: tuple(values) for key, values in found.items()}


def pin_operands(c: Context, op: WgmmaFence) -> None:
    """The same registers go on from here: a copy would escape the wait that keeps them."""
    values = [v for v in c.before_fences.get(id(op), ()) if v in c.held]
    texts = [x for v in values for x in texts_of(c.w, c.registers(v))]
    if texts:
        wgmma_ptx.pin(c.w, texts)


LOW_PAIRS, HIGH_PAIRS = 0x5410, 0x7632
"""Of two registers, in one: prmt's selectors."""


def convert_layout(c: Context, op: ConvertLayout) -> None:
    x = c.registers(op.x)
    texts = texts_of(c.w, x)
    if not is_same_registers(op):
        texts = _by_four_columns(c, texts)
    c.held[op.result] = Registers(x.dtype, *x.shape, texts)


def _by_four_columns(c: Context, pairs: Sequence[str]) -> tuple[str, ...]:
    """`pairs`: of 8 columns two rows, 8 apart, in an i16 each."""
    w, lane = c.w, c.threads.lane
    odd = w.binary("shl", "i32", w.binary("and", "i32", lane, 1), 1)
    first = w.binary("or", "i32", w.binary("and", "i32", lane, 28), odd)
    second = w.binary("or", "i32", first, 1)
    upper = w.value(f"icmp ne i32 {w.binary('and', 'i32', lane, 2)}, 0")
    selector = w.value(f"select i1 {upper}, i32 {HIGH_PAIRS}, i32 {LOW_PAIRS}")
    made: list[str] = []
    for at in range(0, len(pairs), 4):
        for left, right in (pairs[at : at + 4 : 2], pairs[at + 1 : at + 4 : 2]):
            wide = [w.value(f"zext i16 {x} to i32") for x in (left, right)]
            own = w.binary("or", "i32", wide[0], w.binary("shl", "i32", wide[1], 16))
            low, high = (nvvm.shuffle_any(w, "i32", own, source) for source in (first, second))
            made.append(nvvm.pick_bytes(w, low, high, selector))
    return tuple(made)
