"""The split-K workspace in GMEM: accumulators of splits, and semaphores between their CTAs."""

import dataclasses
from collections.abc import Callable
from typing import Any

from wsdsl.ir import ops
from wsdsl.ir.op import Kernel, Value
from wsdsl.ir.rewriter import Namer
from wsdsl.ir.types import I32, Axis, Tensor, Tile
from wsdsl.lowering.axes import axes_of
from wsdsl.lowering.builder import Builder
from wsdsl.record import record


@record
class Place:
    """A tile of the workspace: `index` are axes, or the line."""

    tensor: Value
    index: tuple[Value, ...]


class Partials:
    """Of one kernel; `barrier` and `consumers` are those of the partition at hand."""

    def __init__(self, kernel: Kernel, cluster: int) -> None:
        self.builder = Builder(Namer.of(kernel))
        self.axes, self.static, self.cluster = dict(axes_of(kernel)), dict(kernel.sizes), cluster
        self.lent: dict[str, ops.AllocateGlobal] = {}
        self.barrier, self.consumers = 0, 1

    def lend(
        self, wish: str, type: Tensor, each: int, zeroed: bool = False, fragments: bool = False
    ) -> Value:
        """The tensor of that name, the same for all partitions."""
        if wish not in self.lent:
            made = self.builder.value(wish, type)
            self.lent[wish] = ops.AllocateGlobal(
                result=made, each=each, zeroed=zeroed, fragments=fragments
            )
        return self.lent[wish].result

    def flag(self, slot: Value) -> tuple[Value, Value]:
        """The tensor of flags, and which one is this warpgroup's for the tile."""
        b, each = self.builder, self.cluster * self.consumers
        flags = self.lend("flags", Tensor(I32, ("flags_lines",)), each, zeroed=True)
        flag = b.times(slot, self.consumers, "flag")
        if self.consumers > 1:
            flag = b.plus(flag, b.warpgroup("consumer"), "flag")
        return flags, flag

    def arrive(
        self,
        flags: Value,
        flag: Value,
        by: Value | None = None,
        wrap: Value | None = None,
        release: bool = True,
    ) -> None:
        """Once all warps have come so far; `release` what others are to see."""
        b = self.builder
        self.meet()
        b.add(ops.SemaphoreArrive(tensor=flags, index=(flag,), by=by, wrap=wrap, release=release))

    def place(
        self, sum: Value, number: int, line: Value, slots: int = 1, column: Value | None = None
    ) -> Place:
        """Of the kernel's `number`-th sum, from the tile's line `line` on. A tile of the scheduler
        has `slots`; with `column` there are as many columns from there on as the sum has.
        """
        b, kind = self.builder, sum.as_tile
        rows, columns = self.role(kind, "rows"), self.role(kind, "columns")
        name = f"partials_{number}" if number else "partials"
        lines, index, dims = f"{name}_lines", list[Value](), list[str | int]()
        index.append(self.axis(rows, lines, line) if rows else line)
        dims.append(lines)
        if columns:
            whole = self.whole_columns(name, columns.size)
            index.append(self.axis(columns, str(whole), column or b.integer(0)))
            dims.append(whole)
        each = (rows.size if rows else 1) * slots * self.cluster
        fragments = rows is not None and columns is not None
        lent = self.lend(name, Tensor(kind.dtype, tuple(dims)), each, fragments=fragments)
        return Place(lent, tuple(index))

    def whole_columns(self, name: str, wanted: int) -> int:
        """The tensor's columns: those of the first who asked."""
        if name not in self.lent:
            return wanted
        kind = self.lent[name].result.as_tensor
        assert isinstance(kind.dims[-1], int)
        return kind.dims[-1]

    def line(self, sum: Value, slot: Value) -> Value:
        """Return the first line of the `slot`-th tile."""
        rows = self.role(sum.as_tile, "rows")
        return self.builder.times(slot, rows.size if rows else 1, "line")

    def role(self, kind: Tile, role: str) -> Axis | None:
        return next((self.axes[a] for a in kind.axes if self.axes[a].role == role), None)

    def axis(self, of: Axis, dim: str, start: Value) -> Value:
        """A new axis like another one, somewhere else."""
        b = self.builder
        kind = dataclasses.replace(of, name=b.namer.new(f"{of.name}_piece"), dim=dim)
        self.axes[kind.name] = kind
        return b.add(ops.AxisAt(result=b.value(kind.name, kind), start=start)).result

    def load(self, like: Tile, place: Place) -> Value:
        b = self.builder
        found = b.value("partial", self._renamed(like, place))
        b.add(ops.Load(result=found, tensor=place.tensor, index=place.index))
        return b.add(ops.RenameAxes(result=b.value("partial", like), x=found)).result

    def store(self, sum: Value, place: Place) -> None:
        b = self.builder
        value = b.make(ops.RenameAxes, sum.name, self._renamed(sum.as_tile, place), x=sum)
        b.add(ops.Store(tensor=place.tensor, index=place.index, value=value))

    def over_pieces(
        self, parts: Value, step: int, init: Value, add: Callable[[Value, Value], Value]
    ) -> Value:
        """Fold `add` over the number of every `step`-th split, from `init` on."""
        b = self.builder
        base, arg = b.value("base", parts.type), b.value("total", init.type)
        with b.region() as body:
            b.add(ops.Yield(values=(add(base, arg),)))
        total = b.value("total", init.type)
        run = dict[str, Any](start=b.integer(0), stop=parts, step=b.integer(step))
        carried = dict[str, Any](init=(init,), args=(arg,), body=tuple(body))
        b.add(ops.ForRange(result=(total,), index=base, **run, **carried))
        return total

    def wait_for_readers(self, sums: tuple[Value, ...]) -> None:
        """Wait until all threads with a copy of a reduced value have read it, before one writes it:
        the lanes of a warp for values per row, all threads for values without rows.
        """
        kinds = [v.type for v in sums if isinstance(v.type, Tile)]
        if any(self.role(kind, "rows") is None for kind in kinds):
            self.meet()
        elif any(self.role(kind, "columns") is None for kind in kinds):
            self.builder.sync_threads(None)

    def meet(self) -> None:
        self.builder.sync_threads(self.barrier, self.consumers)

    def _renamed(self, kind: Tile, place: Place) -> Tile:
        """The type with the place's axes, in the sum's order."""
        by_role = {v.type.role: v.type.name for v in place.index if isinstance(v.type, Axis)}
        return dataclasses.replace(kind, axes=tuple(by_role[self.axes[a].role] for a in kind.axes))
