"""Check at sample sizes that no two items of the work store the same elements."""

from collections.abc import Sequence
from itertools import combinations, product
from typing import Any

from wsdsl.ir import ops
from wsdsl.ir.op import Makers, Op, Value
from wsdsl.ir.ops import Map
from wsdsl.ir.rewriter import made_of
from wsdsl.prover.machine.linear import WARPGROUP, Linear, Sums
from wsdsl.prover.machine.symbolic_terms import FOLD
from wsdsl.prover.memory.gmem_accesses import Access
from wsdsl.prover.memory.gmem_regions import GlobalPlaces
from wsdsl.prover.ops.grid import numbers_of
from wsdsl.prover.protocols.scheduler_terms import count_items, scheduler_terms

TILES, ITEMS, CLUSTERS = 3, 20, 2
"""Tiles of a dimension of no known size, items of a cluster, and clusters that are looked at."""
Box = list[tuple[int, int]]
Known = dict[Any, int | None]
"""Numbers by the meanings of terms; None of what nothing tells."""


def meeting(
    loop: ops.Loop | None, grid: ops.LaunchGrid, stores: Sequence[Access], places: GlobalPlaces
) -> Op | None:
    """A store of one item that overlaps another's: an iteration of `loop`, or a cluster where there
    is not one; of tiles that are cut, those of each tile are one. Places that memory says are left
    out.
    """
    sums, made = places.sums, places.made
    # CTAs of a cluster may leave to one of them a store of elements that they all have.
    shared = {x: _tells_rank(x.pred, made) for x in stores}
    # Where the last tile has one element, whole ones that end with the dimension overlap. Tiles
    # that are cut have one step each, but for empty splits.
    sizes: Known = {("size", d): (TILES - 1) * n + 1 for d, n in grid.tiles}
    sizes |= {("size", dim): extent for dim, extent in grid.contraction} | {WARPGROUP: 0}
    cut = scheduler_terms(grid, sums, loop.index).slot if loop and grid.contraction else None
    num = CLUSTERS if loop else min(_number(count_items(grid.tiles, sums), sizes, sums) or 0, ITEMS)
    found = dict[str, list[Any]]()
    for cluster, rank in product(range(num), range(grid.cluster)):
        numbers = numbers_of(cluster * grid.cluster + rank, num, grid.cluster)
        held = sizes | {(op,): number for op, number in numbers.items()}
        ends = loop.bounds if loop else ()
        walk = [n for v in ends if (n := _number(sums.of(v), held, sums)) is not None]
        walk = walk if loop else [cluster, cluster + 1, 1]
        for item in range(*walk)[:ITEMS] if len(walk) == 3 and walk[2] else ():
            now = held | ({("value", loop.index): item} if loop else {})
            tile = _number(cut, now, sums) if cut else item
            for store in stores if tile is not None else ():
                if box := _box(store, now, sums):
                    own = tile, 0 if shared[store] else rank, box, store.op
                    found.setdefault(store.place.tensor, []).append(own)
    for boxes in found.values():
        for (i, r, x, _), (j, s, y, op) in combinations(boxes, 2):
            if (i, r) != (j, s) and all(
                p < d and q < c for (p, c), (q, d) in zip(x, y, strict=True)
            ):
                return op
    return None


def _box(access: Access, held: Known, sums: Sums) -> Box | None:
    found = Box()
    for along in access.place.dims:
        start = _number(along.start, held, sums)
        if start is None or not along.extent:
            return None
        found.append((start, start + along.extent))
    return found


def _tells_rank(value: Value | None, made: Makers) -> bool:
    """Whether it is computed from the CTA's rank in its cluster."""
    found = made_of([value] if value else [], made, lambda op: isinstance(op, Map))
    return any(isinstance(op, ops.CtaRank) for _, op in found)


def _number(of: Linear, held: Known, sums: Sums) -> int | None:
    """Each term is computed once, and kept in `held`."""
    total = of.number
    for term, times in of.terms:
        meaning = sums.meanings[term] if isinstance(term, int) else term
        if meaning not in held:
            held[meaning] = _computed(meaning, held, sums)
        value = held[meaning]
        if value is None:
            return None
        total += times * int(value)
    return total


def _computed(meaning: Any, held: Known, sums: Sums) -> int | None:
    if not isinstance(meaning, tuple) or meaning[0] not in (*FOLD, "where"):
        return None
    fn, *given = meaning
    args = [_number(x, held, sums) if isinstance(x, Linear) else None for x in given]
    if fn == "where":
        return None if args[0] is None else args[1 if args[0] else 2]
    if None in args or (fn in ("floordiv", "mod") and not args[-1]):
        return None
    return FOLD[fn](*args)
