"""Lower tiles to fragments in registers of warpgroups, and contractions to MMAs.

Before:
    %acc = for_range(index=%k, ..., init=(%zeros,), args=(%x: f32[m, n],)) {
      %y: f32[m, n] = contract(a=%a, b=%b, acc=%x)
      mbarrier_arrive(barriers=%empty, state=%s)
      yield(values=(%y,))
    }
    store(tensor=%C, index=(%m, %n), value=%acc)
After:
    %acc0: acc<f32[64x256]> = empty_accumulator()
    %acc3 = for_range(index=%k, ..., init=(%acc0,), args=(%acc1: acc<f32[64x256]>,)) {
      %acc2: acc<f32[64x256]> = wgmma_mma_async(acc=%acc1, a=%a, b=%b, accumulate=%more, ...)
      wgmma_commit()
      wgmma_wait(pending=0)
      mbarrier_arrive(barriers=%empty, state=%s)
      yield(values=(%acc2,))
    }
    %sum: frag<f32[64x256]> = wgmma_wait(pending=0, accumulators=(%acc3,))
    ... 64 columns at a time: convert, write to SMEM, start a TMA store ...

Each compute warpgroup has its part of the row axes, or of the column axes (`Partition.share`).
Elementwise ops are emitted per fragment, on demand of stores or loops. An accumulator is never
filled with zeros: its first MMA overwrites the registers.

Why here: stages have become waits and known addresses, and loops iterate over numbers.
"""

from collections.abc import Generator, Iterable
from contextlib import contextmanager

from wsdsl.ir import ops
from wsdsl.ir.op import Kernel, Op, Region, Value, operands, results_of, used_inside, with_fields
from wsdsl.ir.rewriter import Namer, replace_operands, uses, walk, yielded
from wsdsl.ir.types import State, Tile, Type
from wsdsl.lowering import elementwise
from wsdsl.lowering.builder import Builder
from wsdsl.lowering.cluster_exchange import ClusterExchange
from wsdsl.lowering.epilogue_operands import EpilogueOperands
from wsdsl.lowering.loop_carried import (
    CarriedExchange,
    CarriedOperand,
    carried_variable,
    carrying,
    stays_with_products,
)
from wsdsl.lowering.partition_context import PartitionContext
from wsdsl.lowering.products import Products
from wsdsl.lowering.reads import read_elements, read_values
from wsdsl.lowering.register_tiles import Accumulated, RegisterTile, held
from wsdsl.lowering.shared_rows import exchanges
from wsdsl.lowering.slot_writes import clear_beyond, write_back, write_to_slot
from wsdsl.lowering.store_hazards import stored_in
from wsdsl.lowering.stores import Stores
from wsdsl.lowering.tcgen05_partition import TensorProducts
from wsdsl.lowering.tmem_loop import TensorReads
from wsdsl.lowering.zero_padding import tiles_of_zeros


def lower_tiles(kernel: Kernel) -> Kernel:
    builder = Builder(Namer.of(kernel))

    def change(op: ops.Partition) -> ops.Partition:
        own = _Lowering(kernel, op, builder)
        if op.role == "mma":
            return TensorProducts(own, op).partition
        return with_fields(op, body=own.partition(op.body))

    made = ops.with_partitions(kernel, change)
    return made.with_body(builder.declared(made.body))


