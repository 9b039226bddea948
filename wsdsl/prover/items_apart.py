"""Check at sample sizes that no two items of the work store the same elements."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import combinations, product
from typing import Any

from wsdsl.ir import barrier_ops as b
from wsdsl.ir.op import Op
from wsdsl.prover.global_accesses import Access
from wsdsl.prover.linear import WARPGROUP, Linear, Sums
from wsdsl.prover.scheduler_terms import count_items, scheduler_terms
from wsdsl.prover.terms import FOLD

TILES, ITEMS, CLUSTERS = 3, 20, 2
"""Tiles of a dimension of no known size, items of a cluster, and clusters that are looked at."""
Box = list[tuple[int, int]]


def meeting(
    loop: b.ForRange | None,
    grid: b.LaunchGrid,
    accesses: Iterable[tuple[Access, bool]],
    sums: Sums,
) -> Op | None:
    """A store of one item that another item meets: an iteration of `loop`, or a cluster where there
    is none; of tiles that are cut, those of each tile are one. Places that memory says are left
    out. Of each access is said whether one CTA of a cluster makes it for all of them.
    """
    # Where the last tile has one element, whole ones that end with the dimension meet others. Tiles
    # that are cut have one step each, but for pieces of none.
    sizes: dict[Any, int] = {("size", d): (TILES - 1) * n + 1 for d, n in grid.tiles}
    sizes |= {("size", dim): extent for dim, extent in grid.contraction} | {WARPGROUP: 0}
    cut = scheduler_terms(grid, sums, loop.index).slot if loop and grid.contraction else None
    num = CLUSTERS if loop else min(_number(count_items(grid.tiles, sums), sizes, sums) or 0, ITEMS)
    found = dict[str, list[Any]]()
    for cluster, rank in product(range(num), range(grid.cluster)):
        held = sizes | {("ClusterIndex",): cluster, ("NumClusters",): num, ("CtaRank",): rank}
        held |= {("CtaIndex",): cluster * grid.cluster + rank, ("NumCtas",): num * grid.cluster}
        ends = (loop.start, loop.stop, loop.step) if loop else ()
        walk = [_number(sums.of(v), held, sums) for v in ends] or [cluster, cluster + 1, 1]
        start, stop, step = (0, 0, 1) if None in walk or not walk[2] else walk
        for item in range(start or 0, stop or 0, step or 1)[:ITEMS]:
            held |= {("value", loop.index): item} if loop else {}
            tile = _number(cut, held, sums) if cut else item
            for access, is_shared in accesses if tile is not None else ():
                dims = access.place.dims
                starts = [_number(x.start, held, sums) for x in dims]
                if None not in starts and all(x.extent for x in dims):
                    cta = 0 if is_shared else rank
                    box = [(x or 0, (x or 0) + (d.extent or 0)) for x, d in zip(starts, dims)]
                    found.setdefault(access.place.tensor, []).append((tile, cta, box, access.op))
    for boxes in found.values():
        for (i, r, x, _), (j, s, y, op) in combinations(boxes, 2):
            if (i, r) != (j, s) and all(
                p < d and q < c for (p, c), (q, d) in zip(x, y, strict=True)
            ):
                return op
    return None


def _number(of: Linear, held: Mapping[Any, int], sums: Sums) -> int | None:
    total = of.number
    for term, times in of.terms:
        meaning = sums.meanings[term] if isinstance(term, int) else term
        value = held.get(meaning)
        if value is None and isinstance(meaning, tuple) and meaning[0] in FOLD:
            args = [_number(x, held, sums) if isinstance(x, Linear) else None for x in meaning[1:]]
            if None not in args and (args[-1] or meaning[0] not in ("floordiv", "mod")):
                value = FOLD[meaning[0]](*args)
        elif value is None and isinstance(meaning, tuple) and meaning[0] == "where":
            test, *either = (_number(x, held, sums) for x in meaning[1:])
            value = None if test is None else either[not test]
        if value is None:
            return None
        total += times * int(value)
    return total
