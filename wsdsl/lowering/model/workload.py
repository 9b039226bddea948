"""What one output tile asks of the card, by tile sizes: what `predict` and `explain` go by."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat

from wsdsl.ir.global_memory import COPY_WORD, L2_LINE
from wsdsl.ir.op import Kernel, Value, once
from wsdsl.ir.swizzle import SWIZZLE_SPAN
from wsdsl.ir.target import Target
from wsdsl.ir.tile_ops import Contract, ForEach, ForTiles, Load, Map, Store
from wsdsl.ir.types import Axis, Role, Tensor, Tile, Type
from wsdsl.lowering.axes import axes_of
from wsdsl.lowering.footprint import num_parts
from wsdsl.lowering.model.instructions import instructions
from wsdsl.lowering.model.lines import (
    COPIED,
    COPIED_SINGLY,
    MULTICAST_CROSSING,
    crossing,
)
from wsdsl.lowering.model.terms import LoadTerm, ProductTerm, StoreTerm, elements, last_axis
from wsdsl.lowering.operand_lines import operand_lines
from wsdsl.lowering.output_nest import output_nest, with_loops
from wsdsl.lowering.parallel_reduction import least_slice
from wsdsl.lowering.passes.fit_last_tiles import units_within
from wsdsl.lowering.product_operands import computed_operands, multiplied
from wsdsl.lowering.slots import operand_slots
from wsdsl.lowering.split_k_rules import cut_loop

FEW_COLUMNS = 64
"""So many may ride wgmma's N: then a tile has all of them."""
UNKNOWN_SIZE = 8192
"""A dimension's size where it is not known."""
WARM = 0.8
"""The share of all bytes up to which a tensor is taken to come to L2 as quickly as others do."""
COLD_FROM = 0.4
"""The `coldness` from which on loads run ahead by a slot more."""
ALL_BEYOND = 3.0
"""Bytes beyond the end of a tensor count so many times where no tile is without: 160 x 10240 x 8192
takes 66.6 us by 192 x 80, 192 x 10240 x 8192 49.6.
"""
ASKED_TOGETHER = 3
"""Of CTAs that want the same and are far apart, so many ask for it by themselves."""
Loop = ForTiles | ForEach


@dataclass(frozen=True)
class Workload:
    """Per output tile: cycles of the tensor cores, their multiplications and additions, bytes of
    operands that are loaded and that products read of SMEM, elements that are stored, instructions
    that compute them of the sums (`computed`, of all threads), products that are read at once
    (`promoted`), `rows`, and, where the contraction can be cut, tiles of it (`depth`), elements of
    the sums, and their columns; and of the whole problem: tiles, bytes of the tensors.
    """

    target: Target
    tiles: int
    product_cycles: float
    operations: int
    operand_bytes: float
    read_bytes: float
    stored_elements: float
    tensor_bytes: float
    computed: float = 0.0
    promoted: int = 0
    further_parts: int = 0
    """Of products that are promoted in parts, but the first of each."""
    scaled: bool = False
    """Whether products are multiplied before they are summed."""
    rows: int = 0
    depth: int = 1
    sums: int = 0
    columns: int = 0
    least_slice: int = 8
    """Of the columns, where pieces finish slices of a tile."""
    transposed_elements: float = 0.0
    """Of those that are stored."""
    split_rows: float = 0.0
    """Rows of results, of which every other tile's begin amid a sector of GMEM."""
    unfilled_elements: float = 0.0
    """That would fill the lines of the results that are stored, which end where the tile does."""
    overhang_bytes: float = 0.0
    """Of those that are loaded, beyond the end of a tensor, in the tile that reaches farthest."""
    overhang_bytes_cut: float = 0.0
    """The same of tiles that are cut: their last ones may not overlap those before."""
    cold_bytes: float = 0.0
    """Of those that are loaded, of the tensor that nearly all comes from, as far as it does."""
    own_bytes: float = 0.0
    """Of those that are loaded, what comes for this tile alone where CTAs are far apart."""
    crossing: float = 1.0
    """How much longer operands take to load, since their lines cross those of L2."""
    row_bytes: float = 0.0
    """Contiguous ones that a load takes at once, at the least."""
    few_columns: bool = False
    """Whether a tile has all columns of the output, and these are few."""
    thin: bool = False
    """Whether the output has few rows or columns, so that memory is the limit."""

    @property
    def slot_bytes(self) -> float:
        """That a step of the contraction loads."""
        return self.operand_bytes / max(1, self.depth)

    @property
    def bytes_per_cycle(self) -> float:
        """What the loads ask of L2 while the tensor cores are busy."""
        return self.operand_bytes / max(1.0, self.product_cycles)


