"""Assign the values that cross between partitions to pipelines, and to fields of stages (TILE).

The operands of MMAs come through pipeline stages, and so do the inputs of a transformed operand
that have its layout. Loads of one block (one region) whose uses are adjacent share a stage, if the
addresses of all are known when the first is needed: one barrier then covers all. A stage that is in
use while others are taken, as around an inner loop, belongs to another pipeline, since the inner
pipeline wraps around meanwhile. So do the operands of back-to-back MMAs (`link`: the number of MMAs
before): their stage is taken later, and released later. Scale factors of operands are in the stage
of the operands, if these share one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass
from typing import Any

from wsdsl.diagnostics import Loc
from wsdsl.ir.analysis.scale_factor_indices import in_atoms
from wsdsl.ir.hardware.tma_box import MAX_RANK
from wsdsl.ir.op import Kernel, Op, Region, Value, once, operands, regions, results_of
from wsdsl.ir.ops import Contract, Load, Store, Yield
from wsdsl.ir.rewriter import definers, made_of, makers, used_inside, walk
from wsdsl.ir.types import Tile
from wsdsl.lazy import cached_property
from wsdsl.lowering.axes import axes_of, output_nest, with_loops
from wsdsl.lowering.cooperation import shared_role
from wsdsl.lowering.decode import decoded
from wsdsl.lowering.dependence import links_of
from wsdsl.lowering.edge import ROLES, Edge, Role
from wsdsl.lowering.product_operands import is_elementwise, multiplied
from wsdsl.lowering.scale_loads import ScaleLoad, kept_out, scale_load
from wsdsl.lowering.tmem_scales import block_scales
from wsdsl.lowering.zero_trip_accumulate import handed_back
from wsdsl.schedule import Schedule


@dataclass(eq=False)
class SlotGroup:
    """Edges that share a stage, by field, in the block whose first op is `block[0]`. `first` and
    `last` are positions in the block: the ops that use the tiles lie between them.
    """

    block: Region
    first: int
    last: int
    edges: list[Edge]
    link: int = 0
    nesting: int = 0
    """0 if no other stage is taken while one of its stages is in use, else one more than theirs."""

    @property
    def ring(self) -> int:
        assert self.edges[0].ring is not None
        return self.edges[0].ring

    @property
    def producer(self) -> Role:
        return self.edges[0].producer

    @property
    def consumer(self) -> Role:
        return self.edges[0].consumers[0]

    @property
    def to_threads(self) -> bool:
        """Whether a partition takes it that makes of it what products read."""
        return self.consumer in ("decode", "scale")

    @property
    def in_shared(self) -> bool:
        return self.edges[0].space == "SMEM"

    @property
    def operands(self) -> tuple[Edge, ...]:
        """Return the edges whose tiles are panels."""
        return tuple(edge for edge in self.edges if not edge.box)

    @property
    def loads(self) -> tuple[Load, ...]:
        return tuple(edge.load for edge in self.edges if edge.producer == "load")

    @property
    def layout(self) -> tuple[Tile, ...]:
        return tuple(edge.layout for edge in self.edges)

    @property
    def is_innermost(self) -> bool:
        """Whether no stage is taken while one of its pipeline is in use."""
        return self.edges[0].depth == "stages"

    @property
    def loc(self) -> Loc | None:
        return self.loads[0].loc if self.loads else self.block[self.first].loc

    @cached_property
    def held(self) -> range:
        """Return the indices at which consumers use the stage; threads may read the tiles, too."""
        read = (edge.values for edge in self.edges if "compute" in edge.consumers)
        return self.held_by({value for values in read for value in values})

    def held_by(self, read: Set[Value]) -> range:
        """The same if threads read these values in it."""
        users = [i for i, op in enumerate(self.block) if read & {*operands(op)}]
        return range(min([self.first, *users]), max([self.last, *users]) + 1)

    @property
    def ends(self) -> tuple[int, int, int, bool]:
        ends = -ROLES.index(self.producer), ROLES.index(self.consumer)
        return self.link, *ends, self.edges[0].wants_tensor

    @property
    def key(self) -> tuple[int, int, int, int, bool]:
        """The sort key of its pipeline: pipelines are declared in this order."""
        return self.nesting, *self.ends

    def joins(self, before: SlotGroup) -> bool:
        """Whether the two may share a stage: the addresses of one are known where the other's stage
        is filled.
        """
        if self.ends != before.ends or _apart(self.block, before.last, self.first):
            return False
        made = [edge.value for edge in self.edges if not isinstance(edge.made, Load)]
        if made or self.producer in ("decode", "compute"):
            return needed_before(self.block, before.first, made) == []
        index = (v for edge in self.edges for v in edge.load.index)
        return needed_before(self.block, before.first, index) is not None

    def goes_on_beside(self, other: SlotGroup) -> bool:
        """Whether uses of the stage are independent of the other's: another partition fills or
        reads it.
        """
        one, another = ((s.producer, s.consumer) for s in (self, other))
        threads = {"decode", "scale"} & {*one, *another}
        return self.block is other.block and one != another and bool(threads)


@once
def operand_slots(kernel: Kernel) -> tuple[SlotGroup, ...]:
    """Those of what products read, in the order in which they are taken."""
    return operand_slots_in(kernel, output_nest(kernel)[1])


def loads_by_warpgroups(kernel: Kernel) -> bool:
    """Whether a whole warpgroup fills the stages. Its other warps have single-thread roles; another
    thread loads scale factors.
    """
    return any(group.loads for group in operand_slots(kernel) if group.consumer != "scale")


def operand_slots_in(kernel: Kernel, body: Region) -> tuple[SlotGroup, ...]:
    """Those of a part of the kernel."""
    finder = _Finder(kernel, body)
    found = finder.groups_in(body)
    rings = {key: n for n, key in enumerate(sorted({group.key for group in found}))}
    read = [id(group.block) for group in found if group.consumer != "decode"]
    for group in found:
        alone = read.count(id(group.block)) == 1 and not kernel.target.has_tensor_memory
        finder.settle(group, rings[group.key], alone)
    return tuple(found)


def layouts_of(groups: Iterable[SlotGroup]) -> dict[int, list[tuple[Tile, ...]]]:
    """Return the layouts of stages, by the pipeline."""
    found: dict[int, list[tuple[Tile, ...]]] = {}
    for group in groups:
        known = found.setdefault(group.ring, [])
        if group.layout not in known:
            known.append(group.layout)
    return found


class _Finder:
    """`out`: tensors that go through stages only as operands; `around`: the loop around an op."""

    def __init__(self, kernel: Kernel, body: Region) -> None:
        self.multiplied, self.decoded = multiplied(kernel), decoded(kernel)
        products = (op for op in kernel.of(Contract) if op.scales)
        self.scales = {v: op.block for op in products for v in op.scales}
        self.by_thread = kernel.target.has_tensor_memory
        """Whether who multiplies reads nothing but operands."""
        self.handed_back = handed_back(kernel) if self.by_thread else {}
        self.copies_scales = kernel.schedule is None or kernel.schedule.sf_load != "st"
        self.out = kept_out(kernel)
        self.made, self.axes = definers(body), axes_of(kernel)
        self.around = {op: at[-1].index if at else None for op, at in with_loops(body)}
        self.by_rows = shared_role(kernel, kernel.schedule or Schedule()) == "rows"

    def groups_in(self, block: Region) -> list[SlotGroup]:
        """Return the groups in the order in which their stages are taken."""
        merged = self.merged(block)
        found: list[tuple[int, list[SlotGroup]]] = []
        for i, op in enumerate(block):
            inner = [s for region in regions(op) for s in self.groups_in(region)]
            found += [(i, inner)] if inner else []
        for group in reversed(merged):
            within = (s for i, inner in found if group.first <= i <= group.last for s in inner)
            held = (s.nesting for s in within if not s.goes_on_beside(group))
            group.nesting = max(held, default=-1) + 1
            alone = len(merged) == 1 and not group.nesting and not self.by_thread
            if alone and group.producer != "decode":
                sides = (scale_load(op, block, self.made, self.out) for op in block)
                beside = [self.edge(block, s.load, "load", "scale", s) for s in sides if s]
                group.first = min(group.first, *(block.index(e.made) for e in beside), group.last)
                group.edges += beside
            found.append((group.first, [group]))
        # A stage in use around a loop is taken before the loop's stages.
        found.sort(key=lambda f: (f[0], -f[1][0].nesting))
        return [group for _, groups in found for group in groups]

    def merged(self, block: Region) -> list[SlotGroup]:
        """Return the groups of the block; edges that share a stage are one group."""
        merged: list[SlotGroup] = []
        for group in sorted(self.groups(block), key=lambda group: group.first):
            before = next((m for m in reversed(merged) if m.ends == group.ends), None)
            if before and group.joins(before):
                before.last = max(before.last, group.last)
                # The stage has one tile for equal loads, at the index of the last.
                (edge,) = group.edges
                known = next((e for e in before.edges if e.values == edge.values), edge)
                before.edges = [*(e for e in before.edges if e is not known), known]
                # Panels need a larger alignment than other fields.
                before.edges.sort(key=lambda e: e.box is not None)
            else:
                merged.append(group)
        return merged

    def groups(self, block: Region) -> Iterator[SlotGroup]:
        """Of each value by itself."""
        links, computed_from = links_of(block), self.computed_from(block)
        yield from self.of_scales(block, links)
        for op in block:
            for value in results_of(op):
                is_operand = value in self.multiplied
                if value in self.decoded.tiles:
                    edge = self.edge(block, op, "decode", "mma")
                elif value in self.handed_back:
                    edge = self.edge(block, op, "compute", "mma")
                elif isinstance(op, Load) and (is_operand or value in computed_from):
                    edge = self.edge(block, op, "load", computed_from.get(value, "mma"))
                else:
                    continue
                reads = _multiplies if is_operand else lambda op, v: v in operands(op)
                at = [i for i, user in enumerate(block) if reads(user, value)]
                yield SlotGroup(block, at[0], at[-1], [edge], min(links[i] for i in at))

    def of_scales(self, block: Region, links: list[int]) -> Iterator[SlotGroup]:
        """Return the scale factors of operands, on their way to threads and to TMEM."""
        for op in block:
            for value in results_of(op):
                if value not in self.scales:
                    continue
                users = [i for i, user in enumerate(block) if value in operands(user)]
                at = [i for i in users if isinstance(block[i], Contract)]
                where = dict[str, Any](made=op, layout=value.as_tile, block=self.scales[value])
                where |= dict(values=self.alike(block, op), produced_in=self.around[op])
                where |= dict(consumed_in=self.around[block[at[0]]])
                assert isinstance(op, Load)
                first = "mma" if self.copies_scales and in_atoms(op) else "scale"
                box = block_scales(op)
                own = [Edge(producer="load", consumers=(first,), box=box, **where)]
                if first == "scale":
                    own.append(Edge(producer="scale", consumers=("mma",), space="TMEM", **where))
                for edge in own:
                    yield SlotGroup(block, at[0], at[-1], [edge], min(links[i] for i in at))

    def edge(
        self, block: Region, op: Op, producer: Role, consumer: Role, box: ScaleLoad | None = None
    ) -> Edge:
        (value,) = results_of(op)
        users = (o for o in walk(block) if value in operands(o) and not regions(o))
        alike = [v for v in self.alike(block, op) if (v in self.multiplied) == (consumer == "mma")]
        return Edge(
            # A tile that is an untransformed operand has a separate stage.
            values=tuple(alike),
            made=op,
            producer=producer,
            consumers=(consumer,),
            layout=self.decoded.tiles.get(value) or self.handed_back.get(value, value.as_tile),
            wants_tensor=value in self.decoded.in_tensor,
            produced_in=self.around[op],
            consumed_in=next(self.around[user] for user in users),
            box=box,
        )

    def alike(self, block: Region, op: Op) -> tuple[Value, ...]:
        """Return the results of the block's loads of one tile."""
        if not isinstance(op, Load):
            return results_of(op)
        loads = (o for o in block if isinstance(o, Load))
        return tuple(o.result for o in loads if (o.tensor, o.index) == (op.tensor, op.index))

    def computed_from(self, block: Region) -> dict[Value, Role]:
        """Return the elementwise inputs of transformed operands among the loads of this block with
        the operand's layout, and the partition that computes the operand.
        """
        own = {v: op for op in block for v in results_of(op)}
        found: dict[Value, Role] = {}
        for op in walk(block):
            for operand, other in ((op.a, op.b), (op.b, op.a)) if isinstance(op, Contract) else ():
                if operand in self.handed_back:
                    continue  # The partition "compute" loads it.
                by: Role = "decode" if operand in self.decoded.tiles else "compute"
                for value, made in made_of((operand,), own, is_elementwise):
                    if isinstance(made, Load) and value not in self.multiplied:
                        # A tile that other partitions also read is not assigned to one alone.
                        fits = by == "compute" or value in self.decoded.inside
                        if fits and self.lies_like(made, operand, other):
                            found[value] = by
        return found

    def lies_like(self, load: Load, operand: Value, other: Value) -> bool:
        """`other`: the operand that this one is multiplied by."""
        # An axis that an index is computed of is not copied along.
        along = tuple(axis.name for axis in load.axes)
        # Consumers hold their operand by the rows of the tensor cores' tile.
        in_shared = self.decoded.tiles.get(operand)
        axes = in_shared.axes if in_shared else along
        return (
            len(axes) == 2
            and load.result.as_tile.axes == axes == along
            and {*axes} == {*operand.as_tile.axes}
            and load.last is not None
            and (in_shared is not None or along[-1] in other.as_tile.axes)
            and load.tensor.name not in self.out
            and len(load.index) <= MAX_RANK
        )

    def settle(self, group: SlotGroup, ring: int, alone: bool) -> None:
        """Assign pipelines and consumers to edges; `alone`: consumers read no other stage in the
        block.
        """
        in_place = self.read_in_place(group) if alone else set[Value]()
        for n, edge in enumerate(group.edges):
            if edge.value in in_place:
                same = self.alike(group.block, edge.made)
                edge = dataclasses.replace(edge, values=same, consumers=("mma", "compute"))
            depth = "scales" if edge.space == "TMEM" else "two" if group.nesting else "stages"
            group.edges[n] = dataclasses.replace(edge, ring=ring, depth=depth)

    def read_in_place(self, group: SlotGroup) -> set[Value]:
        """Return the operands that threads also read from their stage: not if it would be in use
        around other stages, or taken before its addresses are known.
        """
        block, found = group.block, set[Value]()
        operands_in = [edge for edge in group.edges if edge.consumers == ("mma",)]
        for edge in operands_in:
            same = {*self.alike(block, edge.made)}
            users = [o for o in block if same & {*operands(o)} and not isinstance(o, Contract)]
            inside = not all(same.isdisjoint(used_inside(o)) for o in block)
            handed_on = any(isinstance(o, Yield) for o in users)
            if users and not inside and not handed_on and self.lies_as_fragments(edge):
                found |= same
        held = group.held_by(found)
        within = block[held.start : held.stop]
        later = {v for op in within for v in results_of(op)}
        unknown = any(later & {*operands(edge.made)} for edge in operands_in)
        beside = len(group.edges) > len(operands_in) and held.start < group.first
        return set() if any(map(regions, within)) or unknown or beside else found

    def lies_as_fragments(self, edge: Edge) -> bool:
        """Whether the rows of a fragment are the lines of the stage."""
        if edge.producer != "load":
            return False
        last, axes = edge.load.last, edge.layout.axes
        lines = last is not None and last.name == axes[-1]
        roles = [self.axes[x].role for x in axes]
        return self.by_rows and lines and roles == ["rows", "columns"]


def _multiplies(op: Op, value: Value) -> bool:
    return any(isinstance(o, Contract) and value in (o.a, o.b) for o in walk((op,)))


def needed_before(block: Region, first: int, values: Iterable[Value]) -> list[int] | None:
    """Return the indices, from `first` on, of the ops that compute `values` and would have to
    precede it; None if one of them cannot, since it stores or takes stages.
    """
    found = makers(block[first:], values)
    if any(isinstance(op, (Contract, Store)) for op in walk(found)):
        return None
    return [i for i, op in enumerate(block) if op in found]


def _apart(block: Region, last: int, first: int) -> bool:
    """Whether a loop (or if) stands between, or is one of, the two places."""
    return first > last and any(regions(op) for op in block[last : first + 1])
