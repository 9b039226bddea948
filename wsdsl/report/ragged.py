"""Rows per trip of ragged loops: loops over a part of a dimension, with bounds in GMEM."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from wsdsl.diagnostics import CompileError
from wsdsl.ir.op import Kernel, Op, Value, operands
from wsdsl.ir.tile_ops import ForTiles, Load
from wsdsl.lowering.axes import loop_variable


def ragged_loops(kernel: Kernel) -> dict[ForTiles, Sequence[str]]:
    """The tensors that each ragged loop reads its start and its stop from (TILE)."""
    found = dict[ForTiles, Sequence[str]]()
    for loop in kernel.of(ForTiles):
        bounds = [*_tensors(loop.start, kernel.definers), *_tensors(loop.stop, kernel.definers)]
        if bounds:
            found[loop] = bounds
    return found


def _tensors(value: Value | None, made: Mapping[Value, Op]) -> Iterator[str]:
    op = made.get(value) if value else None
    if isinstance(op, Load):
        yield op.tensor.name
    elif op is not None:
        for operand in operands(op):
            yield from _tensors(operand, made)


def rows_by_axis(kernel: Kernel, rows: int | None, bounds: Mapping[str, Any]) -> dict[str, int]:
    """Mean rows per trip of each ragged loop, by axis: `rows`, or what the arrays in `bounds` say:
    offsets (one tensor), or starts and stops (two).
    """
    found = dict[str, int]()
    for loop, names in ragged_loops(kernel).items():
        if rows is not None:
            found[loop.index.as_axis.name] = rows
        elif bounds and {*names} <= {*bounds}:
            start, stop = ([int(x) for x in bounds[name]] for name in (names[0], names[-1]))
            pairs = zip(start, stop[1:] if names[0] == names[-1] else stop, strict=False)
            each = [max(0, last - first) for first, last in pairs] or [0]
            found[loop.index.as_axis.name] = -(-sum(each) // len(each))
    if (rows is not None or bounds) and not found:
        names = ", ".join(dict.fromkeys(n for own in ragged_loops(kernel).values() for n in own))
        message = f"WS1100 `{kernel.name}` has no ragged loop with bounds in {', '.join(bounds)}"
        raise CompileError(message, kernel.loc, f"give {names}" if names else "leave them out")
    return found


def ragged_lines(kernel: Kernel, rows: Mapping[str, int], size: Any) -> Iterator[str]:
    """State the rows that the cost model assumes; `size` gives that of a dimension."""
    for loop, names in ragged_loops(kernel).items():
        axis, name = loop.index.as_axis.name, loop_variable(loop.index.as_axis.name)
        if axis in rows:
            yield f"  ragged loop over `{name}`: {rows[axis]} rows per trip"
        else:
            hint = " and ".join(f"{tensor}=…" for tensor in dict.fromkeys(names))
            told = f"{size(loop.dim)} rows per trip are assumed, all of {loop.dim}"
            yield f"  ragged loop over `{name}`: {told}. hint: give explain rows=… or {hint}"
