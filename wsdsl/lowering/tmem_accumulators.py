"""Assign accumulators in TMEM to pipelines, from the thread that issues MMAs to the threads that
read them (TILE).

    %acc = for_tiles(index=%k, ...) { ... contract ... }     mma
    store(tensor=%C, index=(%m, %n), value=%acc)             compute

Accumulators of one block of the kernel, an output tile or an iteration of a loop, share a stage of
a pipeline. Accumulators of the second of back-to-back MMAs have a separate pipeline. So have those
of a loop after which threads read accumulators of the block around it. A pipeline has two stages,
if there are columns for them: MMAs of a tile run while threads read the accumulators of the tile
before.
"""

import dataclasses
from collections.abc import Iterable, Mapping

from wsdsl.ir.analysis.intervals import walks_a_part
from wsdsl.ir.hardware.tcgen05_shapes import LANES
from wsdsl.ir.op import Kernel, Op, Region, Value, once, regions
from wsdsl.ir.ops import Contract, DimLoop, ForTiles, Store
from wsdsl.ir.rewriter import following, walk
from wsdsl.ir.types import Sizes, Tile
from wsdsl.lowering.axes import axes_of, output_nest, with_loops
from wsdsl.lowering.buffer_assignment import SlotGroup, loads_by_warpgroups, operand_slots
from wsdsl.lowering.dependence import links_of
from wsdsl.lowering.edge import Edge
from wsdsl.lowering.product_operands import copied_operands
from wsdsl.lowering.tensor_chains import Chains, chains, hands_on_inside, is_read
from wsdsl.lowering.tmem_scales import BUFFERED as SCALES_BUFFERED
from wsdsl.lowering.tmem_scales import columns_of_scales
from wsdsl.lowering.updated_sums import Update, updates


@once
def sum_slots(kernel: Kernel) -> tuple[SlotGroup, ...]:
    """In the order in which they are taken; none where products are summed in registers."""
    if not kernel.target.has_tensor_memory or not kernel.of(Contract):
        return ()
    found = _Groups(kernel)
    groups = found.of(output_nest(kernel)[1])
    first = 1 + max((group.ring for group in operand_slots(kernel)), default=-1)
    keys = sorted({(g.nesting, g.link, found.places[id(g)]) for g in groups})
    for group in groups:
        ring = first + keys.index((group.nesting, group.link, found.places[id(group)]))
        group.edges = [dataclasses.replace(edge, ring=ring) for edge in group.edges]
    return tuple(groups)


class _Groups:
    """`places`: by group, how many others may be unread when its first product starts."""

    def __init__(self, kernel: Kernel) -> None:
        self.chains: Chains = chains(kernel)
        body = output_nest(kernel)[1]
        self.around = {op: at[-1].index if at else None for op, at in with_loops(body)}
        self.places: dict[int, int] = {}

    def of(self, block: Region, before: int = 0) -> list[SlotGroup]:
        """`before`: how many groups of the blocks around may be unread."""
        own = list[SlotGroup]()
        found = list[SlotGroup]()
        links, begun = links_of(block), dict[Value, int]()
        for n, op in enumerate(block):
            place = before + len(own) if regions(op) and _unread(block[: n + 1], own) else before
            inner = [g for region in regions(op) for g in self.of(region, place)]
            begun |= self.begun(op, n, begun)
            made = self.chains.ends(op)
            first = min((begun[value] for value in made), default=n)
            if made and own and self.joins(own[-1], links[n], n):
                own[-1].first, own[-1].last = min(first, own[-1].first), n
                own[-1].edges += [self.edge(op, value) for value in made]
            elif made:
                edges = [self.edge(op, value) for value in made]
                nesting = max((g.nesting + 1 for g in inner), default=0)
                group = SlotGroup(block, first, n, edges, links[n], nesting)
                self.places[id(group)] = before + len(own)
                own.append(group)
                found.append(group)
            found += inner
        return found

    def begun(self, op: Op, n: int, before: Mapping[Value, int]) -> dict[Value, int]:
        """By sum that the n-th op of a block makes, where the first product is added to it."""
        if isinstance(op, Contract):
            return {op.result: n if op.acc is None else before.get(op.acc, n)}
        if not isinstance(op, DimLoop):
            return {}
        carried = zip(op.result, op.init, strict=True)
        return {made: before.get(init, n) for made, init in carried}

    def joins(self, before: SlotGroup, link: int, n: int) -> bool:
        """Whether the accumulators of the n-th op may be in a group's stage: no op reads the
        group's before, nor other accumulators meanwhile.
        """
        between = before.block[before.first : n + 1]
        values = {edge.values[0] for edge in before.edges}
        apart = any(hands_on_inside(op, self.chains) or is_read(op, values) for op in between)
        return link == before.link and not apart

    def edge(self, op: Op, value: Value) -> Edge:
        return Edge(
            values=(value,),
            made=op,
            producer="mma",
            consumers=("compute",),
            layout=value.as_tile,
            produced_in=op.index if isinstance(op, DimLoop) else self.around[op],
            consumed_in=self.around[op],
            space="TMEM",
            depth="sums",
        )


