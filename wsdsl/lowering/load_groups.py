"""Which loads go through circular buffers, and how they share slots.

The tiles that products consume come through slots, and so does what an operand is computed from,
if it lies as the operand does. Loads of one block (one region) whose uses lie together share a
slot, if when the first is needed it can be known where the others lie. Where a slot is held while
others are taken, as around an inner loop, they come from different circular buffers, since the
inner one turns round while the outer is held. So do the operands of a product that is made of
another one's results: its slot is taken later, and given back later.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from wsdsl.diagnostics import Loc
from wsdsl.ir.op import Kernel, Op, Region, Value, once, operands, regions, results_of
from wsdsl.ir.tile_ops import Bitcast, Cast, Contract, ForEach, ForTiles, Load, Map, Store
from wsdsl.ir.tma import MAX_RANK
from wsdsl.ir.types import Axis, Tile
from wsdsl.ir.walk import definers, used_inside, walk
from wsdsl.lowering.decode import Decoded, decoded
from wsdsl.lowering.scale_loads import ScaleLoad, kept_out, scale_load

Kind = Literal["decoded", "encoded", "loaded", "raw"]
"""What slots hold: operands, as they are loaded or as a partition of threads makes them; or what
operands are made of, by that partition ("encoded") or by the consumers ("raw")."""


class RingKey(NamedTuple):
    """Which circular buffer. `height` is 0 if no other slot is taken while one of its slots is
    held, else one more than those'. `link` counts the products in the block, one made of the
    other's results, that come before the one that reads the slot.
    """

    height: int
    link: int
    kind: Kind


@dataclass(frozen=True)
class LoadGroup:
    """Loads that share a slot of `ring`, in the block whose first op is `block[0]`; or, where its
    kind is "decoded", operands that are `made`.

    `first` and `last` are positions in the block: the ops that use the tiles lie between them.
    """

    block: Region
    loads: tuple[Load, ...]
    first: int
    last: int
    ring: RingKey
    beside: tuple[ScaleLoad, ...] = ()
    made: tuple[tuple[Value, Tile], ...] = ()
    """With their tiles as they lie in the slot."""

    @property
    def operands(self) -> tuple[Tile, ...]:
        """What lies in panels."""
        tiles = [load.result.type for load in self.loads]
        return (*(t for t in tiles if isinstance(t, Tile)), *(tile for _, tile in self.made))

    @property
    def layout(self) -> tuple[Tile, ...]:
        """Of the operands, then of what lies beside them."""
        tiles = [side.load.result.type for side in self.beside]
        return (*self.operands, *(t for t in tiles if isinstance(t, Tile)))

    @property
    def loc(self) -> Loc | None:
        return self.loads[0].loc if self.loads else self.block[self.first].loc


@once
def load_groups(kernel: Kernel) -> tuple[LoadGroup, ...]:
    """The kernel's groups in the order in which their slots are taken."""
    return find_load_groups(kernel, kernel.body)


def find_load_groups(kernel: Kernel, body: Region) -> tuple[LoadGroup, ...]:
    """The groups of a part of the kernel in the order in which their slots are taken."""
    consumed = {v for op in walk(body) if isinstance(op, Contract) for v in (op.a, op.b)}
    finder = _Finder(consumed, definers(body), kept_out(kernel), decoded(kernel))
    return tuple(finder.groups(body))


def alike(load: Load, block: Region) -> set[Value]:
    """What the block's loads of the same tile give."""
    loads = (op for op in block if isinstance(op, Load))
    return {op.result for op in loads if (op.tensor, op.index) == (load.tensor, load.index)}


def layouts_of(groups: Iterable[LoadGroup]) -> dict[RingKey, list[tuple[Tile, ...]]]:
    """What slots hold, by their ring."""
    found: dict[RingKey, list[tuple[Tile, ...]]] = {}
    for group in groups:
        known = found.setdefault(group.ring, [])
        if group.layout not in known:
            known.append(group.layout)
    return found


def _contracted(op: Op, value: Value) -> bool:
    inner = (c for region in regions(op) for c in walk(region))
    return any(isinstance(c, Contract) and value in (c.a, c.b) for c in (op, *inner))


