"""What one output tile asks of the card, by tile sizes: what `predict` and `explain` go by."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from wsdsl.ir.op import Kernel, Makers, once, results_of
from wsdsl.ir.ops import Contract, DimLoop, End, ForTiles, Index, Load, Map, Store
from wsdsl.ir.types import Axis, Sizes, Tensor, Tile
from wsdsl.lowering.axes import with_loops
from wsdsl.lowering.buffer_assignment import operand_slots
from wsdsl.lowering.cooperation import cluster_along
from wsdsl.lowering.cost_model import constants
from wsdsl.lowering.cost_model.sized_kernel import (
    Amount,
    SizedKernel,
    Walked,
    elements,
    total,
    trips,
)
from wsdsl.lowering.cost_model.terms import LoadTerm, ProductTerm, Runs
from wsdsl.lowering.cta_pairs import PAIR, in_pairs
from wsdsl.lowering.decode import decoded
from wsdsl.lowering.footprint import num_parts
from wsdsl.lowering.instruction_counts import instructions, of_load
from wsdsl.lowering.loop_stages import is_mask
from wsdsl.lowering.parallel_reduction import least_slice
from wsdsl.lowering.product_operands import multiplied, of_product, operand_scales
from wsdsl.lowering.register_layout import holds_vectors
from wsdsl.lowering.split_k_rules import cut_loop
from wsdsl.rates import Rates
from wsdsl.schedule import Schedule

FEW_COLUMNS = 64
"""The most columns that may be along the MMA's N: then a tile has all of them."""
MOSTLY = 0.8
"""Of all bytes: a tensor that has more comes from memory, and others from L2 beside it."""


@dataclass(slots=True, eq=False)
class Step:
    """What one iteration of a loop asks of an SM, but for loops in it; outside of loops, once."""

    times: float  # Iterations for a tile.
    in_loop: bool
    chained: bool  # An operand is made of another product's results, which runs beside them.
    decodes: bool  # Consumers compute a product's operand of what is loaded.
    tensor: float = 0.0  # Cycles of the tensor cores, ...
    read: float = 0.0  # ... bytes that they read of SMEM, ...
    operations: float = 0.0  # ... and what they multiply and add.
    promoted: float = 0.0  # Products that are read at once, ...
    further: float = 0.0  # ... and parts of these, but the first of each.
    instructions: float = 0.0  # Of all threads.
    moved: float = 0.0  # Bytes that come through slots, ...
    loaded: float = 0.0  # ... and as many aligned ones as would come in the time.
    cold: float = 0.0  # Of these those of the tensor that nearly all comes from, as far as it does.
    direct: float = 0.0  # Bytes that threads load by themselves, ...
    stored: float = 0.0  # ... and that are stored.


