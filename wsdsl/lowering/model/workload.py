"""What one output tile asks of the card, by tile sizes: what `predict` and `explain` go by."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Mapping

from wsdsl.ir.global_memory import COPY_WORD, L2_LINE
from wsdsl.ir.op import Kernel, Value, once, results_of
from wsdsl.ir.swizzle import SWIZZLE_SPAN
from wsdsl.ir.tile_ops import Contract, ForEach, ForTiles, Load, Map, Store
from wsdsl.ir.types import Axis, Role, Tensor, Tile, Type
from wsdsl.lazy import cached_property
from wsdsl.lowering.axes import axes_of, output_nest, with_loops
from wsdsl.lowering.decode import decoded
from wsdsl.lowering.footprint import num_parts
from wsdsl.lowering.instruction_counts import instructions, of_load
from wsdsl.lowering.lanes import holds_vectors
from wsdsl.lowering.loop_stages import is_mask
from wsdsl.lowering.model.loading import crossing, memory_ns
from wsdsl.lowering.model.numbers import COPIED, COPIED_SINGLY, MADE_IN_SHARED
from wsdsl.lowering.model.plain import Plain
from wsdsl.lowering.model.runs import Runs
from wsdsl.lowering.model.steps import Step, Workload
from wsdsl.lowering.model.terms import (
    LoadTerm,
    ProductTerm,
    StoreTerm,
    elements,
    ends_with_a_tile,
    is_made,
)
from wsdsl.lowering.operand_lines import operand_lines
from wsdsl.lowering.parallel_reduction import least_slice
from wsdsl.lowering.passes.fit_last_tiles import units_within
from wsdsl.lowering.product_operands import computed_operands, multiplied, operand_scales
from wsdsl.lowering.slots import operand_slots
from wsdsl.lowering.split_k_rules import cut_loop
from wsdsl.lowering.turns import taken_in_turns
from wsdsl.rates import rates_of

FEW_COLUMNS = 64
"""So many may ride wgmma's N: then a tile has all of them."""
UNKNOWN_SIZE = 8192
"""A dimension's size where it is not known."""
MOSTLY = 0.8
"""Of all bytes: a tensor that has more comes from memory, and others from L2 beside it."""
Loop = ForTiles | ForEach