def _unread(block: Region, groups: Iterable[SlotGroup]) -> bool:
    """Whether threads may read some of the groups' sums after the last op of a block: they do so
    where a store, a product, a loop or a condition needs them.
    """
    return any(
        not any(regions(op) or isinstance(op, (Contract, Store)) for op in users)
        for group in groups
        for edge in group.edges
        for users in [following(block[group.last + 1 :], edge.values)]
    )


def given_back_late(
    kernel: Kernel, operands: Iterable[SlotGroup], sums: Iterable[SlotGroup]
) -> set[int]:
    """Return the pipelines of stages that MMAs release after the last commit of accumulators: no
    wait then shows that these arrivals are complete.
    """
    changed = updates(kernel)
    ends = [*sums]
    return {
        group.ring
        for group in (operands if ends else ())
        if group.consumer == "mma"
        and group.in_shared
        and not any(_follows(own, group, changed) for own in ends)
    }


def _follows(sums: SlotGroup, group: SlotGroup, changed: Mapping[Op, Update]) -> bool:
    """Whether accumulators are committed after the release of the stage; those that are `changed`
    are committed in the loop that adds to them.
    """
    if sums.block is group.block:
        return sums.last >= group.last and not any(edge.made in changed for edge in sums.edges)
    before = walk(sums.block[: sums.last + 1])
    return any(inner is group.block for op in before for inner in regions(op))


def multiplying_warps(kernel: Kernel) -> int:
    """Return the warps of the partition "mma": the next warp of a load warpgroup, unless all of its
    warps copy; or a warpgroup that clears the rest of stages with a part of a
    dimension.
    """
    own = copied_operands(kernel) or summed_parts(kernel) or not loads_by_warpgroups(kernel)
    return 4 if own else 1


@once
def summed_parts(kernel: Kernel) -> frozenset[str]:
    """Axes that products sum over, of loops over parts of dimensions."""
    walked = {op.index.as_axis.name for op in kernel.of(ForTiles) if walks_a_part(op)}
    return frozenset(walked & {axis for op in kernel.of(Contract) for axis in op.summed})


def multiplies(op: Op) -> bool:
    return any(isinstance(inner, Contract) for inner in walk((op,)))


def sum_columns(kernel: Kernel, tile: Tile, sizes: Sizes) -> int:
    """Of tensor memory that a sum takes."""
    axes = axes_of(kernel)
    sides = {axes[name].role: sizes[name] for name in tile.axes}
    return sides.get("columns", 1) * -(-sides.get("rows", LANES) // LANES)


def slot_columns(kernel: Kernel, sizes: Sizes) -> dict[int, int]:
    """Map pipelines of accumulators to the columns of a stage."""
    found = dict[int, int]()
    for group in sum_slots(kernel):
        own = sum(sum_columns(kernel, edge.layout, sizes) for edge in group.edges)
        found[group.ring] = max(own, found.get(group.ring, 0))
    return found


def scale_columns_of(kernel: Kernel, sizes: Sizes) -> int:
    """Count the columns of all stages of scale factors, or of those that are copied."""
    copied = (e for g in operand_slots(kernel) if g.consumer == "mma" for e in g.edges if e.box)
    stored = SCALES_BUFFERED * scale_slot_columns(kernel, sizes)
    return stored + sum(_scale_columns(edge, sizes) for edge in copied)


def scale_slot_columns(kernel: Kernel, sizes: Sizes) -> int:
    """Of all scales of a k-tile."""
    groups = (group for group in operand_slots(kernel) if not group.in_shared)
    return max((sum(_scale_columns(edge, sizes) for edge in g.edges) for g in groups), default=0)


def _scale_columns(edge: Edge, sizes: Sizes) -> int:
    return columns_of_scales(edge.layout, edge.block, sizes)
