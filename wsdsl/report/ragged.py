"""Rows per trip of ragged loops: loops over a part of a dimension, with bounds in GMEM."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from wsdsl.diagnostics import CompileError, counted
from wsdsl.ir.op import Kernel, Value, operands
from wsdsl.ir.ops import DimLoop, ForTiles, Load
from wsdsl.lowering.axes import loop_variable, ragged_loop
from wsdsl.lowering.cost_model.sized_kernel import Walked


def ragged_loops(kernel: Kernel) -> dict[ForTiles, Sequence[str]]:
    """The tensors that each ragged loop reads its start and its stop from (TILE)."""

    def tensors(value: Value | None) -> Iterator[str]:
        op = kernel.definers.get(value) if value else None
        if isinstance(op, Load):
            yield op.tensor.name
        for operand in operands(op) if op and not isinstance(op, Load) else ():
            yield from tensors(operand)

    bounds = {op: [*tensors(op.start), *tensors(op.stop)] for op in kernel.of(ForTiles)}
    return {loop: names for loop, names in bounds.items() if names}


def rows_by_axis(kernel: Kernel, rows: int | None, bounds: Mapping[str, Any]) -> dict[str, int]:
    """Mean rows per trip of each ragged loop, by axis: `rows`, or what the arrays in `bounds` say:
    offsets (one tensor), or starts and stops (two).
    """
    found, loops = dict[str, int](), ragged_loops(kernel)
    if rows is not None and rows < 1:
        raise CompileError(f"WS1051 {rows} rows per trip, expected 1 or more", kernel.loc)
    for loop, names in loops.items():
        if rows is not None:
            found[loop.index.as_axis.name] = rows
        elif bounds and {*names} <= {*bounds}:
            start, stop = bounds[names[0]], bounds[names[-1]][names[0] == names[-1] :]
            each = [max(0, int(b) - int(a)) for a, b in zip(start, stop, strict=False)] or [0]
            found[loop.index.as_axis.name] = -(-sum(each) // len(each))
    if (rows is not None or bounds) and not found:
        names = ", ".join(dict.fromkeys(name for own in loops.values() for name in own))
        where = f" with bounds in {', '.join(bounds)}" if bounds else ""
        message = f"WS1042 `{kernel.name}` has no ragged loop{where}"
        raise CompileError(message, kernel.loc, f"give {names}" if names else "leave them out")
    return found


def ragged_lines(
    kernel: Kernel, rows: Mapping[str, int], walked: Callable[[DimLoop], Walked]
) -> Iterator[str]:
    """State the rows that the cost model assumes; `walked` gives those of a loop."""
    for loop, names in ragged_loops(kernel).items():
        axis = loop.index.as_axis.name
        told = f"{counted(walked(loop)[1], 'row')} per trip"
        if axis not in rows:
            hint = " and ".join(f"{tensor}=…" for tensor in dict.fromkeys(names))
            shared = ragged_loop(kernel)
            part = "an equal part" if shared and shared.dim == loop.dim else "all"
            told += f" are assumed, {part} of {loop.dim}. hint: give explain rows=… or {hint}"
        yield f"  ragged loop over `{loop_variable(axis)}`: {told}"
