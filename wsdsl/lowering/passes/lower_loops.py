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

With `within`, a tile begins no later than the one that ends with its dimension. There is no loop
where CTAs have one tile each without a pipeline. A cluster's CTAs take adjacent tiles: the loop is
over clusters. With `bounds` this loop is in one over groups, which computes the bounds, and all
CTAs walk all groups. In ping-pong each iteration tests whose it is
(`lowering/order_barriers.py`).

Why here: pipeline states are threaded through one kind of loop.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from wsdsl.ir import ops
from wsdsl.ir.op import Kernel, Op, Region, Value, operands, with_fields
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
    narrowed = max(0, narrowed - len(work.index) + len(grid.tiles))
    grid = with_fields(grid, narrower=narrower, narrowed=narrowed)
    lowering = _Loops(builder, dict(kernel.sizes), once, narrower)
    return kernel.with_body((*told, grid, *lowering.region(kernel.body)))


def _grid(op: ops.ForWork, overlapping: bool) -> ops.LaunchGrid:
    cluster = _cluster(op)
    tiles = [
        (dim, num * op.step(v)) for dim, v, num in zip(op.dims, op.index, cluster, strict=True)
    ]
    if op.scheduler == "grid":
        # Groups are mostly parts of the dimension: with more CTAs most would have no tile.
        tiles = tiles[op.groups :]
    return ops.LaunchGrid(
        tiles=tuple(tiles),
        scheduler=op.scheduler,
        cluster=math.prod(cluster) * op.sharing,
        contraction=op.contraction if op.sharing == 1 else (),
        splits=op.splits,
        together=op.together,
        sharing=op.sharing,
        overlapping=overlapping,
        ragged=bool(op.bounds),
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
        if op.bounds:
            self.work_by_groups(op)
            return
        b = self.builder
        counts = self.counts(op, {})
        total = b.joined("mul", counts, "num_work") if counts else b.integer(1)
        first, step, rank = self.worker(op)
        part: Value | None = None
        if rank and op.sharing > 1:
            sharing = b.integer(op.sharing)
            part = b.map("mod", rank, sharing, wish="part")
            rank = b.map("floordiv", rank, sharing, wish="rank")
        ranks, lasts = self.ranks(op, rank), self.lasts(op)
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
        pingpong = PingPong(b, op) if op.num_pingpong > 1 else None

        def begin(work: Value) -> None:
            piece = walk_of.piece(work)
            self.decode(op, piece.tile, counts, ranks, lasts)
            if op.piece:
                self.bind_piece(op, piece, walk_of.splits, rank)

        turns = pingpong.carried if pingpong else ((), (), ())
        self.items(op, (walk_of.start, walk_of.stop, walk_of.step), begin, pingpong, turns)
        if pingpong:
            pingpong.finish()

    def work_by_groups(self, op: ops.ForWork) -> None:
        """All CTAs walk the groups. The tiles of all groups are one sequence; each CTA, or cluster,
        has every `num_ctas`-th tile, in a group first the one with the number `at`.
        """
        b = self.builder
        cut = {
            name: getattr(op, name)[op.groups :] for name in ("index", "dims", "cluster", "within")
        }
        own, groups = with_fields(op, **cut), op.index[: op.groups]
        first, step, rank = self.worker(op)
        ranks, lasts = self.ranks(own, rank), self.lasts(own)
        sizes = [self.size(dim) for dim in op.dims[: op.groups]]
        stop = b.joined("mul", sizes, "num_groups") if sizes else b.integer(1)
        pingpong = PingPong(b, op) if op.num_pingpong > 1 else None
        init, args, results = pingpong.carried if pingpong else ((), (), ())
        group, at = b.value("group", INT), b.value("at", INT)
        before, after = (tuple(b.value(v.name, v.type) for v in results) for _ in range(2))
        with b.region() as body:
            for index, place in zip(groups, self.places(sizes, group), strict=True):
                self.bind(index, place)
            *bounds, ends = self.region(op.bounds)
            b.ops += bounds
            ragged = next(v for v in own.index if _name(v) == op.ragged)
            where = {ragged: operands(ends)}
            counts = self.counts(own, where)
            total = b.joined("mul", counts, "num_work")
            self.items(
                op,
                (at, total, step),
                lambda work: self.decode(own, work, counts, ranks, lasts, where),
                pingpong,
                (before, args, after),
            )
            left = b.map("mod", total, step, wish="left")
            following = b.map("mod", b.map("sub", b.plus(at, step), left), step, wish="at")
            b.add(ops.Yield(values=(following, *after)))
        run = dict[str, Any](start=b.integer(0), stop=stop, step=b.integer(1))
        result = (b.value("at", INT), *results)
        carried = dict[str, Any](result=result, init=(first, *init), args=(at, *before))
        b.add(ops.ForRange(index=group, **carried, **run, body=tuple(body), loc=op.loc))
        if pingpong:
            pingpong.finish()

    def items(
        self,
        op: ops.ForWork,
        bounds: tuple[Value, Value, Value],
        begin: Callable[[Value], None],
        pingpong: PingPong | None,
        turns: tuple[tuple[Value, ...], ...],
    ) -> None:
        """The loop over work items, whose body begins with the ops that `begin` appends."""
        b, (start, stop, step), (init, args, result) = self.builder, bounds, turns
        work = b.value("work", INT)
        with b.region() as body:
            begin(work)
            inner = [o for o in self.region(self.body(op)) if not isinstance(o, ops.Yield)]
            if pingpong is None:
                body += [*inner, ops.Yield()]
            else:
                pingpong.take(inner, self.region(op.skip))
        run = dict[str, Any](start=start, stop=stop, step=step, init=init, args=args, result=result)
        b.add(ops.ForRange(index=work, **run, body=tuple(body), loc=op.loc))

    def counts(self, op: ops.ForWork, ragged: Mapping[Value, Sequence[Value]]) -> list[Value]:
        """How many tiles, or clusters of them, there are along each index."""
        b, found = self.builder, list[Value]()
        for dim, index, num in zip(op.dims, op.index, _cluster(op), strict=True):
            step, name = num * op.step(index), f"tiles_{dim}"
            if index in ragged:
                start, stop, *_ = ragged[index]
                size = b.map("max", b.map("sub", stop, start), b.integer(0), wish="part")
            else:
                size = self.size(dim)
            found.append(self.widths.count(size, index, step, name))
        return found

    def worker(self, op: ops.ForWork) -> tuple[Value, Value, Value | None]:
        """This CTA and the number of CTAs, or of clusters; and the rank in its cluster."""
        b = self.builder
        if math.prod(_cluster(op)) * op.sharing > 1:
            first = b.add(ops.ClusterIndex(result=b.value("cluster", INT), loc=op.loc)).result
            step = b.add(ops.NumClusters(result=b.value("num_clusters", INT), loc=op.loc)).result
            return first, step, b.rank()
        first = b.add(ops.CtaIndex(result=b.value("cta", INT), loc=op.loc)).result
        step = b.add(ops.NumCtas(result=b.value("num_ctas", INT), loc=op.loc)).result
        return first, step, None

    def lasts(self, op: ops.ForWork) -> dict[Value, Value]:
        """Where the last tile begins along each index whose tiles overlap."""
        ends = zip(op.index, op.within, strict=False)
        axes = ((v, self.last_start(v.type, n)) for v, n in ends if isinstance(v.type, Axis))
        return {v: last for v, last in axes if last}

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

    def ranks(self, op: ops.ForWork, rest: Value | None) -> dict[Value, Value]:
        """How many tiles this CTA is from the cluster's first, along each index that varies."""
        b = self.builder
        found: dict[Value, Value] = {}
        left = math.prod(_cluster(op))
        for index, num in reversed(tuple(zip(op.index, _cluster(op), strict=True))):
            if rest and num > 1:
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
        ragged: Mapping[Value, Sequence[Value]] = {},
    ) -> None:
        """Bind the indices of the work item, the last one fastest but for the raster. No tile
        begins behind one of `lasts`: those of a cluster that there are not are the last once more.
        Tiles of a `ragged` axis begin with its start.
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
        places = [*self.places(counts[: len(counts) - len(places)], rest), *places]
        for index, place, num in zip(op.index, places, _cluster(op), strict=True):
            if index in ranks:
                place = b.plus(b.times(place, num, "first"), ranks[index], "place")
            if isinstance(index.type, Axis):
                start = self.widths.begin(index, place)
                if index in lasts:
                    start = b.map("min", start, lasts[index], wish=f"{index.name}_start")
                ends = dict[str, Any]()
                if index in ragged:
                    origin, stop, *first = ragged[index]
                    start = b.plus(origin, start, f"{index.name}_start")
                    ends |= dict(stop=stop if op.clipped else None, shifted=op.shifted)
                    ends |= dict(first=first[0]) if first else {}
                b.add(ops.AxisAt(result=index, start=start, **ends, loc=op.loc))
            elif index.name == op.turn:
                self.first = b.times(place, op.step(index), "first")
            else:
                self.bind(index, place)

    def bind(self, index: Value, place: Value) -> None:
        """Make a number the index."""
        self.builder.add(ops.Map(result=index, fn="add", args=(place, self.builder.integer(0))))

    def places(self, counts: Sequence[Value], rest: Value) -> list[Value]:
        """The place of an item along each index, the last fastest; `counts`: of places."""
        b, places = self.builder, list[Value]()
        for count in reversed(counts[1:]):
            places.insert(0, b.map("mod", rest, count, wish="place"))
            rest = b.map("floordiv", rest, count, wish="rest")
        return [rest, *places] if counts else []


def _name(index: Value) -> str:
    """Of the axis that an index is."""
    return index.type.name if isinstance(index.type, Axis) else ""


def _cluster(op: ops.ForWork) -> tuple[int, ...]:
    return op.cluster or (1,) * len(op.index)
