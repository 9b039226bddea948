"""What of a part of a kernel depends on an index."""

from wsdsl.ir.op import Op, Region, Value, bound, operands, regions, results_of
from wsdsl.ir.ops import Contract, DimLoop, ForTiles, If
from wsdsl.ir.rewriter import used_inside, walk, yielded


def depending(body: Region, index: Value) -> set[Value]:
    """The index, and what is computed from it, handed on by loops and conditions as well."""
    known, before = {index}, 0
    while len(known) > before:
        before = len(known)
        for op in walk(body):
            is_loop = isinstance(op, DimLoop)
            if known & ({*ways(op)} if is_loop else {*operands(op)}):
                known |= {*results_of(op), *bound(op)}
            if is_loop:
                # What a loop begins with does not tell how often it runs.
                for first, *others in zip(op.init, op.args, op.result, strict=True):
                    known |= {*others} if first in known else set()
            for region in regions(op):
                for n, value in enumerate(yielded(region)):
                    if value in known:
                        args = op.args[n : n + 1] if is_loop else ()
                        known |= {*results_of(op)[n : n + 1], *args}
    return known


def loops_depend(body: Region, varies: set[Value]) -> bool:
    """Whether how often a loop runs, or what a condition takes, does."""
    return any(varies & {*ways(op)} for op in walk(body))


def ways(op: Op) -> tuple[Value, ...]:
    """What tells how often a loop runs, and where it begins, or what a condition takes."""
    match op:
        case ForTiles(start=start, stop=stop):
            return tuple(v for v in (start, stop) if v is not None)
        case If(cond=cond):
            return (cond,)
        case _:
            return ()


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
            if isinstance(loop, DimLoop):
                sums |= {v for v, arg in zip(loop.init, loop.args, strict=True) if arg in sums}
        used = {*operands(op), *used_inside(op)} - sums
        link = max((behind.get(v, 0) for v in used), default=0)
        found.append(link)
        own = link + 1 if products else max((behind.get(v, 0) for v in operands(op)), default=0)
        behind |= dict.fromkeys(results_of(op), own)
    return found
