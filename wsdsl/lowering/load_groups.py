"""Which loads go through circular buffers, and how they share slots.

The tiles that products consume come through slots. Loads of one block (one region) whose uses lie
together share a slot, if when the first is needed it can be known where the others lie. Where a
slot is held while others are taken, as around an inner loop, they come from different circular
buffers, since the inner one turns round while the outer is held.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from wsdsl.ir.op import Kernel, Op, Region, Value, once, operands, regions, results_of
from wsdsl.ir.tile_ops import Contract, Load, Store
from wsdsl.ir.types import Tile
from wsdsl.ir.walk import definers, used_inside, walk
from wsdsl.lowering.side_loads import SideLoad, kept_out, side_load


@dataclass(frozen=True)
class LoadGroup:
    """Loads that share a slot, in the block whose first op is `block[0]`.

    `first` and `last` are positions in the block: the ops that use the tiles lie between them.
    `height` is 0 if no other slot is taken while this one is held, else one more than those'.
    """

    block: Region
    loads: tuple[Load, ...]
    first: int
    last: int
    height: int
    beside: tuple[SideLoad, ...] = ()

    @property
    def layout(self) -> tuple[Tile, ...]:
        """Of the operands, then of what lies beside them."""
        loads = (*self.loads, *(side.load for side in self.beside))
        tiles = [load.result.type for load in loads]
        return tuple(t for t in tiles if isinstance(t, Tile))


@once
def load_groups(kernel: Kernel) -> tuple[LoadGroup, ...]:
    """The kernel's groups in the order in which their slots are taken."""
    return find_load_groups(kernel.body, kept_out(kernel))


def find_load_groups(body: Region, out: frozenset[str] = frozenset()) -> tuple[LoadGroup, ...]:
    """The groups of a kernel's body in the order in which their slots are taken. Nothing of the
    tensors named in `out` lies beside the operands.
    """
    consumed = {v for op in walk(body) if isinstance(op, Contract) for v in (op.a, op.b)}
    return tuple(_Finder(consumed, definers(body), out).groups(body))


def layouts_of(groups: Iterable[LoadGroup]) -> dict[int, list[tuple[Tile, ...]]]:
    """What slots hold, by the height of their ring."""
    found: dict[int, list[tuple[Tile, ...]]] = {}
    for group in groups:
        known = found.setdefault(group.height, [])
        if group.layout not in known:
            known.append(group.layout)
    return found


def _contracted(op: Op, value: Value) -> bool:
    inner = (c for region in regions(op) for c in walk(region))
    return any(isinstance(c, Contract) and value in (c.a, c.b) for c in (op, *inner))


@dataclass(frozen=True)
class _Finder:
    """`consumed` by products; `made` by which op; `out` of slots are these tensors."""

    consumed: set[Value]
    made: Mapping[Value, Op]
    out: frozenset[str]

    def groups(self, block: Region) -> list[LoadGroup]:
        spans: list[tuple[int, int, list[Load]]] = []
        for load in block:
            if isinstance(load, Load) and load.result in self.consumed:
                at = [i for i, op in enumerate(block) if _contracted(op, load.result)]
                spans.append((at[0], at[-1], [load]))
        spans.sort(key=lambda s: s[0])
        merged: list[tuple[int, int, list[Load]]] = []
        for first, last, loads in spans:
            before = merged[-1] if merged else (0, 0, [])
            known = merged and needed_before(block, before[0], loads[0].index) is not None
            if known and not _apart(block, before[1], first):
                merged[-1] = (before[0], max(before[1], last), [*before[2], *loads])
            else:
                merged.append((first, last, loads))
        inner = [(i, self.inner(op)) for i, op in enumerate(block)]
        found: list[tuple[int, list[LoadGroup]]] = [(i, groups) for i, groups in inner if groups]
        for first, last, loads in reversed(merged):
            held = [g.height for i, groups in found if first <= i <= last for g in groups]
            height = max(held, default=-1) + 1
            unique = tuple({(ld.tensor, ld.index): ld for ld in reversed(loads)}.values())[::-1]
            beside = self.beside(block) if len(merged) == 1 and not height else ()
            first = min(first, *(block.index(side.load) for side in beside), first)
            group = LoadGroup(block, unique, first, last, height, beside)
            found.append((first, [group]))
        # A slot held around a loop is taken before the loop's own.
        found.sort(key=lambda f: (f[0], -f[1][0].height))
        return [group for _, groups in found for group in groups]

    def inner(self, op: Op) -> list[LoadGroup]:
        return [g for region in regions(op) for g in self.groups(region)]

    def beside(self, block: Region) -> tuple[SideLoad, ...]:
        found = (side_load(op, block, self.made, self.out) for op in block)
        return tuple(side for side in found if side is not None)


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


@once
def multiplied(kernel: Kernel) -> frozenset[Value]:
    """The tensors that products read."""
    used = {v for op in kernel.ops if isinstance(op, Contract) for v in (op.a, op.b)}
    return frozenset(op.tensor for op in kernel.ops if isinstance(op, Load) and op.result in used)


@once
def copied_operands(kernel: Kernel) -> frozenset[str]:
    """Those that threads copy, since TMA can not take them."""
    return frozenset(tensor.name for tensor in multiplied(kernel)) & {*kernel.unaligned}