class Work:
    """A kernel taken apart once, to look at many schedules."""

    def __init__(
        self, kernel: Kernel, sizes: Mapping[str, int], singly: Collection[str] = ()
    ) -> None:
        """`singly`: tensors that threads copy element by element, beside those whose rows tell."""
        self.sizes, self.target = dict(kernel.sizes) | dict(sizes), kernel.target
        nest, self.body = output_nest(kernel)
        self.nest: list[Loop] = list(nest)
        self.inside = list(with_loops(self.body))
        edges = (e for group in operand_slots(kernel) for e in group.operands)
        computed_from = {e.load.result for e in edges if e.consumers[0] in ("decode", "compute")}
        operands = multiplied(kernel) | computed_from
        self.loads = [op for op, _ in self.inside if isinstance(op, Load) and op.result in operands]
        self.computes = any(computed_operands(kernel, op) for op in kernel.of(Contract))
        """Whether operands are computed, which takes the consumers' time in each step."""
        self.scaled, self.copied = scales_products(kernel), kernel.unaligned
        self.padded, self.singly, self.within = kernel.padded, singly, units_within(kernel)
        self.every = kernel.schedule.precise_every if kernel.schedule else None
        self.roles: dict[str, Role] = {name: axis.role for name, axis in axes_of(kernel).items()}
        tensors = [p.type for p in kernel.params if isinstance(p.type, Tensor)]
        self.tensor_bytes = sum(map(self.num_bytes, tensors))
        self._known: dict[object, Workload] = {}
        self._take_apart()

    @classmethod
    def of(cls, kernel: Kernel, sizes: Mapping[str, int]) -> Work:
        """The same every time: it is kept with the kernel."""
        kept: dict[object, Work] = kernel.__dict__.setdefault("_work", {})
        asked = tuple(sizes.items())
        if asked not in kept:
            kept[asked] = cls(kernel, sizes)
        return kept[asked]

    def _take_apart(self) -> None:
        found = dict.fromkeys(loops for _, loops in self.inside)
        place = {loops: i for i, loops in enumerate(found)}
        self.around = [[*map(self._walked, loops)] for loops in found]
        self.outer = [*map(self._walked, self.nest)]
        self.products = list[ProductTerm]()
        self.stores = list[StoreTerm]()
        self.computed = list[tuple[int, float, tuple[str, ...]]]()
        self.load_terms = list[LoadTerm]()
        for op, loops in self.inside:
            at = place[loops]
            if isinstance(op, Contract):
                self.products.append(ProductTerm.of(at, op, self.roles))
            elif isinstance(op, Store):
                last = last_axis(op)
                size = self.size(last.dim) if last else 0
                self.stores.append(StoreTerm.of(at, op, self.roles, size))
            elif (own := instructions(op)) and (not loops or self.computes):
                self.computed.append((at, *own))
            if op in self.loads:
                assert isinstance(op, Load)
                self.load_terms.append(self._load_term(at, op))

    def _load_term(self, around: int, op: Load) -> LoadTerm:
        assert isinstance(op.result.type, Tile)
        axes = [v.type for v in op.index if isinstance(v.type, Axis)]
        outer, last = [loop.index.type for loop in self.nest], last_axis(op)
        spans = [(a.name, self.size(a.dim), a in outer, self.within.get(a.name, 0)) for a in axes]
        return LoadTerm(
            around=around,
            op=op,
            axes=tuple(a.name for a in axes),
            last=last,
            dtype=op.result.type.dtype,
            role=self.roles[last.name] if last else "",
            spans=tuple(spans),
            wanted_by=tuple(n for n, at in enumerate(self.nest) if at.index not in op.index),
        )

    @cached_property
    def least_slice(self) -> int:
        return least_slice(self.body)

    @cached_property
    def cut(self) -> ForTiles | None:
        """The loop that could be cut into pieces."""
        return cut_loop(self.body)

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
        return all(dim in self.sizes for loop in loops for dim in _dims(loop))

    def size(self, dim: str | int) -> int:
        return dim if isinstance(dim, int) else self.sizes.get(dim, UNKNOWN_SIZE)

    def trips(self, loop: Loop, tile: Mapping[str, int]) -> int:
        return _trips(self._walked(loop), tile)

    def num_tiles(self, tile: Mapping[str, int]) -> int:
        return math.prod([_trips(walked, tile) for walked in self.outer])

    def _walked(self, loop: Loop) -> tuple[str, int]:
        """By which axis ("" if by none), and how much."""
        if isinstance(loop, ForEach):
            return "", self.size(loop.dim)
        assert isinstance(loop.index.type, Axis)
        return loop.index.type.name, self.size(loop.index.type.dim)

    def under(
        self,
        tile: Mapping[str, int],
        cluster: Mapping[str, int] | None = None,
        together: Mapping[str, int] | None = None,
    ) -> Workload:
        """`tile`: elements of a tile along every axis; `cluster`: CTAs of a cluster along some axes
        of the output, which are launched even where there is no tile left for them; `together`:
        the same where they load for each other what they all want.
        """
        given = tile, cluster or {}, together or {}
        asked = tuple([tuple(sizes.items()) for sizes in given])
        if asked not in self._known:
            self._known[asked] = self._under(*given)
        return self._known[asked]

    def _under(
        self, tile: Mapping[str, int], cluster: Mapping[str, int], together: Mapping[str, int]
    ) -> Workload:
        times = [math.prod([_trips(walked, tile) for walked in loops]) for loops in self.around]
        outer = [_trips(walked, tile) for walked in self.outer]
        cycles = operand_bytes = cold_bytes = own_bytes = read_bytes = stored = split = 0.0
        unfilled = computed = beyond = beyond_cut = transposed = plain_bytes = 0.0
        operations = promoted = further = 0
        for product in self.products:
            num, volume = times[product.around], elements(product.axes, tile)
            cycles += num * (volume / product.each_cycle)
            operations += num * 2 * volume
            read_bytes += num * product.read_bytes(volume, tile)
            if product.op.acc is None:
                promoted += num
                further += num * (num_parts(product.op, tile, self.every) - 1)
        for store in self.stores:
            num = times[store.around]
            own = num * elements(store.axes, tile)
            stored += own
            transposed += own * store.transposes
            split += num * store.split_rows(tile)
            unfilled += num * store.unfilled(tile)
        for around, each, axes in self.computed:
            computed += times[around] * (each * elements(axes, tile))
        counted = 1.0 if self.thin else ALL_BEYOND
        for load in self.load_terms:
            num, width = times[load.around], load.dtype.bits / 8
            own = num * load.moved_bytes(tile)
            plain_bytes += own
            own *= self._crossing(load, tile, together)
            operand_bytes += own
            cold_bytes += own * self.coldness[load.op.result]
            wanted = max(1, math.prod([outer[n] for n in load.wanted_by]))
            own_bytes += own * min(1.0, ASKED_TOGETHER / wanted)
            over, over_cut = load.beyond(tile, counted)
            beyond += num * width * over
            beyond_cut += num * width * over_cut
        summed = [v.type for v in self.cut.result if isinstance(v.type, Tile)] if self.cut else []
        columns = [a for kind in summed[:1] for a in kind.axes if self.roles[a] == "columns"]
        return Workload(
            target=self.target,
            tiles=math.prod(map(self._launched, self.nest, outer, repeat(cluster))),
            product_cycles=cycles,
            operations=operations,
            operand_bytes=operand_bytes,
            crossing=operand_bytes / max(1.0, plain_bytes),
            cold_bytes=cold_bytes,
            own_bytes=own_bytes,
            read_bytes=read_bytes,
            stored_elements=stored,
            tensor_bytes=self.tensor_bytes,
            computed=computed,
            promoted=promoted,
            further_parts=further,
            scaled=self.scaled,
            rows=max((tile[a] for a, role in self.roles.items() if role == "rows"), default=0),
            depth=self.trips(self.cut, tile) if self.cut else 1,
            sums=sum(math.prod(tile[a] for a in kind.axes) for kind in summed),
            columns=sum(tile[a] for a in columns),
            least_slice=self.least_slice,
            transposed_elements=transposed,
            split_rows=split,
            unfilled_elements=unfilled,
            overhang_bytes=beyond,
            overhang_bytes_cut=beyond_cut,
            row_bytes=min((load.row_bytes(tile) for load in self.load_terms), default=0.0),
            few_columns=self.few_columns and all(tile[a] >= n for a, n in self.columns.items()),
            thin=self.thin,
        )

    def _launched(self, loop: Loop, trips: int, cluster: Mapping[str, int]) -> int:
        axis = loop.index.type
        along = cluster.get(axis.name, 1) if isinstance(axis, Axis) else 1
        return -(-trips // along) * along

    @cached_property
    def coldness(self) -> dict[Value, float]:
        """Of each load: 0 where its tensor has up to `WARM` of the bytes of all that are loaded
        from, 1 where it has all of them.
        """
        held = {op.result: self.num_bytes(op.tensor.type) for op in self.loads}
        total = max(1.0, sum(held.values()))
        return {v: max(0.0, own / total - WARM) / (1 - WARM) for v, own in held.items()}

    @property
    def is_cold(self) -> bool:
        """Whether nearly all that is loaded comes from memory, and from one tensor."""
        return self.sized and max(self.coldness.values(), default=0.0) > COLD_FROM

    def _crossing(
        self, load: LoadTerm, tile: Mapping[str, int], together: Mapping[str, int]
    ) -> float:
        """How much longer that takes, if sizes are known, since lines cross those of L2; or since
        threads copy them.
        """
        width, last, tensor = load.dtype.bytes, load.last, load.op.tensor
        if tensor.name in self.copied:
            assert isinstance(tensor.type, Tensor)
            odd = self.size(tensor.type.dims[-1]) * width % COPY_WORD
            return COPIED_SINGLY if odd or tensor.name in self.singly else COPIED
        known = last is not None and (isinstance(last.dim, int) or last.dim in self.sizes)
        if last is None or not known or tensor.name in self.padded:
            return 1.0
        role, row, apart = load.role, self.size(last.dim), tile[last.name]
        line = SWIZZLE_SPAN[operand_lines(apart, load.dtype, role)[0]]
        apart = apart if apart < row else 0
        longer = crossing(row * width % L2_LINE, apart * width % L2_LINE, line, not role)
        copied = math.prod([num for axis, num in together.items() if axis not in load.axes])
        # Where it is tiles by columns alone that begin amid lines, nothing is gained by it.
        if not role or row * width % L2_LINE:
            longer = max(1.0, longer / copied)
        return longer * (MULTICAST_CROSSING if together and longer > 1 else 1.0)

    def num_bytes(self, kind: Type) -> float:
        assert isinstance(kind, Tensor)
        return math.prod(self.size(d) for d in kind.dims) * kind.dtype.bits / 8


def _trips(walked: tuple[str, int], tile: Mapping[str, int]) -> int:
    axis, size = walked
    return -(-size // max(1, tile[axis])) if axis else size


def _dims(loop: Loop) -> tuple[str, ...]:
    if isinstance(loop, ForEach):
        return (loop.dim,)
    return (loop.index.type.dim,) if isinstance(loop.index.type, Axis) else ()


@once
def scales_products(kernel: Kernel) -> bool:
    """Whether products are multiplied before they are summed."""
    products = {op.result for op in kernel.ops if isinstance(op, Contract)}
    return any(
        isinstance(op, Map) and op.fn in ("fma", "mul") and bool(products & {*op.args})
        for op in kernel.ops
    )
