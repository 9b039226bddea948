"""What one output tile asks of the card, by tile sizes: what `predict` and `explain` go by."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from wsdsl.ir.op import Kernel, Value, once, results_of
from wsdsl.ir.tile_ops import Contract, ForEach, ForTiles, Load, Map, Store
from wsdsl.ir.types import Axis, Role, Tensor, Tile, Type
from wsdsl.lazy import cached_property
from wsdsl.lowering.axes import axes_of, output_nest, with_loops
from wsdsl.lowering.cooperation import cluster_along
from wsdsl.lowering.cta_pairs import PAIR, in_pairs
from wsdsl.lowering.decode import decoded
from wsdsl.lowering.footprint import num_parts
from wsdsl.lowering.instruction_counts import instructions, of_load
from wsdsl.lowering.lanes import holds_vectors
from wsdsl.lowering.loop_stages import is_mask
from wsdsl.lowering.model.loading import memory_ns
from wsdsl.lowering.model.numbers import MADE_IN_SHARED
from wsdsl.lowering.model.plain import Plain
from wsdsl.lowering.model.runs import Runs
from wsdsl.lowering.model.steps import Step, Workload
from wsdsl.lowering.model.terms import (
    Amount,
    LoadTerm,
    ProductTerm,
    Sizes,
    Walked,
    elements,
    ends_with_a_tile,
    total,
    trips,
)
from wsdsl.lowering.parallel_reduction import least_slice
from wsdsl.lowering.passes.fit_last_tiles import units_within
from wsdsl.lowering.product_operands import (
    computed_operands,
    is_of_product,
    multiplied,
    operand_scales,
)
from wsdsl.lowering.slots import operand_slots
from wsdsl.lowering.split_k_rules import cut_loop
from wsdsl.lowering.turns import taken_in_turns
from wsdsl.rates import rates_of
from wsdsl.schedule import Schedule

FEW_COLUMNS = 64
"""So many may ride wgmma's N: then a tile has all of them."""
UNKNOWN_SIZE = 8192
"""A dimension's size where it is not known."""
MOSTLY = 0.8
"""Of all bytes: a tensor that has more comes from memory, and others from L2 beside it."""
Loop = ForTiles | ForEach


@dataclass(eq=False)
class Body:
    """What stands in the same loops of a tile. `halved`: axes of which a tile ends where one of the
    loops does, so that it goes half as far in the mean.
    """

    loops: tuple[Walked, ...]
    halved: tuple[str, ...]
    chained: bool = False
    decodes: bool = False
    products: list[ProductTerm] = field(default_factory=list[ProductTerm])
    loads: list[LoadTerm] = field(default_factory=list[LoadTerm])
    instructions: list[Amount] = field(default_factory=list[Amount])
    direct: list[Amount] = field(default_factory=list[Amount])
    stored: list[Amount] = field(default_factory=list[Amount])


