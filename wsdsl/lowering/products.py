"""Products on the tensor cores: operands, groups of wgmmas, and waiting for them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from wsdsl.diagnostics import Loc
from wsdsl.ir import ops
from wsdsl.ir.hardware.swizzle import SWIZZLE_SPAN
from wsdsl.ir.types import Accumulator, Fragment, MatrixDescriptor, SharedTile, Tile, Value
from wsdsl.lowering.builder import Builder
from wsdsl.lowering.partition_context import PartitionContext
from wsdsl.lowering.product_operands import operand_lines
from wsdsl.lowering.register_tiles import Accumulated, RegisterTile, Shape, Shapes


class Products:
    """Emits products; from `multiply` on a group of wgmmas is open, until it is waited for or
    committed. Those `in_flight` were committed, the first one first.
    """

    def __init__(
        self,
        builder: Builder,
        shapes: Shapes,
        row_start: Callable[[str, int], Value],
        column_start: Callable[[str, int], Value],
        narrower: Value | None,
    ) -> None:
        self.builder, self.shapes, self.narrower = builder, shapes, narrower
        self.row_start, self.column_start = row_start, column_start
        self.open = Group()
        self.in_flight: list[Group] = []
        self.unfenced = True
        """Whether threads may have written to registers of products since the last fence."""
        self.fence = ops.WgmmaFence()
        self.turns: list[Turn] = []
        """Row blocks that follow one another in one accumulator, and are not all waited for."""
        self.right: tuple[Value, bool]
        """The second operand of the last product, for the rest of its blocks."""

    @staticmethod
    def of(context: PartitionContext) -> Products:
        where = context.row_in_tile, context.column_in_tile, context.narrower
        return Products(context.builder, context.shapes, *where)

    def empty(self, tile: Tile, loc: Loc | None) -> Accumulated:
        """Return an empty accumulator for a tile of zeros: before the last fence, if threads have
        not written to registers of MMAs since then.
        """
        shape, members = self.shapes.of(tile.axes), self.builder.ops
        made = [self.empty_block(tile, shape, loc) for _ in range(shape.blocks)]
        fences = [] if self.unfenced else [n for n, op in enumerate(members) if op is self.fence]
        at = fences[0] if fences else len(members)
        self.unfenced |= at == len(members)
        members[at:at] = made
        return Accumulated(shape, tuple(op.result for op in made), False)

    def empty_block(self, tile: Tile, shape: Shape, loc: Loc | None) -> ops.EmptyAccumulator:
        assert shape.columns is not None
        kind = Accumulator(tile.dtype, 64, self.shapes.own(shape.columns))
        return ops.EmptyAccumulator(result=self.builder.value("acc", kind), loc=loc)

    def join(self, pieces: RegisterTile, loc: Loc | None) -> Accumulated:
        """A tile with values of its own, handed to the tensor cores."""
        whole = pieces.whole_rows(self.builder)
        return Accumulated(pieces.shape, tuple(self.hand_back(x, loc) for x in whole), True)

    def hand_back(self, fragment: Value, loc: Loc | None) -> Value:
        held = fragment.as_fragment
        kind = Accumulator(held.dtype, held.rows, held.columns)
        self.unfenced = True
        return self.builder.make(ops.AsAccumulator, "acc", kind, x=fragment, loc=loc)

    def resume(self, tile: Accumulated, loc: Loc | None) -> tuple[Value, ...]:
        """The tile's accumulators, for another product or to be carried on."""
        if tile.waited:
            return tuple(self.hand_back(f, loc) for f in tile.waited)
        return tile.accumulators

    def multiply(
        self,
        op: ops.Contract,
        tiles: dict[Value, ops.TileInShared],
        computed: RegisterTile | None,
        acc: Accumulated,
    ) -> Accumulated:
        """`tiles` are operands in SMEM; `computed` is one in registers, which has the rows."""
        b = self.builder
        a, c = op.a.type, op.b.type
        assert isinstance(a, (SharedTile, Tile)) and isinstance(c, (SharedTile, Tile))
        (k,) = (x for x in a.axes if x in c.axes)
        first, second, dtypes = op.a, op.b, (a.dtype.name, c.dtype.name)
        if acc.shape.rows not in a.axes:
            first, second, dtypes = second, first, dtypes[::-1]
        fragments = self.fragments(computed, op.depth, op.loc) if computed else ()
        accumulators = self.resume(acc, op.loc)
        begin, end = op.blocks or (0, len(accumulators))
        if self.unfenced:
            self.fence = b.add(ops.WgmmaFence(loc=op.loc))
        self.unfenced = False
        started = acc.started
        accumulate = started if isinstance(started, Value) else b.flag(started)
        assert acc.shape.columns is not None
        shared = self.shapes.share == "columns"
        column = self.column_start(acc.shape.columns, 0) if shared else None
        depth = op.depth or (0, self.shapes.axes[k].size)
        if not begin:
            self.right = self.operand(tiles[second], k, depth, column, op.loc)
        right, right_k = self.right
        widths = self.shapes.axes[acc.shape.columns].widths
        same = dict[str, Any](b=right, b_k_major=right_k, accumulate=accumulate, widths=widths)
        same |= dict(dtype=dtypes[0], b_dtype="" if dtypes[0] == dtypes[1] else dtypes[1])
        same |= dict(narrower=self.narrower if widths > 1 else None, k=depth[1] - depth[0])
        made = [*accumulators]
        for i in range(begin, end):
            assert acc.shape.rows is not None
            if not fragments:
                start = self.row_start(acc.shape.rows, i)
                left, left_k = self.operand(tiles[first], k, depth, start, op.loc)
            else:
                left, left_k = fragments[i], True
            same |= dict(acc=accumulators[i], a=left, a_k_major=left_k, loc=op.loc)
            made[i] = b.make(ops.WgmmaMmaAsync, "acc", accumulators[i].type, **same)
        tile = Accumulated(acc.shape, tuple(made), end == len(made) or acc.started)
        # A continued MMA in flight has the wait of the first.
        for group in self.in_flight:
            group.tiles = [x for x in group.tiles if x is not acc]
        self.open.tiles = [*(x for x in self.open.tiles if x is not acc), tile]
        return tile

    def in_turns(self, op: ops.Contract, tiles: dict[Value, ops.TileInShared]) -> RegisterTile:
        """A product whose row blocks are started one by one, the first one now."""
        shape = self.shapes.of(op.result.as_tile.axes)
        before = self.turns[-1] if self.turns else None
        own = [Turn(op, tiles, i, shape) for i in range(shape.blocks)]
        for one, turn in zip([before, *own], own, strict=False):
            turn.before = one
        self.turns = [*([before] if before else []), *own]
        self.start(own[0], op.loc)
        return self.sliced(shape, lambda i: self.sum_of(own[i], op.loc))

    def start_turns(self, loc: Loc | None) -> None:
        """The next one that nothing keeps from being started."""
        for turn in self.turns:
            if turn.product is None:
                self.start(turn, loc)
                return

    def start(self, turn: Turn, loc: Loc | None) -> None:
        kind = turn.op.result.as_tile
        if turn.before is None:
            acc = self.builder.add(self.empty_block(kind, turn.shape, loc)).result
        else:
            acc = self.hand_back(self.sum_of(turn.before, loc), loc)
        tile = Accumulated(turn.shape, (acc,) * turn.shape.blocks, False)
        one = dataclasses.replace(turn.op, blocks=(turn.block, turn.block + 1))
        turn.product = self.multiply(one, turn.tiles, None, tile).accumulators[turn.block]
        self.builder.add(ops.WgmmaCommit(loc=loc))
        self.open = Group()

    def sum_of(self, turn: Turn, loc: Loc | None) -> Value:
        if turn.sum is None:
            if turn.product is None:
                self.start(turn, loc)
            assert turn.product is not None
            tile = Accumulated(turn.shape, (turn.product,), True)
            self.wait(Group([tile]), loc)
            (turn.sum,) = tile.waited
        return turn.sum

    def fragments(
        self, pieces: RegisterTile, depth: tuple[int, ...], loc: Loc | None
    ) -> tuple[Value, ...]:
        """Return an operand in registers, a fragment per block of rows, or a part of the
        contraction axis; the next fence precedes its reads.
        """
        whole = pieces.whole_rows(self.builder, depth)
        made = tuple(self.as_operand(fragment, loc) for fragment in whole)
        self.open.fragments += made
        self.unfenced = True
        return made

    def as_operand(self, fragment: Value, loc: Loc | None) -> Value:
        made = self.builder.value("operand", fragment.as_fragment.as_operand)
        return self.builder.add(ops.ConvertLayout(result=made, x=fragment, loc=loc)).result

    def operand(
        self,
        tile: ops.TileInShared,
        k: str,
        depth: tuple[int, ...],
        start: Value | None,
        loc: Loc | None,
    ) -> tuple[Value, bool]:
        """Of `depth` elements along `k`: a part of a tile's are whole lines, each in a panel of its
        own, or steps within them."""
        kind = tile.result.type_as(SharedTile)
        self.open.slots.add(tile.state)
        rows, last = (self.shapes.axes[x] for x in kind.axes)
        swizzle, columns = operand_lines(
            last.size, kind.dtype, last.role, last.size // self.shapes.own(last.name)
        )
        k_major, offset, deep = last.name == k, tile.offset, 0
        if k_major and not any(kind.dtype.size(d) % SWIZZLE_SPAN[swizzle] for d in depth):
            if depth != (0, last.size):
                offset += kind.dtype.size(depth[0] * rows.size)
                columns = depth[1] - depth[0]
        else:
            deep = depth[0]
        where = dict[str, Any](shared=tile.shared, offset=offset, state=tile.state, start=start)
        panels = dict[str, Any](rows=rows.size, columns=columns, swizzle=swizzle, k_major=k_major)
        kinds = dict(dtype=kind.dtype.name, first=deep, loc=loc, **panels)
        name = tile.result.name
        made = self.builder.make(ops.SmemDescriptor, name, MatrixDescriptor(), **kinds, **where)
        return made, k_major

    def begin(
        self, tiles: list[Accumulated], slots: Set[Value], fragments: Sequence[Value] = ()
    ) -> None:
        """Begin a loop that carries `slots`, or continue after it: the MMAs that read them and the
        `fragments` are in flight, and add to `tiles`."""
        self.in_flight = [Group(tiles, [*fragments], {*slots})] if slots else []
        self.unfenced = True

    def commit(self, loc: Loc | None) -> None:
        """Close the open group, and leave it in flight."""
        if self.open.tiles:
            self.builder.add(ops.WgmmaCommit(loc=loc))
            self.in_flight.append(self.open)
            self.open = Group()

    def finish_turns(self, loc: Loc | None) -> None:
        for turn in self.turns:
            self.sum_of(turn, loc)
        self.turns = []

    def settle(self, loc: Loc | None, kept: Set[Value] = frozenset()) -> None:
        """Wait for all MMAs before the first that reads a stage of the states `kept`: with
        transformed operands only the last MMAs stay in flight, since the registers of others are
        written next.
        """
        self.finish_turns(loc)
        self.commit(loc)
        groups = self.in_flight
        end = next((n for n, group in enumerate(groups) if kept & group.slots), len(groups))
        computed = (n + 1 for n, group in enumerate(groups[:-1]) if group.fragments)
        self.retire(max(end, *computed, 0), loc)

    def retire(self, num: int, loc: Loc | None) -> None:
        """Wait for the first groups that are in flight. A wait covers no wgmma without a commit."""
        if num:
            self.commit(loc)
        over, self.in_flight = self.in_flight[:num], self.in_flight[num:]
        if over:
            tiles = [tile for group in over for tile in group.tiles]
            self.wait(Group(tiles, [v for group in over for v in group.fragments]), loc)

    def retire_until(self, is_last: Callable[[Group], bool], loc: Loc | None) -> None:
        places = (n + 1 for n, group in enumerate(self.in_flight) if is_last(group))
        self.retire(max(places, default=0), loc)

    def finish(self, tile: Accumulated, loc: Loc | None) -> None:
        """Wait for the products that add to a tile."""
        if not self.in_flight:
            self.settle(loc)
            return
        if tile in self.open.tiles:
            self.commit(loc)
        self.retire_until(lambda group: tile in group.tiles, loc)

    def give_back(self, slot: Value, loc: Loc | None) -> None:
        """Wait for the MMAs that read the stage of a state, after the commit of those that are not
        committed yet."""
        self.finish_turns(loc)
        if not self.in_flight:
            self.settle(loc)
            return
        self.commit(loc)
        self.retire_until(lambda group: slot in group.slots, loc)

    def wait(self, over: Group, loc: Loc | None) -> None:
        """For all but what is in flight. Operands in registers are free from here on."""
        self.unfenced |= bool(over.tiles or over.fragments)
        for tile in over.tiles:
            tile.waited = tuple(map(self.sum, tile.accumulators))
        waited = tuple(v for tile in over.tiles for v in tile.waited)
        read = dict[str, Any](accumulators=tuple(v for x in over.tiles for v in x.accumulators))
        read |= dict(fragments=tuple(over.fragments), pending=len(self.in_flight), loc=loc)
        self.builder.add(ops.WgmmaWait(result=waited, **read))

    def sum(self, acc: Value) -> Value:
        kind = acc.type_as(Accumulator)
        return self.builder.value("sum", Fragment(kind.dtype, kind.rows, kind.columns))

    def read(self, tile: Accumulated, loc: Loc | None) -> RegisterTile:
        """Return the fragments of the tile; zeros if no MMA was added."""
        b, shape = self.builder, tile.shape
        assert tile not in self.open.tiles
        if not tile.waited:
            self.settle(loc)
            self.wait(Group([tile]), loc)
        whole = tile.waited
        if not isinstance(tile.started, bool):
            unless = tile.started
            whole = tuple(
                b.make(ops.ZeroUnless, "sum", w.type, x=w, cond=unless, loc=loc) for w in whole
            )

        return self.sliced(shape, lambda i: whole[i])

    def sliced(self, shape: Shape, whole: Callable[[int], Value]) -> RegisterTile:
        """Return the fragments of blocks of rows."""
        b = self.builder

        def piece(i: int, j: int) -> Value:
            x = whole(i)
            if len(shape.widths) == 1:
                return x
            part = b.value("part", dataclasses.replace(x.type, columns=shape.widths[j]))
            made = ops.SliceColumns(result=part, x=x, start=shape.first_column(j), loc=b.loc)
            return b.add(made).result

        return RegisterTile(shape, piece)


@dataclass
class Group:
    """MMAs with a common wait: their accumulators, their operands in registers, and the states of
    the stages that they read.
    """

    tiles: list[Accumulated] = field(default_factory=list[Accumulated])
    fragments: list[Value] = field(default_factory=list[Value])
    slots: set[Value] = field(default_factory=set[Value])


@dataclass
class Turn:
    """A block of rows of an MMA, issued after the last use of the result `before`: `product` is its
    accumulator, `sum` the result after the wait.
    """

    op: ops.Contract
    tiles: dict[Value, ops.TileInShared]
    block: int
    shape: Shape
    before: Turn | None = None
    product: Value | None = None
    sum: Value | None = None
