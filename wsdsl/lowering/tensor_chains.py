"""Which sums stay in tensor memory while products are added to them, of a TILE kernel.

    %acc = for_tiles(index=%k, init=(%zeros,), args=(%x,)) {
      %y = contract(a=%a, b=%b, acc=%x)
      yield(values=(%y,))
    }

The thread that multiplies adds to what lies there, and does nothing else with it: so a sum stays
there from zeros on as long as products are all that is added to it, and nobody else reads it. So
does what threads change in front of products that wait for them in any case (`updated_sums.py`).
Other changes of accumulators are made in registers (`passes/split_accumulate.py`).
"""

from collections import Counter
from collections.abc import Iterator, Mapping

from wsdsl.ir.analysis.intervals import walks_a_part
from wsdsl.ir.op import Kernel, Op, Region, Value, once, operands, regions, results_of
from wsdsl.ir.ops import Cast, Contract, DimLoop, ForEach, ForTiles, Map, Reduce
from wsdsl.ir.rewriter import uses, walk, yielded
from wsdsl.ir.types import Tile
from wsdsl.lowering.axes import output_nest
from wsdsl.lowering.updated_sums import updates
from wsdsl.record import record


@record
class Chains:
    """`sums` lie in tensor memory; those of them that products go on with, or that a loop hands on
    to its next iteration, are `continued`. The others are handed to who computes.
    """

    sums: frozenset[Value]
    continued: frozenset[Value]

    def ends(self, op: Op) -> list[Value]:
        """What an op makes that others take."""
        return [v for v in results_of(op) if v in self.sums and v not in self.continued]


@once
def chains(kernel: Kernel) -> Chains:
    """Of a kernel whose sums have been taken apart."""
    body = output_nest(kernel)[1]
    sums, continued = set[Value](), set[Value]()
    counts, changed = Counter(uses(body)), updates(kernel)
    for op in walk(body):
        if isinstance(op, Contract):
            sums.add(op.result)
            continued |= {op.acc} if op.acc is not None else set()
        for n in staying(op, counts):
            assert isinstance(op, DimLoop)
            sums |= {op.args[n], op.result[n]}
            continued |= {op.init[n], yielded(op.body)[n]}
        if (update := changed.get(op)) is not None:
            assert isinstance(op, DimLoop)
            sums |= {update.arg, op.result[update.place]}
            continued |= {op.init[update.place], update.product.result}
    return Chains(frozenset(sums), frozenset(continued))


def staying(op: Op, counts: Mapping[Value, int]) -> list[int]:
    """Places of what a loop does nothing with but add products to it; `counts`: how often each
    value is used.
    """
    if not isinstance(op, DimLoop):
        return []
    carried = enumerate(zip(op.args, yielded(op.body), strict=True))
    return [n for n, (arg, last) in carried if _is_added_to(op.body, arg, last, counts)]


def _is_added_to(body: Region, arg: Value, last: Value, counts: Mapping[Value, int]) -> bool:
    made = {v: op for op in body for v in results_of(op)}
    value = last
    while value != arg:
        op = made.get(value)
        before: Value | None = None
        if isinstance(op, Contract):
            before = op.acc
        elif isinstance(op, DimLoop) and not walks_a_part(op):
            # Of a part none may be there in one iteration, and some in another.
            n = op.result.index(value)
            before = op.init[n] if n in staying(op, counts) else None
        if before is None or counts[value] != 1:
            return False
        value = before
    return last != arg and counts[arg] == 1


def hands_on_inside(op: Op, found: Chains) -> bool:
    """Whether products in an op's regions make what threads take there."""
    return any(found.ends(inner) for region in regions(op) for inner in walk(region))


def is_read(op: Op, values: set[Value]) -> bool:
    """Whether an op, or one in its regions, takes any of these."""
    return any(values & {*operands(inner)} for inner in walk((op,)))


@once
def held_by_threads(kernel: Kernel) -> tuple[Tile, ...]:
    """Tiles of rows and columns that a loop carries, or that are reduced in one: of these all
    columns are there before anything is made of them.
    """
    found = chains(kernel)
    loops = kernel.of(ForTiles, ForEach)
    carried = {v for op in loops for v in (*op.args, *op.result)}
    held = list[Tile]()
    for loop in loops:
        for init, arg in zip(loop.init, loop.args, strict=True):
            # What goes on from one loop to the next, or into an inner one, is the same registers.
            if arg not in found.sums and init not in carried and len(arg.axes) == 2:
                held.append(arg.as_tile)
        for op in loop.body if loop.args else ():
            held += (v.as_tile for v in found.ends(op) if any(_reduced(loop.body, v)))
    return tuple(held)


def _reduced(body: Region, value: Value) -> Iterator[bool]:
    """Whether a block reduces what it makes of a value, element by element."""
    following = {value}
    for op in body:
        if following & {*operands(op)}:
            yield isinstance(op, Reduce)
            following |= {*results_of(op)} if isinstance(op, (Cast, Map)) else set()
