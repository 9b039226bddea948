"""Addresses of items in SMEM, and swizzles."""

from wsdsl.codegen.emission_context import Context
from wsdsl.codegen.inline_ptx import At
from wsdsl.codegen.value_registers import Scalar, SharedAt
from wsdsl.codegen.writer import Writer
from wsdsl.diagnostics import CompileError
from wsdsl.ir.op import Op, Value
from wsdsl.ir.printer import IR_HINT


def placed(op: Op) -> int:
    offset: int = getattr(op, "offset", -1)
    if offset < 0:
        label = getattr(op, "label", "tensor memory")
        raise CompileError(f"WS0605 `{label}` has no offset", op.loc, IR_HINT)
    return offset


def item_at(c: Context, shared: Value, state: Value) -> At:
    """The barrier, or the item of a tile, that `state` is at."""
    value = c.shared(shared)
    return At(c.item(value, c.state(state).stage), value.offset)


SWIZZLE_BITS = {"128B": 0x70, "64B": 0x30, "32B": 0x10, "none": 0}


def item_place(c: Context, shared: SharedAt, item: Scalar) -> At:
    """Items whose numbers differ by constants have one register for their addresses."""
    if isinstance(item.known, int):
        origin, number = "0", item.known
    elif item.origin is not None:
        origin, number = item.origin.text, item.offset
    else:
        origin, number = item.text, 0
    return At(c.item(shared, origin), shared.offset + number * shared.bytes)


def warp_place(c: Context, shared: SharedAt, item: Scalar, apart: int = 0) -> At:
    """The executing warp's part of an item: parts are `apart` bytes apart, or quarters of it."""
    place = item_place(c, shared, item)
    own = c.w.multiply(c.threads.warp, apart or shared.bytes // 4)
    return At(c.w.add(place.base, own), place.offset)


def swizzled(w: Writer, line_start: str, byte: str, swizzle: str) -> str:
    """line_start + byte with the bits of byte exchanged; line_start is a multiple of the span."""
    bits = w.binary("and", "i32", w.binary("lshr", "i32", line_start, 3), SWIZZLE_BITS[swizzle])
    return w.add(line_start, w.binary("xor", "i32", byte, bits))
