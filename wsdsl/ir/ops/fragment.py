"""SCHEDULED: wgmma, and arithmetic on fragments in the registers of a warpgroup.

`map`, `cast`, `bitcast`, `full` and `constant` of `tile_ops` work on fragments too.
"""

from __future__ import annotations

from collections.abc import Iterator

from wsdsl.ir.attribute_checks import APART
from wsdsl.ir.hardware.wgmma_shapes import K_BYTES, ROWS
from wsdsl.ir.op import SCHEDULED, Makers, OneResult, Op, Unary, Value, op_class
from wsdsl.ir.types import Fragment


@op_class(SCHEDULED, "warpgroup", pure=True, was="slice", any_lanes=True)
class SliceColumns(Unary):
    """Columns [start, start + the result's columns) of a fragment; no code."""

    start: int

    def faults(self, made: Makers) -> Iterator[str]:
        whole, part = self.x.type, self.result.type
        if not isinstance(whole, Fragment) or not isinstance(part, Fragment):
            yield "operands and result must be fragments"
            return
        same = (whole.dtype, whole.rows) == (part.dtype, part.rows)
        if not same or self.start + part.columns > whole.columns or self.start % 8:
            yield f"{part} from column {self.start} on is not a slice of {whole}"


@op_class(SCHEDULED, "warpgroup", pure=True, was="join", any_lanes=True)
class JoinColumns(OneResult):
    """Fragments side by side as one, the first one's columns first; no code."""

    parts: tuple[Value, ...]

    def faults(self, made: Makers) -> Iterator[str]:
        whole, kinds = self.result.type, [v.type for v in self.parts]
        if not isinstance(whole, Fragment):
            yield "operands and result must be fragments"
            return
        parts = [k for k in kinds if isinstance(k, Fragment)]
        same = {(k.dtype, k.rows) for k in parts} == {(whole.dtype, whole.rows)}
        fits = same and sum(k.columns for k in parts) == whole.columns
        if len(parts) < len(kinds) or not fits:
            yield f"{', '.join(map(str, kinds))} do not join to {whole}"


@op_class(SCHEDULED, "warpgroup", pure=True)
class ConvertLayout(Unary):
    """A fragment of 64 rows as wgmma takes its left operand from registers; nothing but `wgmma`
    and `wgmma_wait` may take the result. Of 16 bits it is the same registers, and no code. Of 8
    bits lanes exchange bytes, and the result has registers of its own.
    """

    def faults(self, made: Makers) -> Iterator[str]:
        kind = self.x.type
        if not isinstance(kind, Fragment) or self.result.type != kind.as_operand:
            yield f"convert_layout of {kind} cannot give {self.result.type}"
        elif kind.dtype.bits not in (8, 16) or kind.rows != ROWS:
            yield f"an operand needs {ROWS} rows of 16 or 8 bits, not {kind}"
        elif kind.columns * kind.dtype.bytes % K_BYTES:
            yield f"an operand needs rows of a multiple of {K_BYTES} bytes, not {kind}"


def parts_of(op: Op | None) -> tuple[Value, ...]:
    """Return the operands in whose registers the result of an op is, which then has no code."""
    if isinstance(op, SliceColumns) or (isinstance(op, ConvertLayout) and is_same_registers(op)):
        return (op.x,)
    return op.parts if isinstance(op, JoinColumns) else ()


def registers_of(value: Value, made: Makers) -> tuple[Value, ...]:
    """Return the fragments whose registers a fragment has."""
    parts = parts_of(made.get(value))
    return tuple([v for part in parts for v in registers_of(part, made)]) or (value,)


def is_same_registers(op: ConvertLayout) -> bool:
    return isinstance(op.x.type, Fragment) and op.x.type.dtype.bits == 16


@op_class(SCHEDULED, "warpgroup", pure=True, ranges=dict(apart=APART), any_lanes=True)
class Iota(OneResult):
    """`start` (i32 scalar) + the row's index (result 64 x 1) or the column's index (1 x w). The 16
    rows of a warp begin `apart` behind those of the warp before: 16, or 32 as in tensor memory.
    """

    start: Value
    apart: int = 16

    @property
    def extent(self) -> int:
        """From the first index to one past the last."""
        kind = self.result.as_fragment
        between = 3 * (self.apart - 16) if kind.columns == 1 < kind.rows else 0
        return kind.rows * kind.columns + between

    def faults(self, made: Makers) -> Iterator[str]:
        kind = self.result.type
        if not isinstance(kind, Fragment) or 1 not in (kind.rows, kind.columns):
            yield "an iota must have one row or one column: 64 x 1, or 1 x w"