@dataclass(eq=False)
class Workload:
    """All tiles of a size, and what each asks."""

    work: Work
    tile: Sizes
    steps: tuple[Step, ...]
    tiles: int
    depth: int  # Tiles of the contraction, where it can be cut.
    is_shared_out: bool = False  # It is what each CTA of a cluster has that share a contraction.

    def __post_init__(self) -> None:
        work, tile = self.work, self.tile
        self.target, self.rates = work.target, work.rates
        # Cycles a nanosecond in which all is told: of SMs whose tensor cores are busy.
        self.clock = work.clock
        self.product_cycles, self.operand_bytes = self.in_all("tensor"), self.in_all("loaded")
        # What loads ask of L2 while the tensor cores are busy.
        self.bytes_per_cycle = self.operand_bytes / max(1.0, self.product_cycles)
        # By how much longer they take to load, since their lines cross those of L2.
        self.crossing = self.operand_bytes / max(1.0, self.in_all("moved"))
        self.cold_bytes = self.in_all("cold")
        self.promoted, self.further_parts = self.in_all("promoted"), self.in_all("further")
        self.decodes = any(step.decodes for step in self.steps)
        self.sums = sum(elements(axes, tile) for axes in work.summed)
        self.columns = sum(tile[a] for a in work.summed_columns)
        self.rows = max([tile[a] for a in work.rows], default=0)
        # Whether a tile has all columns of the output, and these are few.
        self.few_columns = work.few_columns and all(tile[a] >= n for a, n in work.columns.items())
        # Tiles that follow each other, and take from one part of as many to all of the time.
        last = work.outer[-1][0] if work.outer else ""
        self.uneven = work.places(last, tile) if last in work.uneven_axes else 1
        self.start = start_cycles(self.rates, self.product_cycles > 0)
        # In ping-pong, until the tensor cores have the next tile: they are handed over, and so is
        # the first of its slots.
        self.turn = 2 * self.rates.mbarrier_cycles

    def in_all(self, what: str) -> float:
        """Of a tile."""
        return sum([step.times * getattr(step, what) for step in self.steps])

    def shared_out(self, sharing: int) -> Workload:
        """Of each CTA, where so many share the contraction of a tile: as if tiles were more."""
        depth, tiles = -(-self.depth // sharing), self.tiles * sharing
        part = depth / self.depth if self.depth else 1.0

        def own(step: Step) -> Step:
            if step.in_loop:
                # What comes again from memory counts as if each had all of it.
                return replace(step, times=step.times * part, cold=step.cold / part)
            computing, stored = step.instructions / sharing, step.stored / sharing
            return replace(step, instructions=computing, stored=stored)

        steps = tuple(map(own, self.steps))
        return replace(self, steps=steps, tiles=tiles, depth=depth, is_shared_out=True)


def start_cycles(rates: Rates, has_products: bool) -> float:
    """Until a kernel that is let start early has begun; and, for products, until TMA knows how a
    tensor lies, and the first operands have come."""
    start = rates.dependent_kernel_ns * rates.tensor_smem_clock
    first = rates.dram_loaded_ns * rates.tensor_smem_clock + 2 * rates.mbarrier_cycles
    return start + rates.tma_l2_cycles + first if has_products else start


class Body:
    """What stands in the same loops of a tile."""

    def __init__(self, loops: Sequence[Walked], halved: Sequence[str]) -> None:
        """`halved`: axes of which a tile ends where a loop does, which goes half as far then."""
        self.loops, self.halved, self.chained, self.decodes = loops, halved, False, False
        self.products, self.loads = list[ProductTerm](), list[LoadTerm]()
        self.instructions, self.direct, self.stored = list[Amount](), list[Amount](), list[Amount]()


class Work(SizedKernel):
    """A kernel taken apart once, to look at many schedules."""

    def __init__(
        self,
        kernel: Kernel,
        sizes: Sizes,
        singly: Collection[str] = (),
        ragged: Mapping[str, int] = {},
    ) -> None:
        super().__init__(kernel, sizes, singly, ragged)
        self.clock = self.rates.tensor_smem_clock
        self.rows = [name for name, role in self.roles.items() if role == "rows"]
        self.cut, self.least_slice = cut_loop(self.body), least_slice(self.body)
        self.inside = list(with_loops(self.body))
        self._measure()
        edges = (e for group in operand_slots(kernel) for e in group.operands)
        self.made_of = {e.load.result for e in edges if e.consumers[0] in ("decode", "compute")}
        through = multiplied(kernel) | self.made_of
        self.loads = [op for op, _ in self.inside if isinstance(op, Load) and op.result in through]
        held = {op.result: self.num_bytes(op.tensor.as_tensor) for op in self.loads}
        whole = max(1.0, sum(held.values()))
        self.coldness = {v: max(0.0, n / whole - MOSTLY) / (1 - MOSTLY) for v, n in held.items()}
        """Of each load: 0 where its tensor has up to `MOSTLY` of the bytes of all, 1 of all."""
        self.scaled = scales_products(kernel)
        self.every = kernel.schedule.mma_promotion_interval if kernel.schedule else None
        self.bodies = self._bodies()
        self.products = [term for body in self.bodies for term in body.products]
        self.load_terms = [term for body in self.bodies for term in body.loads]
        self.decoding = any(body.decodes for body in self.bodies)
        self.uneven_axes = {axis for body in self.bodies for axis in body.halved}
        self._known: dict[object, Workload] = {}
        self._least: dict[object, tuple[int, float, float, float, float, int]] = {}

    def _measure(self) -> None:
        """What sizes alone say."""
        walked = [(loop, loop.index.type) for loop in self.nest]
        self.axes = [axis for _, axis in walked if isinstance(axis, Axis)]
        tiled = [a for loop, a in walked if isinstance(loop, ForTiles) and isinstance(a, Axis)]
        loops = (*self.nest, self.cut) if self.cut else self.nest
        self.sized = all(loop.dim in self.sizes for loop in loops)
        """Whether the sizes of all dimensions of the output and the contraction are known."""
        self.columns = {a.name: self.size(a.dim) for a in tiled if self.roles[a.name] == "columns"}
        """How many columns the output has, by axis."""
        self.few_columns = 0 < max(self.columns.values(), default=0) <= FEW_COLUMNS
        """Whether tiles share nothing but a small operand, if they are as wide as the output is."""
        self.thin = any(0 < self.sizes.get(a.dim, 0) <= FEW_COLUMNS for a in tiled)
        """Whether the output has so few rows or columns that memory is the limit."""
        tensors = (p.type for p in self.kernel.params if isinstance(p.type, Tensor))
        self.tensor_bytes = sum(map(self.num_bytes, tensors))
        written = {op.tensor for op, _ in self.inside if isinstance(op, Store)}
        bytes_written = sum(self.num_bytes(v.as_tensor) for v in written)
        least = self.rates.dram_ns(self.tensor_bytes, bytes_written)
        self.least_memory_cycles = least * self.clock
        """In which the tensors are read and written once."""
        kinds = [value.type for value in self.cut.result] if self.cut else []
        self.summed = [kind.axes for kind in kinds if isinstance(kind, Tile)]
        """The axes of each of the sums, and of the first those along columns."""
        self.summed_columns = [a for s in self.summed[:1] for a in s if self.roles[a] == "columns"]

    @classmethod
    def of(cls, kernel: Kernel, sizes: Sizes) -> Work:
        """The same every time: it is kept with the kernel."""
        kept: dict[object, Work] = kernel.__dict__.setdefault("_work", {})
        asked = tuple(sizes.items())
        if asked not in kept:
            kept[asked] = cls(kernel, sizes)
        return kept[asked]

    def _bodies(self) -> list[Body]:
        kernel, made, runs = self.kernel, self.kernel.definers, Runs(self.kernel)
        self.held_bits, shared = 0.0, decoded(kernel).inside
        """That threads load by themselves for each element of an operand."""
        found = dict[tuple[DimLoop, ...], Body]()
        for op, loops in self.inside:
            if loops not in found:
                found[loops] = Body(tuple(map(self.walked, loops)), _halved(loops, made))
            body = found[loops]
            if isinstance(op, Contract):
                body.products.append(product := ProductTerm(self, op))
                body.chained |= any(of_product(v, made) for v in (op.a, op.b))
                body.decodes |= product.in_registers and bool(loops)
            elif isinstance(op, Store):
                body.stored.append((op.dtype.bits / 8, tuple(a.name for a in op.axes)))
            elif isinstance(op, Load) and op in self.loads:
                body.loads.append(LoadTerm(self, op))
            elif isinstance(op, Load) and isinstance(op.result.type, Tile) and op.result.type.axes:
                kind = op.result.type
                if op.result in operand_scales(kernel):
                    continue
                body.direct.append((runs.bytes_of(op, self.size), kind.axes))
                if runs.summed & {*kind.axes}:
                    self.held_bits += kind.dtype.bits / runs.alike(op.result)
                if not kernel.of(Contract):
                    each = of_load(kind.dtype, holds_vectors(kernel))
                    body.instructions.append((each, kind.axes))
            elif not is_mask(op, made) and (own := instructions(op)):
                (each, axes), (value,) = own, results_of(op)
                each *= constants.MADE_IN_SHARED if value in shared else 1.0
                body.instructions.append((each / runs.computed_at_once(value), axes))
        return [*found.values()]

    def _times(self, body: Body, tile: Sizes) -> float:
        """A tile goes through its loops."""
        places = [self.places(axis, tile) for axis in body.halved]
        return trips(body.loops, tile) * math.prod([(n + 1) / (2 * n) for n in places if n])

    def least(self, tile: Sizes) -> tuple[int, float, float, float, float, int]:
        """Tiles, and of each: cycles of the tensor cores in loops, and at the least the bytes that
        they read of SMEM, that are loaded, and that are stored behind loops; sums. Kept, as `under`
        is."""
        asked = tuple(tile.values())
        if asked not in self._least:
            products = read = loaded = stored = 0.0
            for body in self.bodies:
                if not body.loops:
                    stored += total(body.stored, tile)
                elif body.products or body.loads:
                    times = self._times(body, tile)
                    loaded += times * sum([load.bytes(tile) for load in body.loads])
                    for cycles, bytes in [p.asks(tile, self.rates) for p in body.products]:
                        products, read = products + times * cycles, read + times * bytes
            sums = sum([elements(axes, tile) for axes in self.summed])
            self._least[asked] = self.num_tiles(tile), products, read, loaded, stored, sums
        return self._least[asked]

    def under(self, tile: Sizes, schedule: Schedule | None = None) -> Workload:
        """Of CTAs by themselves, or in the schedule's clusters, which are launched whole."""
        cluster = self.clustered(schedule)
        group = PAIR if in_pairs(schedule) else 1
        alone = group > 1 or (schedule is not None and schedule.multicast is False)
        together = {} if alone else cluster
        asked = *tile.items(), group, *cluster.items(), *together.items()
        if asked not in self._known:
            steps = tuple([self._step(body, tile, together, group) for body in self.bodies])
            tiles, depth = 1, self.trips(self.cut, tile) if self.cut else 1
            for walked in self.outer:
                along = cluster.get(walked[0], 1)
                tiles *= -(-trips((walked,), tile) // along) * along
            self._known[asked] = Workload(self, tile, steps, tiles, depth)
        return self._known[asked]

    def clustered(self, schedule: Schedule | None) -> dict[str, int]:
        """CTAs of a cluster, by axis of the output."""
        if not schedule or not schedule.cluster:
            return {}
        found = {axis.name: cluster_along(schedule, axis.name) for axis in self.axes}
        return {name: num for name, num in found.items() if num > 1}

    def _step(self, body: Body, tile: Sizes, together: Sizes, group: int) -> Step:
        decodes = body.decodes and not body.chained
        step = Step(self._times(body, tile), bool(body.loops), body.chained, decodes)
        for product in body.products:
            cycles, read = product.asks(tile, self.rates, group)
            step.tensor += cycles
            step.read += read
            step.operations += 2 * elements(product.axes, tile)
            if product.op.acc is None and not body.chained:
                step.promoted += 1
                step.further += num_parts(product.op, tile, self.every) - 1
        for load in body.loads:
            moved, loaded = load.moved(tile, together)
            step.cold += loaded * self.coldness[load.op.result]
            share = 1 / group if load.is_halved else 1.0
            step.moved += share * moved
            step.loaded += share * loaded
        step.instructions = total(body.instructions, tile)
        step.direct, step.stored = total(body.direct, tile), total(body.stored, tile)
        return step


def _halved(loops: Sequence[DimLoop], made: Makers) -> list[str]:
    """Axes of which a tile ends where one of the loops does, or begins."""
    walked = [loop for loop in loops if isinstance(loop, ForTiles)]
    ops = [made.get(bound) for loop in walked for bound in (loop.start, loop.stop) if bound]
    axes = [op.axis.type for op in ops if isinstance(op, (End, Index))]
    return [*dict.fromkeys(axis.name for axis in axes if isinstance(axis, Axis))]


@once
def scales_products(kernel: Kernel) -> bool:
    """Whether products are multiplied before they are summed."""
    products = {op.result for op in kernel.of(Contract)}
    scaling = (op for op in kernel.of(Map) if op.fn in ("fma", "mul"))
    return any(products & {*op.args} for op in scaling)
