"""Turn loops over work, tiles and indices into loops over numbers.

Before:
    for_work(index=(%m: axis<m of M by 128 rows>, %n: axis<n of N by 256 columns>), ...) { ... }
After:
    %first: i32 = cta_index()
    %step: i32 = num_ctas()
    for_range(index=%work: i32, start=%first, stop=%num_work, step=%step) {
      ... which tile is it: groups of `swizzle` tiles of m are walked together along n ...
      %m: axis<m of M by 128 rows> = axis_at(start=%m_start)
      %n: axis<n of N by 256 columns> = axis_at(start=%n_start)
      ...
    }

Why here: pipeline states are threaded through one kind of loop.
"""

from __future__ import annotations

import dataclasses

from wsdsl.ir.barrier_ops import CtaIndex, ForRange, LaunchGrid, NumCtas
from wsdsl.ir.op import Kernel, Op, Region, Value
from wsdsl.ir.pipeline_ops import AxisAt, ForWork
from wsdsl.ir.tile_ops import ForEach, ForTiles, Yield
from wsdsl.ir.types import Axis
from wsdsl.ir.walk import Namer, walk, with_regions
from wsdsl.lowering.builder import INT, Builder


def lower_loops(kernel: Kernel) -> Kernel:
    grid = next(_grid(op) for op in walk(kernel.body) if isinstance(op, ForWork))
    lowering = _Loops(Builder(Namer.of(kernel)), dict(kernel.sizes))
    return dataclasses.replace(kernel, body=(grid, *lowering.region(kernel.body)))


def _grid(op: ForWork) -> LaunchGrid:
    tiles = tuple(
        (dim, v.type.size if isinstance(v.type, Axis) else 1)
        for dim, v in zip(op.dims, op.index, strict=True)
    )
    return LaunchGrid(tiles=tiles, scheduler=op.scheduler, loc=op.loc)


class _Loops:
    def __init__(self, builder: Builder, static: dict[str, int]) -> None:
        self.builder, self.static = builder, static

    def size(self, dim: str) -> Value:
        return self.builder.size(dim, self.static.get(dim))

    def region(self, region: Region) -> Region:
        with self.builder.region() as ops:
            for op in region:
                self.builder.loc = op.loc
                match op:
                    case ForWork():
                        self.work(op)
                    case ForTiles():
                        self.tiles(op)
                    case ForEach():
                        self.each(op)
                    case _:
                        self.builder.add(with_regions(op, self.region))
        return tuple(ops)

    def tiles(self, op: ForTiles) -> None:
        axis = op.index.type
        assert isinstance(axis, Axis)
        start = self.builder.value(f"{op.index.name}_start", INT)
        at = AxisAt(result=op.index, start=start, loc=op.loc)
        self.range(op, start, self.size(axis.dim), axis.size, (at,))

    def each(self, op: ForEach) -> None:
        self.range(op, op.index, self.size(op.dim), 1, ())

    def range(
        self, op: ForTiles | ForEach, index: Value, stop: Value, step: int, first: Region
    ) -> None:
        self.builder.add(
            ForRange(
                result=op.result,
                index=index,
                start=self.builder.integer(0),
                stop=stop,
                step=self.builder.integer(step),
                init=op.init,
                args=op.args,
                body=(*first, *self.region(op.body)),
                loc=op.loc,
            )
        )

    def work(self, op: ForWork) -> None:
        b = self.builder
        counts: list[Value] = []
        for dim, index in zip(op.dims, op.index, strict=True):
            step = index.type.size if isinstance(index.type, Axis) else 1
            counts.append(b.quotient_up(self.size(dim), step, f"tiles_{dim}"))
        total = counts[0] if counts else b.integer(1)
        for count in counts[1:]:
            total = b.map("mul", total, count, wish="num_work")
        first = b.add(CtaIndex(result=b.value("cta", INT), loc=op.loc)).result
        step = b.add(NumCtas(result=b.value("num_ctas", INT), loc=op.loc)).result
        work = b.value("work", INT)
        with b.region() as body:
            self.decode(op, work, counts)
            body += [o for o in self.region(op.body) if not isinstance(o, Yield)]
            body.append(Yield())
        b.add(
            ForRange(index=work, start=first, stop=total, step=step, body=tuple(body), loc=op.loc)
        )

    def decode(self, op: ForWork, work: Value, counts: list[Value]) -> None:
        """Bind the indices of the work item, the last one fastest but for the raster."""
        b, rest = self.builder, work
        places: list[Value] = []
        if len(counts) >= 2 and all(isinstance(v.type, Axis) for v in op.index[-2:]):
            plane = b.map("mul", counts[-2], counts[-1], wish="plane")
            inside = rest
            if len(counts) > 2:
                inside = b.map("mod", rest, plane, wish="inside")
                rest = b.map("floordiv", rest, plane, wish="rest")
            places = list(self.raster(inside, counts[-2], counts[-1], op.swizzle))
        remaining = len(counts) - len(places)
        for i in range(remaining - 1, -1, -1):
            if i == 0:
                places.insert(0, rest)
            else:
                places.insert(0, b.map("mod", rest, counts[i], wish="place"))
                rest = b.map("floordiv", rest, counts[i], wish="rest")
        for index, place in zip(op.index, places, strict=True):
            if isinstance(index.type, Axis):
                start = b.times(place, index.type.size, f"{index.name}_start")
                b.add(AxisAt(result=index, start=start, loc=op.loc))
            else:
                b.add(_rename(index, place, b))

    def raster(
        self, inside: Value, rows: Value, columns: Value, swizzle: int
    ) -> tuple[Value, Value]:
        """Groups of `swizzle` rows are walked column by column, so that CTAs that run together
        share what they load.
        """
        b = self.builder
        if swizzle == 1:
            return (
                b.map("floordiv", inside, columns, wish="row"),
                b.map("mod", inside, columns, wish="column"),
            )
        group_size = b.times(columns, swizzle, "group_size")
        group = b.map("floordiv", inside, group_size, wish="group")
        in_group = b.map("mod", inside, group_size, wish="in_group")
        first = b.times(group, swizzle, "first_row")
        left = b.map("sub", rows, first, wish="rows_left")
        # At least one row is left; said so, the divisions below are unsigned ones.
        some = b.map("max", left, b.integer(1), wish="rows_left")
        height = b.map("min", some, b.integer(swizzle), wish="group_rows")
        row = b.map("add", first, b.map("mod", in_group, height), wish="row")
        return row, b.map("floordiv", in_group, height, wish="column")


def _rename(index: Value, place: Value, b: Builder) -> Op:
    from wsdsl.ir.tile_ops import Map

    return Map(result=index, fn="add", args=(place, b.integer(0)))