class Work:
    """A kernel taken apart once, to look at many schedules."""

    def __init__(
        self, kernel: Kernel, sizes: Mapping[str, int], singly: Collection[str] = ()
    ) -> None:
        """`singly`: tensors that threads copy element by element, beside those whose rows tell."""
        self.sizes, self.target = dict(kernel.sizes) | dict(sizes), kernel.target
        self.rates = rates_of(self.target)
        (nest, self.body), self.in_turns = output_nest(kernel), taken_in_turns(kernel)
        self.nest = list[Loop](nest)
        self.inside = list(with_loops(self.body))
        edges = (e for group in operand_slots(kernel) for e in group.operands)
        self.made_of = {e.load.result for e in edges if e.consumers[0] in ("decode", "compute")}
        through = multiplied(kernel) | self.made_of
        self.loads = [op for op, _ in self.inside if isinstance(op, Load) and op.result in through]
        self.scaled, self.copied = scales_products(kernel), kernel.unaligned
        self.padded, self.singly, self.within = kernel.padded, singly, units_within(kernel)
        self.every = kernel.schedule.precise_every if kernel.schedule else None
        self.roles: dict[str, Role] = {name: axis.role for name, axis in axes_of(kernel).items()}
        self.tensors = [p for p in kernel.params if isinstance(p.type, Tensor)]
        self.tensor_bytes = sum(self.num_bytes(p.type) for p in self.tensors)
        written = {op.tensor for op, _ in self.inside if isinstance(op, Store)}
        self.written_bytes = sum(self.num_bytes(v.type) for v in written)
        self._known: dict[object, Workload] = {}
        self._moves: dict[object, tuple[float, float]] = {}
        self._least: dict[object, tuple[int, float, float, float, int]] = {}
        self._take_apart(kernel)
        self.plain = Plain(kernel, self) if holds_vectors(kernel) else None

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
        self._known.clear()
        self._moves.clear()
        self._least.clear()

    def _take_apart(self, kernel: Kernel) -> None:
        found = dict.fromkeys(loops for _, loops in self.inside)
        place = {loops: i for i, loops in enumerate(found)}
        self.around = [[*map(self.walked, loops)] for loops in found]
        self.in_loop = [bool(loops) for loops in found]
        made = kernel.definers
        self.triangles = [
            [axis for loop in loops for axis in ends_with_a_tile(loop, made)] for loops in found
        ]
        self.outer = [*map(self.walked, self.nest)]
        self.products, self.stores = list[ProductTerm](), list[StoreTerm]()
        self.computed = list[tuple[int, float, tuple[str, ...]]]()
        self.load_terms = list[LoadTerm]()
        self.decoding = set[int]()
        self.held_bits = 0.0
        """That threads load by themselves for each element of an operand."""
        self.direct = list[tuple[int, float, tuple[str, ...]]]()
        runs = Runs(kernel)
        in_smem, shared = decoded(kernel).tiles, decoded(kernel).inside
        self.chained = {
            place[loops]
            for op, loops in self.inside
            if isinstance(op, Contract) and any(is_made(v, made) for v in (op.a, op.b))
        }
        for op, loops in self.inside:
            at = place[loops]
            if isinstance(op, Contract):
                computed = {*computed_operands(kernel, op)} - {*in_smem}
                own = bool(computed), kernel.target.has_tensor_memory
                self.products.append(ProductTerm.of(at, op, self.roles, *own))
                self.decoding |= {at} if computed and loops else set()
            elif isinstance(op, Store):
                self.stores.append(StoreTerm.of(at, op))
            elif op in self.loads:
                assert isinstance(op, Load)
                self.load_terms.append(self._load_term(at, op))
            elif isinstance(op, Load) and isinstance(op.result.type, Tile) and op.result.type.axes:
                kind = op.result.type
                if op.result in operand_scales(kernel):
                    continue
                self.direct.append((at, runs.bytes_of(op, self.size), kind.axes))
                if runs.summed & {*kind.axes}:
                    self.held_bits += kind.dtype.bits / runs.alike(op.result)
                if not kernel.of(Contract):
                    each = of_load(kind.dtype, holds_vectors(kernel))
                    self.computed.append((at, each, kind.axes))
            elif not is_mask(op, made) and (own := instructions(op)):
                each, axes = own
                (value,) = results_of(op)
                each *= MADE_IN_SHARED if value in shared else 1.0
                self.computed.append((at, each / runs.computed_at_once(value), axes))

    def _load_term(self, around: int, op: Load) -> LoadTerm:
        outer, within = [loop.index.type for loop in self.nest], self.within
        spans = [(a.name, self.size(a.dim), a in outer, within.get(a.name, 0)) for a in op.axes]
        return LoadTerm(
            around=around,
            op=op,
            axes=tuple(a.name for a in op.axes),
            last=op.last,
            dtype=op.result.as_tile.dtype,
            role=self.roles[op.last.name] if op.last else "",
            spans=tuple(spans),
        )

    @cached_property
    def least_slice(self) -> int:
        return least_slice(self.body)

    @cached_property
    def cut(self) -> ForTiles | None:
        """The loop that could be cut into pieces."""
        return cut_loop(self.body)

    @cached_property
    def summed(self) -> list[tuple[str, ...]]:
        """The axes of its sums."""
        kinds = [value.type for value in self.cut.result] if self.cut else []
        return [kind.axes for kind in kinds if isinstance(kind, Tile)]

    @cached_property
    def columns(self) -> dict[str, int]:
        """How many columns the output has, by axis."""
        axes = (loop.index.type for loop in self.nest if isinstance(loop, ForTiles))
        own = (a for a in axes if isinstance(a, Axis) and self.roles[a.name] == "columns")
        return {a.name: self.size(a.dim) for a in own}

    @cached_property
    def few_columns(self) -> bool:
        """Whether tiles share nothing but a small operand, if they are as wide as the output is."""
        return 0 < max(self.columns.values(), default=0) <= FEW_COLUMNS

    @cached_property
    def thin(self) -> bool:
        """Whether the output has so few rows or columns that each operand along the other side is
        loaded once, and is all there is to load: memory is the limit.
        """
        axes = (loop.index.type for loop in self.nest if isinstance(loop, ForTiles))
        known = (self.sizes.get(a.dim, 0) for a in axes if isinstance(a, Axis))
        return any(0 < size <= FEW_COLUMNS for size in known)

    @cached_property
    def sized(self) -> bool:
        """Whether the sizes of all dimensions of the output and the contraction are known."""
        loops = (*self.nest, *(() if self.cut is None else (self.cut,)))
        return all(loop.dim in self.sizes for loop in loops)

    def size(self, dim: str | int) -> int:
        return dim if isinstance(dim, int) else self.sizes.get(dim, UNKNOWN_SIZE)

    def trips(self, loop: Loop, tile: Mapping[str, int]) -> int:
        return _trips(self.walked(loop), tile)

    def num_tiles(self, tile: Mapping[str, int]) -> int:
        return math.prod([_trips(walked, tile) for walked in self.outer])

    def least(self, tile: Mapping[str, int]) -> tuple[int, float, float, float, int]:
        """Tiles, and of each: cycles of the tensor cores in loops, bytes that at the least are
        loaded there, bytes that are stored behind them, and sums. Kept, as `under` is.
        """
        asked = tuple(tile.values())
        if asked not in self._least:
            times = [self._times(n, tile) if held else 0 for n, held in enumerate(self.in_loop)]
            products = loaded = stored = 0.0
            for product in self.products:
                if num := times[product.around]:
                    volume = elements(product.axes, tile)
                    products += num * product.cycles(volume, tile, self.rates)
            for load in self.load_terms:
                loaded += times[load.around] * elements(load.axes, tile) * load.dtype.bits / 8
            for store in (s for s in self.stores if not self.in_loop[s.around]):
                stored += elements(store.axes, tile) * store.bits / 8
            own = products, loaded, stored, sum([elements(axes, tile) for axes in self.summed])
            self._least[asked] = self.num_tiles(tile), *own
        return self._least[asked]

    def _times(self, around: int, tile: Mapping[str, int]) -> float:
        """A tile goes through these loops."""
        trips = math.prod([_trips(walked, tile) for walked in self.around[around]])
        for axis in self.triangles[around]:
            places = self.places(axis, tile)
            trips *= (places + 1) / (2 * places)
        return trips

    def places(self, axis: str, tile: Mapping[str, int]) -> int:
        """Tiles along it."""
        return next((_trips(w, tile) for w in self.outer if w[0] == axis), 1)

    @cached_property
    def least_memory_cycles(self) -> float:
        """In which the tensors are read and written once."""
        least = memory_ns(self.rates, self.tensor_bytes, self.written_bytes)
        return least * self.rates.tensor_smem_clock

    def walked(self, loop: Loop) -> tuple[str, int]:
        """By which axis ("" if by none), and how much."""
        own = loop.index.type.name if isinstance(loop.index.type, Axis) else ""
        return loop.index.name if loop == self.in_turns else own, self.size(loop.dim)

    def under(
        self,
        tile: Mapping[str, int],
        cluster: Mapping[str, int] | None = None,
        together: Mapping[str, int] | None = None,
    ) -> Workload:
        """`tile`: elements along every axis; `cluster`: CTAs of a cluster along some of the output,
        launched even where no tile is left for them; `together`: that load for each other.
        """
        given = tile, cluster or {}, together or {}
        asked = tuple([tuple(sizes.items()) for sizes in given])
        if asked not in self._known:
            self._known[asked] = self._under(*given)
        return self._known[asked]

    def _under(
        self, tile: Mapping[str, int], cluster: Mapping[str, int], together: Mapping[str, int]
    ) -> Workload:
        times = [self._times(n, tile) for n in range(len(self.around))]
        outer = [_trips(walked, tile) for walked in self.outer]
        asked: dict[str, dict[int, float]] = defaultdict(lambda: defaultdict(float))
        cold_bytes = plain_bytes = 0.0
        operations = promoted = further = 0
        for product in self.products:
            num, volume = times[product.around], elements(product.axes, tile)
            asked["tensor"][product.around] += product.cycles(volume, tile, self.rates)
            asked["read"][product.around] += product.read_bytes(volume, tile)
            operations += num * 2 * volume
            if product.op.acc is None and product.around not in self.chained:
                promoted += num
                further += num * (num_parts(product.op, tile, self.every) - 1)
        for store in self.stores:
            asked["stored"][store.around] += elements(store.axes, tile) * store.bits / 8
        for around, each, axes in self.computed:
            asked["instructions"][around] += each * elements(axes, tile)
        for around, width, axes in self.direct:
            asked["direct"][around] += width * elements(axes, tile)
        for load in self.load_terms:
            num = times[load.around]
            moved, loaded = self.moved(load, tile, together)
            asked["loaded"][load.around] += loaded
            plain_bytes += num * moved
            cold_bytes += num * loaded * self.coldness[load.op.result]
        steps = tuple(
            Step(num, in_loop=self.in_loop[i], chained=i in self.chained,
                 decodes=i in self.decoding - self.chained,
                 **{what: held[i] for what, held in asked.items() if i in held})
            for i, num in enumerate(times)
        )  # fmt: skip
        columns = [a for axes in self.summed[:1] for a in axes if self.roles[a] == "columns"]
        operand_bytes = sum(step.times * step.loaded for step in steps)
        last = self.outer[-1][0] if self.outer else ""
        uneven = self.places(last, tile) if any(last in axes for axes in self.triangles) else 1
        launched = (self._launched(*pair, cluster) for pair in zip(self.nest, outer, strict=True))
        return Workload(
            target=self.target,
            rates=self.rates,
            steps=steps,
            tiles=math.prod(launched),
            product_cycles=sum(step.times * step.tensor for step in steps),
            operations=operations,
            operand_bytes=operand_bytes,
            crossing=operand_bytes / max(1.0, plain_bytes),
            cold_bytes=cold_bytes,
            tensor_bytes=self.tensor_bytes,
            written_bytes=self.written_bytes,
            promoted=promoted,
            further_parts=further,
            scaled=self.scaled,
            rows=max((tile[a] for a, role in self.roles.items() if role == "rows"), default=0),
            depth=self.trips(self.cut, tile) if self.cut else 1,
            sums=sum(elements(axes, tile) for axes in self.summed),
            columns=sum(tile[a] for a in columns),
            least_slice=self.least_slice,
            few_columns=self.few_columns and all(tile[a] >= n for a, n in self.columns.items()),
            uneven=uneven,
        )

    def _launched(self, loop: Loop, trips: int, cluster: Mapping[str, int]) -> int:
        along = cluster.get(self.walked(loop)[0], 1)
        return -(-trips // along) * along

    @cached_property
    def coldness(self) -> dict[Value, float]:
        """Of each load: 0 where its tensor has up to `MOSTLY` of the bytes of all that are loaded
        from, 1 where it has all of them.
        """
        held = {op.result: self.num_bytes(op.tensor.type) for op in self.loads}
        total = max(1.0, sum(held.values()))
        return {v: max(0.0, own / total - MOSTLY) / (1 - MOSTLY) for v, own in held.items()}

    def moved(
        self, load: LoadTerm, tile: Mapping[str, int], together: Mapping[str, int]
    ) -> tuple[float, float]:
        """Bytes of a tile, and as many as would come in the time that they take. Kept: tiles that
        differ along other axes ask for the same.
        """
        asked = load, tuple([tile[a] for a in load.axes]), tuple(together.items())
        if asked not in self._moves:
            moved = load.moved_bytes(tile) + load.beyond(tile) * load.dtype.bits / 16
            self._moves[asked] = moved, moved * self._crossing(load, tile, together)
        return self._moves[asked]

    def _crossing(
        self, load: LoadTerm, tile: Mapping[str, int], together: Mapping[str, int]
    ) -> float:
        """How much longer that takes, if sizes are known, since lines cross those of L2; or since
        threads copy them.
        """
        dtype, last, tensor = load.dtype, load.last, load.op.tensor
        if tensor.name in self.copied:
            odd = dtype.size(self.size(tensor.as_tensor.dims[-1])) % COPY_WORD
            return COPIED_SINGLY if odd or tensor.name in self.singly else COPIED
        known = last is not None and (isinstance(last.dim, int) or last.dim in self.sizes)
        if last is None or not known or load.op.packed or tensor.name in self.padded:
            return 1.0
        role, size, apart = load.role, self.size(last.dim), tile[last.name]
        line = SWIZZLE_SPAN[operand_lines(apart, dtype, role)[0]]
        row, apart = dtype.size(size), dtype.size(apart if apart < size else 0)
        offsets = row % L2_LINE, apart % L2_LINE
        longer = crossing(self.rates, *offsets, line, not role)
        copied = load.loaded_by(tile, together)
        # Where it is tiles by columns alone that begin amid lines, nothing is gained by it.
        if not role or row % L2_LINE:
            longer = max(1.0, longer / copied)
        return longer

    def num_bytes(self, kind: Type) -> float:
        assert isinstance(kind, Tensor)
        return math.prod(self.size(d) for d in kind.dims) * kind.dtype.bits / 8


def _trips(walked: tuple[str, int], tile: Mapping[str, int]) -> int:
    axis, size = walked
    return -(-size // max(1, tile.get(axis, 1))) if axis else size


@once
def scales_products(kernel: Kernel) -> bool:
    """Whether products are multiplied before they are summed."""
    products = {op.result for op in kernel.ops if isinstance(op, Contract)}
    return any(
        isinstance(op, Map) and op.fn in ("fma", "mul") and bool(products & {*op.args})
        for op in kernel.ops
    )