class _Lowering:
    """The lowering of a partition. `env` has tiles as fragments, `sums` has accumulators."""

    def __init__(self, kernel: Kernel, partition: ops.Partition, builder: Builder) -> None:
        self.builder = builder
        context = self.context = PartitionContext(kernel, partition, builder)
        self.products = Products.of(context)
        self.stores = Stores(kernel, partition, self.context)
        self.env: dict[Value, RegisterTile] = {}
        self.sums: dict[Value, Accumulated] = {}
        self.tiles: dict[Value, ops.TileInShared] = {}
        self.parts: list[EpilogueOperands | ClusterExchange] = []
        self.in_place: list[RegisterTile] = []
        """Operands that threads read in stages that are not released yet."""
        self.unpublished = False
        """Whether threads have written to stages since the last fence for the tensor cores."""
        self.zeros = tiles_of_zeros(partition.body)
        self.in_tensor_memory = TensorReads.of(partition.body, self.context)
        self.sums_read: dict[Value, TensorReads] = {}
        """The last reads of a stage, by its state."""

    def partition(self, body: Region) -> Region:
        with self.builder.region() as members:
            self.context.begin_whole()
            if any(isinstance(op, (ops.Contract, ops.Store)) for op in walk(body)):
                self.context.find_shares()
                self.stores.begin()
            self.region(body)
            self.stores.finish()
        return tuple(members)

    # Values ---------------------------------------------------------------------------------------

    def pieces(self, value: Value) -> RegisterTile:
        if value in self.sums and value not in self.env:
            tile = self.sums[value]
            self.products.finish(tile, self.builder.loc)
            self.env[value] = self.products.read(tile, self.builder.loc)
        if value not in self.env:
            self.env[value] = held(self.context.shapes.of(()), (value,))
        return self.env[value]

    def make(self, values: Iterable[Value]) -> None:
        """Compute before a region the tiles that it uses."""
        for value in values if self.env or self.sums else ():
            if value in self.env or value in self.sums:
                self.pieces(value).all()

    def scalar(self, value: Value) -> Value:
        """Return the value of a scalar: itself, unless it is the reduction of a tile."""
        return self.env[value].get(0, 0) if value in self.env else value

    # Ops ------------------------------------------------------------------------------------------

    def region(self, region: Region) -> None:
        outer, self.parts = self.parts, []
        known = {id(pieces) for pieces in self.env.values()}
        for op in region:
            self.builder.loc = op.loc
            self.op(op)
        for parts in self.parts:
            parts.finish()
        self.parts = outer
        for pieces in self.env.values():
            if id(pieces) not in known:
                pieces.tensor = None  # No use after a region reads the tensor.

    def op(self, op: Op) -> None:
        match op:
            case ops.TileInShared():
                self.tiles[op.result] = op
                clear_beyond(self.context, op)
            case ops.SubtilesInShared():
                self.parts.append(parts := EpilogueOperands(op, self.context))
                self.env |= dict(zip(op.result, parts.pieces, strict=True))
            case ops.ClusterAllgather():
                self.env |= self.context.shared_rows.exchanged(op, self.pieces)
            case ops.ClusterReduce():
                self.parts.append(exchange := ClusterExchange(op, self.context))
                whole = exchange.add([self.pieces(v) for v in op.sums])
                self.env |= dict(zip(op.result, whole, strict=True))
            case ops.AxisAt():
                known = {v: self.scalar(v) for v in operands(op)}
                self.context.begin_axis(replace_operands(op, known))
            case ops.Materialize():
                for value in op.values:
                    self.context.compute(self.pieces(value), op)
                if op.but_last:
                    self.products.start_turns(op.loc)
            case ops.Whole():
                pass  # `begin_whole`
            case ops.ElementsInShared():
                self.env[op.result] = read_elements(op, self.context, self.pieces)
                self.in_place.append(self.env[op.result])
            case ops.ValuesInShared():
                self.env[op.result] = read_values(op, self.context)
                self.in_place.append(self.env[op.result].least)
            case ops.Elect():
                with self.builder.region() as inner:
                    self.region(op.body)
                self.builder.add(with_fields(op, body=tuple(inner)))
            case ops.SumInTensor():
                reads = self.sums_read[op.state] = self.in_tensor_memory[op.result]
                self.env[op.result] = reads.begin(op, self.scalar)
            case ops.StoreInShared() | ops.StoreInTensor():
                write_to_slot(op, self.pieces(op.value), self.context)
                self.unpublished |= isinstance(op, ops.StoreInShared)
            case ops.SumToTensor():
                write_back(op, self.pieces(op.value), self.context)
            case ops.CommitProducts():
                self.products.commit(op.loc)
            case ops.Contract(in_turns=True):
                for pieces in self.in_place:
                    pieces.all()
                self.env[op.result] = self.products.in_turns(op, self.tiles)
                self.finish_reading()
            case ops.Contract():
                acc, context = self.addend(op.acc, op.result.type), self.context
                computed = elementwise.computed_operand(op, self.tiles, self.pieces, context)
                self.sums[op.result] = self.products.multiply(op, self.tiles, computed, acc)
            case ops.ForRange():
                self.products.settle(op.loc)
                self.loop(op)
            case ops.If():
                self.branch(op)
            case ops.Store():
                self.store(op)
            case ops.End():
                self.context.end(op)
            case ops.Block():
                self.context.block(op)
            case ops.RenameAxes():
                self.env[op.result] = self.pieces(op.x)
            case ops.Load() | ops.Lookup():
                self.env[op.result] = self.stores.turned.load(op, self.pieces)
            case _:
                self.plain(op)
                return
        self.remember(op)

    def remember(self, op: Op) -> None:
        if (made := results_of(op)) and made[0] in self.env:
            self.context.shared_rows.remember(op, self.env[made[0]], self.pieces)

    def plain(self, op: Op) -> None:
        """Lower an elementwise op, or an op of scalars."""
        made, swap = results_of(op), [v for v in operands(op) if v in self.env]
        if made and (swap or made[0].is_tile):
            self.env[made[0]] = elementwise.compute(op, self.context, self.pieces)
            self.remember(op)
            return
        if isinstance(op, ops.MbarrierArrive):
            if self.is_read(op.state):
                self.sums_read[op.state].finish()
                return
            self.finish_reading()
            self.products.give_back(op.state, op.loc)
        self.builder.add(replace_operands(op, {v: self.scalar(v) for v in swap}))

    def is_read(self, state: Value) -> bool:
        """Whether the last read of its accumulators releases a stage."""
        reads = self.sums_read.get(state)
        return reads is not None and reads.release is not None

    def finish_reading(self) -> None:
        """Finish all reads of stages, and fence all writes, before one is released: per warp, for
        TMA and for the tensor cores.
        """
        for pieces in self.in_place:
            pieces.all()
        if self.in_place or self.unpublished:
            self.context.publish(self.builder.loc)
        self.in_place, self.unpublished = [], False

    def addend(self, value: Value | None, kind: Type) -> Accumulated:
        """Return an accumulator: of earlier MMAs, empty for zeros, or with other values."""
        if value in self.sums:
            if [v.name for v in uses(self.context.partition.body)].count(value.name) > 1:
                self.pieces(value)  # Its registers are taken over.
            return self.sums[value]
        assert isinstance(kind, Tile)
        if value is None or value in self.zeros:
            return self.products.empty(kind, self.builder.loc)
        return self.products.join(self.pieces(value), self.builder.loc)

    def store(self, op: ops.Store) -> None:
        self.read_first(op)
        index = tuple(v if v.is_tile else self.scalar(v) for v in op.index)
        self.stores.store(with_fields(op, index=index), self.pieces)

    def read_first(self, op: Op) -> None:
        """Read the rest of the tiles of the tensors that an op overwrites."""
        read = [pieces for pieces in self.env.values() if pieces.tensor]
        tensors = stored_in(op) if read else ()
        for pieces in (pieces for pieces in read if pieces.tensor in tensors):
            pieces.all()

    # Regions --------------------------------------------------------------------------------------

    @contextmanager
    def inner(self) -> Generator[list[Op]]:
        """Collect the ops of a body; its tiles are not visible after it."""
        tiles = dict(self.context.tiles)
        with self.context.shared_rows.region(), self.builder.region() as members:
            yield members
        self.context.tiles = tiles

    def loop(self, op: ops.ForRange) -> None:
        b, lasts, of = self.builder, yielded(op.body), self.scalar
        op = with_fields(op, start=of(op.start), stop=of(op.stop), step=of(op.step))
        carries = zip(op.args, lasts, strict=True)
        summed = [last.is_tile and stays_with_products(op, arg, last) for arg, last in carries]
        # The state of the next iteration's stage, by the state that a stage is carried with.
        read = {inner.state for inner in op.body if isinstance(inner, ops.TileInShared)}
        slots = {arg: last for arg, last in zip(op.args, lasts, strict=True) if last in read}
        sums_only = {v for v, is_sum in zip(op.init, summed, strict=True) if is_sum}
        self.make(v for v in (*uses(op.body), *op.init) if v not in sums_only)
        self.read_first(op)
        names = zip(op.init, op.args, lasts, op.result, summed, strict=True)
        carried = [carried_variable(self, op, *each) for each in names]
        carried += [CarriedExchange.of(self, op.loc)] if exchanges(op.body) else []
        carried += [CarriedOperand.of(self, op, slot) for slot in (*slots,)[:1]]
        self.stores.begin_loop(op)
        with self.inner() as body:
            self.stores.begin_iteration(op)
            for var in carried:
                var.enter(self)
            self.products.begin([], slots.keys(), carried[-1].args if slots else ())
            self.region(op.body[:-1])
            self.products.settle(op.loc, {*slots.values()})
            handed = [v for var in carried for v in var.hand_on(self)]
            self.stores.settle(op.loc)
            b.add(ops.Yield(values=tuple(handed), loc=op.loc))
        self.stores.finish_loop(op)
        results = [var.leave(self) for var in carried]
        b.add(carrying(op, carried, results, tuple(body)))
        sums = [self.sums[v] for v, is_sum in zip(op.result, summed, strict=True) if is_sum]
        outside = {op.result[op.args.index(arg)] for arg in slots}
        self.products.begin(sums, outside, results[-1] if slots else ())
        for var in carried:
            var.after(self)

    def branch(self, op: ops.If) -> None:
        b = self.builder
        # MMAs stay in flight across a branch without MMAs.
        multiplies = any(isinstance(inner, (ops.Contract, ops.ForRange)) for inner in walk((op,)))
        if multiplies or not self.products.in_flight:
            self.products.settle(op.loc)
        self.make(used_inside(op))
        self.read_first(op)
        branches, rows, cond = list[Region](), self.context.shared_rows, self.scalar(op.cond)
        state = rows.next_state(op.loc) if exchanges((op,)) else None
        for region in (op.then, op.orelse):
            self.stores.boundary(op)
            with self.inner() as members:
                self.products.unfenced, rows.state = True, state or rows.state
                self.region(region[:-1])
                if multiplies:
                    self.products.settle(op.loc)
                handed: list[Value] = []
                for v in yielded(region):
                    handed += self.pieces(v).all() if v.is_tile else (self.scalar(v),)
                self.stores.settle(op.loc)
                handed += [rows.next_state(op.loc)] if state else []
                b.add(ops.Yield(values=tuple(handed), loc=op.loc))
            branches.append(tuple(members))
        self.products.unfenced = True
        self.stores.boundary(op)
        result = list[Value]()
        for made in op.result:
            if isinstance(made.type, Tile) and made.type.axes:
                shape, dtype = self.context.shapes.of(made.type.axes), made.type.dtype
                values = tuple(b.value(made.name, shape.piece(dtype, j)) for _, j in shape.places())
                self.env[made] = held(shape, values)
                result += values
            else:
                result.append(made)
        if state:
            rows.state = b.value("s", State())
            result.append(rows.state)
        then, orelse = branches
        b.add(with_fields(op, result=tuple(result), cond=cond, then=then, orelse=orelse))
