"""Hand the sums of a tile's pieces from CTA to CTA, through GMEM and a flag for each tile.

Before:
    finish_tile(sums=(%acc,), slot=%slot, begin=%begin, end=%end, contraction="K", args=(%sum,)) {
      store(tensor=%C, index=(%m, %n), value=%sum)
    }
After:
    %partials: tensor<f32[partials_lines, 256]> = allocate_global(each=128)
    %turns: tensor<i32[turns_lines]> = allocate_global(each=2, zeroed=True)
      ...
      %continued: bool = map(fn="gt", args=(%begin, %zero))
      %finished: bool = map(fn="ge", args=(%end, %size_K))
      %sum: f32[m, n] = if(cond=%continued) {
        wait_flag(tensor=%turns, index=(%flag,), count=%begin)
        %before = load(tensor=%partials, index=(%m_piece, %n_piece))
        ... add it ...
      } { yield(values=(%acc,)) }
      if(cond=%finished) {
        store(tensor=%C, index=(%m, %n), value=%sum)
        if(cond=%continued) {
          named_barrier_sync(barrier=8, num_warpgroups=2)
          arrive_flag(tensor=%turns, index=(%flag,), by=%minus_begin)
        } {}
      } {
        store(tensor=%partials, index=(%m_piece, %n_piece), value=%sum)
        named_barrier_sync(barrier=8, num_warpgroups=2)
        arrive_flag(tensor=%turns, index=(%flag,), by=%length)
      }

A flag counts the elements of the contraction that lie summed in its slot, so a piece's turn has
come when it is `begin`; the last piece sets it back to 0. Each consumer has flags and rows of its
own. In the unordered reduction, the pieces in the middle only wait for the first, and add to the
slot atomically.

Why here: pieces are numbers; states and tiles are lowered next, for whatever is here.
"""

from __future__ import annotations

import dataclasses

from wsdsl.ir.barrier_ops import ArriveFlag, LaunchGrid, NamedBarrierSync, WaitFlag, WarpgroupIndex
from wsdsl.ir.memory_ops import AllocateGlobal
from wsdsl.ir.op import Kernel, Op, Region, Value
from wsdsl.ir.pipeline_ops import AxisAt, FinishTile, Partition, RenameAxes
from wsdsl.ir.tile_ops import If, Load, Map, Store, Yield
from wsdsl.ir.types import I32, Axis, Tensor, Tile
from wsdsl.ir.walk import Namer, walk, with_regions
from wsdsl.lowering.axes import axes_of
from wsdsl.lowering.builder import INT, Builder

FIRST_BARRIER = 8
"""The named barrier of the first compute partition's consumers; those before are turns'."""


def lower_pieces(kernel: Kernel) -> Kernel:
    if not any(isinstance(op, FinishTile) for op in walk(kernel.body)):
        return kernel
    grid = next(op for op in kernel.body if isinstance(op, LaunchGrid))
    lowering = _Pieces(kernel, grid.cluster)
    compute = [op for op in kernel.body if isinstance(op, Partition) and op.role == "compute"]
    body: list[Op] = []
    for op in kernel.body:
        if isinstance(op, Partition) and op.role == "compute":
            lowering.barrier = FIRST_BARRIER + compute.index(op)
            lowering.consumers = op.num_warpgroups
            op = with_regions(op, lowering.region)
        body.append(op)
    at = body.index(grid) + 1
    return dataclasses.replace(kernel, body=(*body[:at], *lowering.lent.values(), *body[at:]))


