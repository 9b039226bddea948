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

With `within`, a tile begins no later than the one that ends with its dimension. Where CTAs have one
tile each and wait for no slots, there is no loop. A cluster's CTAs take neighbouring tiles: the
loop is over clusters. In ping-pong each iteration tests whose it is (`lowering/order_barriers.py`).

Why here: pipeline states are threaded through one kind of loop.
"""

import math
from typing import Any

from wsdsl.ir import ops
from wsdsl.ir.op import Kernel, Op, Region, Value, with_fields
from wsdsl.ir.rewriter import Namer, copy_region, makers, walk, with_regions
from wsdsl.ir.tile_scheduler import Piece, Problem, tile_scheduler
from wsdsl.ir.types import Axis
from wsdsl.lowering.batch_coarsening import one_by_one
from wsdsl.lowering.builder import INT, Builder, Scalars
from wsdsl.lowering.order_barriers import PingPong
from wsdsl.lowering.raster import Widths, launch_narrowing, place_in_plane
from wsdsl.lowering.register_layout import holds_vectors


def lower_loops(kernel: Kernel) -> Kernel:
    work = kernel.of(ops.ForWork)[0]
    inner = any(isinstance(op, ops.ForTiles) and op.within for op in kernel.ops)
    grid = _grid(work, inner or any(work.within))
    if kernel.schedule and kernel.schedule.ctas_per_sm:
        grid = with_fields(grid, ctas_per_sm=kernel.schedule.ctas_per_sm)
    once = holds_vectors(kernel) and not kernel.of(ops.Pipeline)
    builder = Builder(Namer.of(kernel))
    told, narrower, narrowed = launch_narrowing(work, builder)
    grid = with_fields(grid, narrower=narrower, narrowed=narrowed)
    lowering = _Loops(builder, dict(kernel.sizes), once, narrower)
    return kernel.with_body((*told, grid, *lowering.region(kernel.body)))


def _grid(op: ops.ForWork, overlapping: bool) -> ops.LaunchGrid:
    cluster = op.cluster or (1,) * len(op.index)
    tiles = tuple(
        (dim, num * op.step(v)) for dim, v, num in zip(op.dims, op.index, cluster, strict=True)
    )
    return ops.LaunchGrid(
        tiles=tiles,
        scheduler=op.scheduler,
        cluster=math.prod(cluster) * op.sharing,
        contraction=op.contraction if op.sharing == 1 else (),
        splits=op.splits,
        together=op.together,
        sharing=op.sharing,
        overlapping=overlapping,
        loc=op.loc,
    )


def _has_rest(op: ops.ForTiles, size: int | None) -> bool:
    """Whether the last tile of a loop may be cut, and what it has is reduced along its rows."""
    axis = op.index.as_axis
    part = op.start or op.stop or op.first or op.offset or op.every or op.within
    reduced = any(isinstance(o, ops.Reduce) and o.axis == axis.name for o in op.body)
    rest = axis.role == "columns" and (size is None or size % axis.size > 0)
    return rest and reduced and not part


def _loads_of(body: Region) -> Region:
    """Loads, and what tells where they are of; not those of what the body stores to."""
    stored, found = {o.tensor for o in walk(body) if isinstance(o, ops.Store)}, set[Op]()
    for op in body:
        needed = makers(body, (op.result,)) if isinstance(op, ops.Load) else ()
        repeatable = all(
            isinstance(o, (ops.Cast, ops.Constant, ops.Index, ops.Load, ops.Map)) for o in needed
        )
        if repeatable and not any(isinstance(o, ops.Load) and o.tensor in stored for o in needed):
            found |= {*needed}
    return tuple(op for op in body if op in found)


class _Loops:
    def __init__(
        self, builder: Builder, static: dict[str, int], once: bool, narrower: Value | None
    ) -> None:
        self.builder, self.static, self.once = builder, static, once
        self.widths = Widths(builder, narrower)
        self.first: Value | None = None
        """Of the indices that a work item takes in turns."""

    def size(self, dim: str) -> Value:
        return self.builder.size(dim, self.static.get(dim))

    def region(self, region: Region) -> Region:
        return self.builder.each(region, self.convert)

    def convert(self, op: Op) -> None:
        match op:
            case ops.ForWork():
                self.work(op)
            case ops.ForTiles():
                self.tiles(op)
            case ops.ForEach():
                self.each(op)
            case _:
                self.builder.add(with_regions(op, self.region))

    def tiles(self, op: ops.ForTiles) -> None:
        axis = op.index.as_axis
        b, name = self.builder, f"{op.index.name}_start"
        last = self.last_start(axis, op.within)
        index = b.value(name, INT)
        stop = op.stop or self.size(axis.dim)
        with b.region() as first:
            start = index if op.offset is None else b.plus(op.offset, index, name)
            start = start if last is None else b.map("min", start, last, wish=name)
            ends = dict[str, Any](first=op.first, stop=stop if op.clipped else None)
            b.add(ops.AxisAt(result=op.index, start=start, **ends, shifted=op.shifted, loc=op.loc))
        step = op.every and b.times(op.every, axis.size, "step")
        if self.once and _has_rest(op, self.static.get(axis.dim)):
            op = self.with_whole_tiles(op, index, stop)
        self.range(op, index, (op.start, stop), step or axis.size, tuple(first))

    def with_whole_tiles(self, op: ops.ForTiles, start: Value, stop: Value) -> ops.ForTiles:
        """All tiles but the last have all of their elements, of which none is masked then. Loads
        are the same for all, so that they may be asked for ahead.
        """
        b = self.builder
        loads = _loads_of(op.body)
        rest = tuple(o for o in op.body if o not in loads)
        whole = ops.AxisAt(result=op.index, start=start, inside=True, loc=op.loc)
        with b.region() as tests:
            end = b.plus(start, op.index.as_axis.size, "end")
            cond = b.map("le", end, stop, wish="whole")
        then = copy_region((whole, *rest), b.namer)
        result = tuple(b.value(v.name, v.type) for v in op.result)
        branch = ops.If(result=result, cond=cond, then=then, orelse=rest, loc=op.loc)
        body = (*loads, *tests, branch, ops.Yield(values=result, loc=op.loc))
        return with_fields(op, body=body)

    def last_start(self, axis: Axis, within: int) -> Value | None:
        """Where the last tile begins if it ends with the dimension; None if it may reach over."""
        if not within:
            return None
        b, end = self.builder, self.size(axis.dim)
        if within > 1:
            end = b.times(b.quotient_up(end, within), within, "end")
        first = self.widths.before(end, axis)
        return b.map("max", first, b.integer(0), wish=f"{axis.name}_last")

    def each(self, op: ops.ForEach) -> None:
        self.range(op, op.index, (None, self.size(op.dim)), 1, ())

    def range(
        self,
        op: ops.DimLoop,
        index: Value,
        bounds: tuple[Value | None, Value],
        step: int | Value,
        first: Region,
    ) -> None:
        b, start = self.builder, bounds[0] or self.builder.integer(0)
        step = b.integer(step) if isinstance(step, int) else step
        run = dict[str, Any](index=index, start=start, stop=bounds[1], step=step)
        carried = dict[str, Any](result=op.result, init=op.init, args=op.args)
        body = (*first, *self.region(op.body))
        b.add(ops.ForRange(**carried, **run, body=body, loc=op.loc))

    def work(self, op: ops.ForWork) -> None:
        b = self.builder
        cluster = op.cluster or (1,) * len(op.index)
        in_cluster = math.prod(cluster) * op.sharing > 1
        counts: list[Value] = []
        for dim, index, num in zip(op.dims, op.index, cluster, strict=True):
            step, name = num * op.step(index), f"tiles_{dim}"
            counts.append(self.widths.count(self.size(dim), index, step, name))
        total = b.joined("mul", counts, "num_work") if counts else b.integer(1)
        if in_cluster:
            first = b.add(ops.ClusterIndex(result=b.value("cluster", INT), loc=op.loc)).result
            step = b.add(ops.NumClusters(result=b.value("num_clusters", INT), loc=op.loc)).result
        else:
            first = b.add(ops.CtaIndex(result=b.value("cta", INT), loc=op.loc)).result
            step = b.add(ops.NumCtas(result=b.value("num_ctas", INT), loc=op.loc)).result
        rank = b.rank() if in_cluster else None
        part: Value | None = None
        if rank and op.sharing > 1:
            sharing = b.integer(op.sharing)
            part = b.map("mod", rank, sharing, wish="part")
            rank = b.map("floordiv", rank, sharing, wish="rank")
        ranks = self.ranks(op, cluster, rank) if rank else {}
        lasts: dict[Value, Value] = {}
        for index, within in zip(op.index, op.within, strict=False):
            if isinstance(index.type, Axis) and (last := self.last_start(index.type, within)):
                lasts[index] = last
        depth = b.integer(1)
        for dim, extent in op.contraction:
            some = b.quotient_up(self.size(dim), extent, f"tiles_{dim}")
            depth = b.map("max", some, b.integer(1), wish="depth")
        scheduler = tile_scheduler(op.scheduler, op.splits, op.together, op.sharing)
        walk_of = scheduler.walk(Scalars(b), Problem(total, depth, first, step, part))
        if self.once and op.scheduler == "grid" and not op.piece:
            self.decode(op, walk_of.piece(walk_of.start).tile, counts, ranks, lasts)
            b.ops += [o for o in self.region(self.body(op)) if not isinstance(o, ops.Yield)]
            return
        work = b.value("work", INT)
        pingpong = PingPong(b, op) if op.num_pingpong > 1 else None
        with b.region() as body:
            piece = walk_of.piece(work)
            self.decode(op, piece.tile, counts, ranks, lasts)
            if op.piece:
                self.bind_piece(op, piece, walk_of.splits, rank)
            inner = [o for o in self.region(self.body(op)) if not isinstance(o, ops.Yield)]
            if pingpong is None:
                body += [*inner, ops.Yield()]
            else:
                pingpong.take(inner, self.region(op.skip))
        init, args, results = pingpong.carried if pingpong else ((), (), ())
        run = dict[str, Any](start=walk_of.start, stop=walk_of.stop, step=walk_of.step)
        carried = dict[str, Any](result=results, init=init, args=args)
        b.add(ops.ForRange(index=work, **carried, **run, body=tuple(body), loc=op.loc))
        if pingpong:
            pingpong.finish()

    def body(self, op: ops.ForWork) -> Region:
        """What is done of a work item."""
        if self.first is None:
            return op.body
        ((dim, index),) = (x for x in zip(op.dims, op.index, strict=True) if x[1].name == op.turn)
        return one_by_one(self.builder, op, index, self.first, self.size(dim))

    def bind_piece(
        self, op: ops.ForWork, piece: Piece[Value], splits: Value | None, rank: Value | None
    ) -> None:
        """The slot of this CTA's tile, and the elements of the contraction."""
        b, ((dim, extent),) = self.builder, op.contraction
        slot, begin, end, *which = op.piece
        if which:
            assert piece.part is not None and splits is not None
            for held, value in zip(which, (piece.part, splits), strict=True):
                b.add(ops.Map(result=held, fn="add", args=(value, b.integer(0))))
        own = piece.tile
        if rank is not None:
            own = b.plus(b.times(own, math.prod(op.cluster), "slot"), rank, "slot")
        b.add(ops.Map(result=slot, fn="add", args=(own, b.integer(0))))
        b.add(ops.Map(result=begin, fn="mul", args=(piece.begin, b.integer(extent))))
        if piece.length is not None:
            b.add(ops.Map(result=end, fn="mul", args=(piece.length, b.integer(extent))))
            return
        last = b.times(piece.end, extent, "end")
        b.add(ops.Map(result=end, fn="min", args=(last, self.size(dim))))

    def ranks(self, op: ops.ForWork, cluster: tuple[int, ...], rest: Value) -> dict[Value, Value]:
        """How many tiles this CTA is from the cluster's first, along each index that varies."""
        b = self.builder
        found: dict[Value, Value] = {}
        left = math.prod(cluster)
        for index, num in reversed(tuple(zip(op.index, cluster, strict=True))):
            if num > 1:
                left //= num
                found[index] = (
                    rest if left == 1 else b.map("mod", rest, b.integer(num), wish="rank")
                )
                rest = rest if left == 1 else b.map("floordiv", rest, b.integer(num), wish="rest")
        return found

    def decode(
        self,
        op: ops.ForWork,
        work: Value,
        counts: list[Value],
        ranks: dict[Value, Value],
        lasts: dict[Value, Value],
    ) -> None:
        """Bind the indices of the work item, the last one fastest but for the raster. No tile
        begins behind one of `lasts`: those of a cluster that there are not are the last once more.
        """
        b, rest = self.builder, work
        places: list[Value] = []
        if len(counts) >= 2 and all(isinstance(v.type, Axis) for v in op.index[-2:]):
            plane = b.map("mul", counts[-2], counts[-1], wish="plane")
            inside = rest
            if len(counts) > 2:
                inside = b.map("mod", rest, plane, wish="inside")
                rest = b.map("floordiv", rest, plane, wish="rest")
            places = place_in_plane(b, op, inside, counts)
        remaining = len(counts) - len(places)
        for i in range(remaining - 1, -1, -1):
            if i == 0:
                places.insert(0, rest)
            else:
                places.insert(0, b.map("mod", rest, counts[i], wish="place"))
                rest = b.map("floordiv", rest, counts[i], wish="rest")
        cluster = op.cluster or (1,) * len(op.index)
        for index, place, num in zip(op.index, places, cluster, strict=True):
            if index in ranks:
                place = b.plus(b.times(place, num, "first"), ranks[index], "place")
            if isinstance(index.type, Axis):
                start = self.widths.begin(index, place)
                if index in lasts:
                    start = b.map("min", start, lasts[index], wish=f"{index.name}_start")
                b.add(ops.AxisAt(result=index, start=start, loc=op.loc))
            elif index.name == op.turn:
                self.first = b.times(place, op.step(index), "first")
            else:
                b.add(ops.Map(result=index, fn="add", args=(place, b.integer(0))))
