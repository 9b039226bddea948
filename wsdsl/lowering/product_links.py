"""How long the chain of products is that stands in front of each op of a block: each is made of the
results of the one before it.
"""

from __future__ import annotations

from wsdsl.ir.op import Region, Value, operands, results_of
from wsdsl.ir.tile_ops import Contract, ForEach, ForTiles
from wsdsl.ir.walk import used_inside, walk


def links_of(block: Region) -> list[int]:
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