@dataclass(frozen=True)
class _Finder:
    """`consumed` by products; `made` by which op; `out` of slots, but for operands, are these
    tensors.
    """

    consumed: set[Value]
    made: Mapping[Value, Op]
    out: frozenset[str]
    decoded: Decoded

    def groups(self, block: Region) -> list[LoadGroup]:
        merged = self.merged(block, self.spans(block))
        inner = [(i, self.inner(op)) for i, op in enumerate(block)]
        found: list[tuple[int, list[LoadGroup]]] = [(i, groups) for i, groups in inner if groups]
        for span in reversed(merged):
            first, last = span.first, span.last
            held = [
                g.ring.height
                for i, groups in found
                if first <= i <= last
                for g in groups
                if g.block is not block or not _handed_over(g.ring.kind, span.kind)
            ]
            ring = RingKey(max(held, default=-1) + 1, span.link, span.kind)
            unique = tuple({(ld.tensor, ld.index): ld for ld in reversed(span.loads)}.values())[
                ::-1
            ]
            alone = len(merged) == 1 and not ring.height and span.kind != "decoded"
            beside = self.beside(block) if alone else ()
            first = min(first, *(block.index(side.load) for side in beside), first)
            group = LoadGroup(block, unique, first, last, ring, beside, tuple(span.made))
            found.append((first, [group]))
        # A slot held around a loop is taken before the loop's own.
        found.sort(key=lambda f: (f[0], -f[1][0].ring.height))
        return [group for _, groups in found for group in groups]

    def spans(self, block: Region) -> list[_Span]:
        links, raw = _links(block), self.raw(block)
        spans: list[_Span] = []
        for op in block:
            for value in results_of(op):
                tile = self.decoded.tiles.get(value)
                loaded = isinstance(op, Load) and (value in self.consumed or value in raw)
                if not loaded and tile is None:
                    continue
                if value in self.consumed:
                    at = [i for i, user in enumerate(block) if _contracted(user, value)]
                else:
                    at = [i for i, user in enumerate(block) if value in operands(user)]
                link = min(links[i] for i in at)
                if tile is not None:
                    made = [(value, tile)]
                    spans.append(_Span(at[0], at[-1], link, "decoded", [], made))
                elif isinstance(op, Load):
                    kind = raw.get(value, "loaded")
                    spans.append(_Span(at[0], at[-1], link, kind, [op], []))
        return sorted(spans, key=lambda s: s.first)

    def merged(self, block: Region, spans: list[_Span]) -> list[_Span]:
        """Those that share a slot as one."""
        merged: list[_Span] = []
        for span in spans:
            kind = span.link, span.kind
            before = next((m for m in reversed(merged) if (m.link, m.kind) == kind), None)
            if before and span.fits(block, before) and not _apart(block, before.last, span.first):
                before.last = max(before.last, span.last)
                before.loads += span.loads
                before.made += span.made
            else:
                merged.append(span)
        return merged

    def inner(self, op: Op) -> list[LoadGroup]:
        return [g for region in regions(op) for g in self.groups(region)]

    def raw(self, block: Region) -> dict[Value, Kind]:
        """What computed operands are made of, element by element, of loads of this block that lie
        as the operand does.
        """
        own = {v: op for op in block for v in results_of(op)}
        found: dict[Value, Kind] = {}
        for op in walk(block):
            for operand, other in ((op.a, op.b), (op.b, op.a)) if isinstance(op, Contract) else ():
                ahead, seen = [operand], set[Value]()
                kind: Kind = "encoded" if operand in self.decoded.tiles else "raw"
                while ahead:
                    value = ahead.pop()
                    made = own.get(value)
                    if made is None or value in seen:
                        continue
                    seen.add(value)
                    if isinstance(made, (Map, Cast, Bitcast)):
                        ahead += operands(made)
                    elif isinstance(made, Load) and value not in self.consumed:
                        # What others read as well is not given to one partition alone.
                        fits = kind == "raw" or value in self.decoded.inside
                        if fits and self.lies_like(made, operand, other):
                            found[value] = kind
        return found

    def lies_like(self, load: Load, operand: Value, other: Value) -> bool:
        """`other`: the operand that this one is multiplied by."""
        assert isinstance(operand.type, Tile) and isinstance(load.result.type, Tile)
        assert isinstance(other.type, Tile)
        # An axis that an index is computed of is not copied along.
        along = tuple(v.type.name for v in load.index if isinstance(v.type, Axis))
        # Consumers hold their operand by the rows of the tensor cores' tile.
        in_shared = self.decoded.tiles.get(operand)
        axes = in_shared.axes if in_shared else operand.type.axes
        return (
            len(axes) == 2
            and load.result.type.axes == axes == along
            and isinstance(load.index[-1].type, Axis)
            and (in_shared is not None or along[-1] in other.type.axes)
            and load.tensor.name not in self.out
            and len(load.index) <= MAX_RANK
            and load.result.type.dtype.bits >= 8
        )

    def beside(self, block: Region) -> tuple[ScaleLoad, ...]:
        found = (scale_load(op, block, self.made, self.out) for op in block)
        return tuple(side for side in found if side is not None)