class _Pieces:
    def __init__(self, kernel: Kernel, cluster: int) -> None:
        self.builder = Builder(Namer.of(kernel))
        self.axes, self.static, self.cluster = axes_of(kernel), dict(kernel.sizes), cluster
        self.lent: dict[str, AllocateGlobal] = {}
        self.barrier, self.consumers = FIRST_BARRIER, 1

    def region(self, region: Region) -> Region:
        with self.builder.region() as ops:
            for op in region:
                self.builder.loc = op.loc
                if isinstance(op, FinishTile):
                    self.finish(op)
                else:
                    self.builder.add(with_regions(op, self.region))
        return tuple(ops)

    def lend(self, wish: str, type: Tensor, each: int, zeroed: bool = False) -> Value:
        """The tensor of that name, the same for all partitions."""
        if wish not in self.lent:
            made = self.builder.value(wish, type)
            self.lent[wish] = AllocateGlobal(result=made, each=each, zeroed=zeroed)
        return self.lent[wish].result

    def finish(self, op: FinishTile) -> None:
        b = self.builder
        continued = b.map("gt", op.begin, b.integer(0), wish="continued")
        size = b.size(op.contraction, self.static.get(op.contraction))
        finished = b.map("ge", op.end, size, wish="finished")
        flags = self.lend("turns", Tensor(I32, ("turns_lines",)), self.cluster * self.consumers, True)
        flag = b.times(op.slot, self.consumers, "flag")
        if self.consumers > 1:
            own = b.add(WarpgroupIndex(result=b.value("consumer", INT))).result
            flag = b.plus(flag, own, "flag")
        places = [self.place(v, i, op.slot) for i, v in enumerate(op.sums)]
        unordered = op.reduction == "unordered"
        taken = b.map("and", continued, finished, wish="taken") if unordered else continued
        with b.region() as then:
            b.add(WaitFlag(tensor=flags, index=(flag,), count=op.begin))
            b.add(Yield(values=tuple(self.added(v, p) for v, p in zip(op.sums, places, strict=True))))
        b.add(If(result=op.args, cond=taken, then=tuple(then), orelse=(Yield(values=op.sums),)))
        with b.region() as last:
            for inner in op.body:
                b.add(inner)
            with b.region() as reset:
                back = b.map("sub", b.integer(0), op.begin, wish="back")
                self.arrive(flags, flag, back)
                b.add(Yield())
            b.add(If(cond=continued, then=tuple(reset), orelse=(Yield(),)))
            b.add(Yield())
        with b.region() as handed:
            if unordered:
                with b.region() as middle:
                    b.add(WaitFlag(tensor=flags, index=(flag,), count=b.integer(1)))
                    self.leave(op.args, places, accumulate=True)
                    b.add(Yield())
                with b.region() as first:
                    self.leave(op.args, places)
                    b.add(Yield())
                b.add(If(cond=continued, then=tuple(middle), orelse=tuple(first)))
            else:
                self.leave(op.args, places)
            self.arrive(flags, flag, b.map("sub", op.end, op.begin, wish="length"))
            b.add(Yield())
        b.add(If(cond=finished, then=tuple(last), orelse=tuple(handed)))

    def arrive(self, flags: Value, flag: Value, by: Value) -> None:
        """Once all warps have come so far."""
        b = self.builder
        b.add(NamedBarrierSync(barrier=self.barrier, num_warpgroups=self.consumers))
        b.add(ArriveFlag(tensor=flags, index=(flag,), by=by))

    def place(self, sum: Value, number: int, slot: Value) -> tuple[Value, tuple[Value, ...]]:
        """The tensor and the index of a sum's slot: its rows by its columns."""
        b, kind = self.builder, sum.type
        assert isinstance(kind, Tile)
        roles = {self.axes[a].role: self.axes[a] for a in kind.axes}
        rows, columns = roles.get("rows"), roles.get("columns")
        name = f"partials_{number}" if number else "partials"
        lines, index, dims = f"{name}_lines", list[Value](), list[str | int]()
        each = rows.size if rows else 1
        start = b.times(slot, each, "first_line")
        index.append(self.axis(rows, lines, start) if rows else start)
        dims.append(lines)
        if columns:
            index.append(self.axis(columns, str(columns.size), b.integer(0)))
            dims.append(columns.size)
        tensor = Tensor(kind.dtype, tuple(dims))
        return self.lend(name, tensor, each * self.cluster), tuple(index)

    def axis(self, of: Axis, dim: str, start: Value) -> Value:
        b = self.builder
        kind = dataclasses.replace(of, name=b.namer.new(f"{of.name}_piece"), dim=dim)
        return b.add(AxisAt(result=b.value(kind.name, kind), start=start)).result

    def added(self, sum: Value, place: tuple[Value, tuple[Value, ...]]) -> Value:
        """With what is in the slot."""
        b, (tensor, index) = self.builder, place
        assert isinstance(sum.type, Tile)
        before = b.value("before", self.renamed(sum.type, index))
        b.add(Load(result=before, tensor=tensor, index=index))
        before = b.add(RenameAxes(result=b.value("before", sum.type), x=before)).result
        made = b.value(sum.name, sum.type)
        return b.add(Map(result=made, fn="add", args=(sum, before))).result

    def leave(
        self,
        sums: tuple[Value, ...],
        places: list[tuple[Value, tuple[Value, ...]]],
        accumulate: bool = False,
    ) -> None:
        b = self.builder
        for sum, (tensor, index) in zip(sums, places, strict=True):
            assert isinstance(sum.type, Tile)
            kind = self.renamed(sum.type, index)
            value = b.add(RenameAxes(result=b.value(sum.name, kind), x=sum)).result
            b.add(Store(tensor=tensor, index=index, value=value, accumulate=accumulate))

    def renamed(self, kind: Tile, index: tuple[Value, ...]) -> Tile:
        """The type with the slot's axes, in the sum's order."""
        by_role = {v.type.role: v.type.name for v in index if isinstance(v.type, Axis)}
        return dataclasses.replace(kind, axes=tuple(by_role[self.axes[a].role] for a in kind.axes))