class Work:
    """A kernel taken apart once, to look at many schedules."""

    def __init__(
        self, kernel: Kernel, sizes: Mapping[str, int], singly: Collection[str] = ()
    ) -> None:
        """`singly`: tensors that threads copy element by element, beside those whose rows tell."""
        self.kernel, self.sizes = kernel, dict(kernel.sizes) | dict(sizes)
        self.target, self.rates = kernel.target, rates_of(kernel.target)
        self.clock, self.roles = self.rates.tensor_smem_clock, _roles(kernel)
        (nest, self.body), self.in_turns = output_nest(kernel), taken_in_turns(kernel)
        self.nest, self.cut = list[Loop](nest), cut_loop(self.body)
        self.inside = list(with_loops(self.body))
        self._measure()
        edges = (e for group in operand_slots(kernel) for e in group.operands)
        self.made_of = {e.load.result for e in edges if e.consumers[0] in ("decode", "compute")}
        through = multiplied(kernel) | self.made_of
        self.loads = [op for op, _ in self.inside if isinstance(op, Load) and op.result in through]
        self.scaled, self.within = scales_products(kernel), units_within(kernel)
        self.copied, self.padded, self.singly = kernel.unaligned, kernel.padded, singly
        self.every = kernel.schedule.precise_every if kernel.schedule else None
        self.bodies = self._bodies()
        self.products = [term for body in self.bodies for term in body.products]
        self.load_terms = [term for body in self.bodies for term in body.loads]
        self.decoding = any(body.decodes for body in self.bodies)
        self.uneven_axes = {axis for body in self.bodies for axis in body.halved}
        self.plain = Plain(self) if holds_vectors(kernel) else None
        self.forget()

    def _measure(self) -> None:
        """What sizes alone say."""
        axes = [v.type for v in (loop.index for loop in self.nest if isinstance(loop, ForTiles))]
        tiled = [axis for axis in axes if isinstance(axis, Axis)]
        loops = (*self.nest, self.cut) if self.cut else self.nest
        self.sized = all(loop.dim in self.sizes for loop in loops)
        """Whether the sizes of all dimensions of the output and the contraction are known."""
        self.columns = {a.name: self.size(a.dim) for a in tiled if self.roles[a.name] == "columns"}
        """How many columns the output has, by axis."""
        self.few_columns = 0 < max(self.columns.values(), default=0) <= FEW_COLUMNS
        """Whether tiles share nothing but a small operand, if they are as wide as the output is."""
        self.thin = any(0 < self.sizes.get(a.dim, 0) <= FEW_COLUMNS for a in tiled)
        """Whether the output has so few rows or columns that each operand along the other side is
        loaded once, and is all there is to load: memory is the limit."""
        tensors = (p.type for p in self.kernel.params if isinstance(p.type, Tensor))
        self.tensor_bytes = sum(map(self.num_bytes, tensors))
        written = {op.tensor for op, _ in self.inside if isinstance(op, Store)}
        self.written_bytes = sum(self.num_bytes(v.type) for v in written)
        least = memory_ns(self.rates, self.tensor_bytes, self.written_bytes)
        self.least_memory_cycles = least * self.clock
        """In which the tensors are read and written once."""
        self.outer = [*map(self.walked, self.nest)]
        kinds = [value.type for value in self.cut.result] if self.cut else []
        self.summed = [kind.axes for kind in kinds if isinstance(kind, Tile)]

    @classmethod
    def of(cls, kernel: Kernel, sizes: Mapping[str, int]) -> Work:
        """The same every time: it is kept with the kernel."""
        kept: dict[object, Work] = kernel.__dict__.setdefault("_work", {})
        asked = tuple(sizes.items())
        if asked not in kept:
            kept[asked] = cls(kernel, sizes)
        return kept[asked]

    def forget(self) -> None:
        """What was found out under tile sizes, where the model's numbers change."""
        self._known: dict[object, Workload] = {}
        self._least: dict[object, tuple[int, float, float, float, int]] = {}
        for term in self.load_terms:
            term.forget()

    def _bodies(self) -> list[Body]:
        kernel, made, runs = self.kernel, self.kernel.definers, Runs(self.kernel)
        in_smem, shared = decoded(kernel).tiles, decoded(kernel).inside
        self.held_bits = 0.0
        """That threads load by themselves for each element of an operand."""
        found = dict[tuple[Loop, ...], Body]()
        for op, loops in self.inside:
            if loops not in found:
                halved = [axis for loop in loops for axis in ends_with_a_tile(loop, made)]
                found[loops] = Body(tuple(map(self.walked, loops)), tuple(halved))
            body = found[loops]
            if isinstance(op, Contract):
                computed = {*computed_operands(kernel, op)} - {*in_smem}
                body.products.append(ProductTerm(self, op, in_registers=bool(computed)))
                body.chained |= any(is_of_product(v, made) for v in (op.a, op.b))
                body.decodes |= bool(computed and loops)
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
                each *= MADE_IN_SHARED if value in shared else 1.0
                body.instructions.append((each / runs.computed_at_once(value), axes))
        return [*found.values()]

    @cached_property
    def least_slice(self) -> int:
        """Columns, where pieces finish slices of a tile."""
        return least_slice(self.body)

    @cached_property
    def coldness(self) -> dict[Value, float]:
        """Of each load: 0 where its tensor has up to `MOSTLY` of the bytes of all that are loaded
        from, 1 where it has all of them.
        """
        held = {op.result: self.num_bytes(op.tensor.type) for op in self.loads}
        whole = max(1.0, sum(held.values()))
        return {v: max(0.0, own / whole - MOSTLY) / (1 - MOSTLY) for v, own in held.items()}

    def knows(self, dim: str | int) -> bool:
        return isinstance(dim, int) or dim in self.sizes

    def size(self, dim: str | int) -> int:
        return dim if isinstance(dim, int) else self.sizes.get(dim, UNKNOWN_SIZE)

    def num_bytes(self, kind: Type) -> float:
        assert isinstance(kind, Tensor)
        return math.prod(self.size(d) for d in kind.dims) * kind.dtype.bits / 8

    def walked(self, loop: Loop) -> Walked:
        own = loop.index.type.name if isinstance(loop.index.type, Axis) else ""
        return loop.index.name if loop == self.in_turns else own, self.size(loop.dim)

    def trips(self, loop: Loop, tile: Sizes) -> int:
        return trips(self.walked(loop), tile)

    def num_tiles(self, tile: Sizes) -> int:
        return math.prod([trips(walked, tile) for walked in self.outer])

    def places(self, axis: str, tile: Sizes) -> int:
        """Tiles along it."""
        return next((trips(w, tile) for w in self.outer if w[0] == axis), 1)

    def _times(self, body: Body, tile: Sizes) -> float:
        """A tile goes through its loops."""
        found = math.prod([trips(walked, tile) for walked in body.loops])
        for axis in body.halved:
            places = self.places(axis, tile)
            found *= (places + 1) / (2 * places)
        return found

    def least(self, tile: Sizes) -> tuple[int, float, float, float, int]:
        """Tiles, and of each: cycles of the tensor cores in loops, bytes that at the least are
        loaded there, bytes that are stored behind them, and sums. Kept, as `under` is.
        """
        asked = tuple(tile.values())
        if asked not in self._least:
            products = loaded = stored = 0.0
            for body in self.bodies:
                if not body.loops:
                    stored += total(body.stored, tile)
                elif body.products or body.loads:
                    times = self._times(body, tile)
                    products += times * sum([p.asks(tile, self.rates)[0] for p in body.products])
                    loaded += times * sum([load.bytes(tile) for load in body.loads])
            sums = sum([elements(axes, tile) for axes in self.summed])
            self._least[asked] = self.num_tiles(tile), products, loaded, stored, sums
        return self._least[asked]

    def under(self, tile: Sizes, schedule: Schedule | None = None) -> Workload:
        """Of CTAs by themselves, or in the schedule's clusters, which are launched even where no
        tile is left for all of one.
        """
        cluster = self.clustered(schedule)
        group = PAIR if in_pairs(schedule) else 1
        alone = group > 1 or (schedule is not None and schedule.multicast is False)
        together = {} if alone else cluster
        asked = *tile.items(), group, *cluster.items(), *together.items()
        if asked not in self._known:
            self._known[asked] = self._under(tile, cluster, together, group)
        return self._known[asked]

    def clustered(self, schedule: Schedule | None) -> dict[str, int]:
        """CTAs of a cluster, by axis of the output."""
        if not schedule or not schedule.cluster:
            return {}
        axes = (loop.index.type for loop in self.nest)
        found = {a.name: cluster_along(schedule, a.name) for a in axes if isinstance(a, Axis)}
        return {name: num for name, num in found.items() if num > 1}

    def _under(self, tile: Sizes, cluster: Sizes, together: Sizes, group: int) -> Workload:
        steps = [self._step(body, tile, together, group) for body in self.bodies]
        tiles, cold = 1, 0.0
        for walked in self.outer:
            along = cluster.get(walked[0], 1)
            tiles *= -(-trips(walked, tile) // along) * along
        for body, step in zip(self.bodies, steps, strict=True):
            for load in body.loads:
                loaded = load.moved(tile, together)[1]
                cold += step.times * loaded * self.coldness[load.op.result]
        columns = [a for axes in self.summed[:1] for a in axes if self.roles[a] == "columns"]
        last = self.outer[-1][0] if self.outer else ""
        return Workload(
            work=self,
            steps=tuple(steps),
            tiles=tiles,
            depth=self.trips(self.cut, tile) if self.cut else 1,
            sums=sum(elements(axes, tile) for axes in self.summed),
            columns=sum(tile[a] for a in columns),
            rows=max((tile[a] for a, role in self.roles.items() if role == "rows"), default=0),
            cold_bytes=cold,
            few_columns=self.few_columns and all(tile[a] >= n for a, n in self.columns.items()),
            uneven=self.places(last, tile) if last in self.uneven_axes else 1,
        )

    def _step(self, body: Body, tile: Sizes, together: Sizes, group: int) -> Step:
        step = Step(self._times(body, tile), bool(body.loops), body.chained)
        step.decodes = body.decodes and not body.chained
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
            share = 1 / group if load.is_halved else 1.0
            step.moved += share * moved
            step.loaded += share * loaded
        step.instructions = total(body.instructions, tile)
        step.direct, step.stored = total(body.direct, tile), total(body.stored, tile)
        return step


def _roles(kernel: Kernel) -> dict[str, Role]:
    return {name: axis.role for name, axis in axes_of(kernel).items()}


@once
def scales_products(kernel: Kernel) -> bool:
    """Whether products are multiplied before they are summed."""
    products = {op.result for op in kernel.ops if isinstance(op, Contract)}
    return any(
        isinstance(op, Map) and op.fn in ("fma", "mul") and bool(products & {*op.args})
        for op in kernel.ops
    )