@dataclass
class _Span:
    """The places in a block between which loads, or what is made, are used."""

    first: int
    last: int
    link: int
    kind: Kind
    loads: list[Load]
    made: list[tuple[Value, Tile]]

    def fits(self, block: Region, before: _Span) -> bool:
        """Whether it is known, where the slot of another one is filled, what goes into it."""
        index = (*(v for load in self.loads[:1] for v in load.index), *(v for v, _ in self.made))
        needed = needed_before(block, before.first, index)
        return not needed if self.made else needed is not None


def _handed_over(one: Kind, other: Kind) -> bool:
    """Whether two slots of one block are filled, or read, by different partitions: who holds the
    one takes no notice of the other.
    """
    return one != other and bool({one, other} & {"decoded", "encoded"})


def _links(block: Region) -> list[int]:
    """For each op, how many products of the block are made one of the other's results in front of
    it. What is added to is not what a product is made of.
    """
    behind: dict[Value, int] = {}
    found: list[int] = []
    for op in block:
        inner = list(walk((op,)))
        products = [c for c in inner if isinstance(c, Contract)]
        sums = {c.acc for c in products if c.acc is not None}
        for loop in reversed(inner):
            if isinstance(loop, (ForTiles, ForEach)):
                sums |= {v for v, arg in zip(loop.init, loop.args, strict=True) if arg in sums}
        used = {*operands(op), *used_inside(op)} - sums
        link = max((behind.get(v, 0) for v in used), default=0)
        found.append(link)
        own = link + 1 if products else max((behind.get(v, 0) for v in operands(op)), default=0)
        behind |= dict.fromkeys(results_of(op), own)
    return found


def needed_before(block: Region, first: int, values: Iterable[Value]) -> list[int] | None:
    """Places, from `first` on, of the ops that make `values` and would have to stand in front of
    it; None where one of them can not, since it stores or takes slots.
    """
    made = {v: i for i, op in enumerate(block) for v in results_of(op) if i >= first}
    ahead, found = [*values], set[int]()
    while ahead:
        i = made.get(ahead.pop())
        if i is not None and i not in found:
            if any(isinstance(op, (Contract, Store)) for op in walk((block[i],))):
                return None
            found.add(i)
            ahead += [*operands(block[i]), *used_inside(block[i])]
    return sorted(found)


def _apart(block: Region, last: int, first: int) -> bool:
    """Whether a loop (or if) stands between, or is one of, the two places."""
    return first > last and any(regions(op) for op in block[last : first + 1])


def computed_operands(op: Contract, made: Mapping[Value, Op]) -> list[Value]:
    """Those of a product that are not loaded as they are."""
    return [v for v in (op.a, op.b) if not isinstance(made.get(v), Load)]


@once
def multiplied(kernel: Kernel) -> frozenset[Value]:
    """The tensors that products read."""
    used = {v for op in kernel.ops if isinstance(op, Contract) for v in (op.a, op.b)}
    return frozenset(op.tensor for op in kernel.ops if isinstance(op, Load) and op.result in used)


@once
def copied_operands(kernel: Kernel) -> frozenset[str]:
    """Those that threads copy, since TMA can not take them."""
    return frozenset(tensor.name for tensor in multiplied(kernel)) & {*kernel.unaligned}
