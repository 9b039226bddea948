"""Load tiles of kernels without products before the iteration that needs them.

Before:
    for_range(index=%work, ..., step=%c132) {
      %x: frag<bf16[1x8192]> = load_global(tensor=%X, index=(%work, %n_index))
      ...
    }
After, with `stages=2`:
    %x0 = load_global(tensor=%X, index=(%cta, %n_index0))
    for_range(index=%work, ..., step=%c132, init=(%x0,), args=(%x1,)) {
      %next: i32 = map(fn="add", args=(%work, %c132))
      %x2 = load_global(tensor=%X, index=(%next, %n_index1), in_order=True)
      ... with %x1 ...
      yield(values=(%x2,))
    }

While threads wait for each other in an iteration, for what they reduce of a row, memory would have
nothing to do. There are `stages` tiles in a thread's registers, with the one that it computes with.

A load stays where it is of a tensor that the kernel writes, one whose place another load tells or
that tells another access its place, and one that each iteration repeats. What is loaded behind the
last iteration nobody reads; where that is outside of the tensor, it is not read from memory.

Why here: behind `lower_tiles`, which reads tiles where they are used.
"""

from collections.abc import Mapping

from wsdsl.ir.analysis.tensor_accesses import written_tensors
from wsdsl.ir.op import Kernel, Op, Region, Value, operands, results_of, with_fields
from wsdsl.ir.ops import ForRange, LoadGlobal, Partition, StoreGlobal, Yield
from wsdsl.ir.rewriter import Namer, copy_region, makers, replace_operands, rewrite, walk, yielded
from wsdsl.lowering.builder import Builder
from wsdsl.lowering.loads_ahead import with_place


def load_tiles_ahead(kernel: Kernel) -> Kernel:
    stages = (kernel.schedule and kernel.schedule.stages) or 1
    if stages == 1 or any(op.role != "compute" for op in kernel.of(Partition)):
        return kernel
    b, stored = Builder(Namer.of(kernel)), written_tensors(kernel)

    def change(op: Op) -> Region:
        if not isinstance(op, ForRange):
            return (op,)
        with b.region() as made:
            b.add(_ahead(op, b, stored, stages - 1))
        return tuple(made)

    return kernel.with_body(rewrite(kernel.body, change))


def _ahead(loop: ForRange, b: Builder, stored: frozenset[str], iterations: int) -> ForRange:
    """The loop with its loads so many iterations ahead; adds the first ones in front of it."""
    own = [op for op in loop.body if isinstance(op, LoadGlobal) and op.tensor.name not in stored]
    carried, places = {*loop.args}, _places(loop.body)
    loads = [
        op
        for op in own
        if op.result not in places and _is_told_by(loop.index, with_place(loop.body, op), carried)
    ]
    if not loads:
        return loop
    b.loc = loop.loc
    together = makers(loop.body, [op.result for op in loads])
    indices = [loop.start]
    for _ in range(iterations - 1):
        indices.append(b.plus(indices[-1], loop.step, "next"))
    firsts = [_copies(together, b, {loop.index: index}) for index in indices]
    with b.region() as ahead:
        at = loop.index
        for _ in range(iterations):
            at = b.plus(at, loop.step, "next")
        last = _copies(together, b, {loop.index: at}, in_order=True)
    result, init, args, handed = list[Value](), list[Value](), list[Value](), list[Value]()
    swap = dict[Value, Value]()
    for load in loads:
        waiting = [b.value(load.result.name, load.result.type) for _ in indices]
        swap[load.result] = waiting[0]
        result += [b.value(load.result.name, load.result.type) for _ in indices]
        init += [made[load.result] for made in firsts]
        args += waiting
        handed += [*waiting[1:], last[load.result]]
    body = (replace_operands(op, swap) for op in loop.body[:-1] if op not in loads)
    before = (swap.get(value, value) for value in yielded(loop.body))
    return with_fields(
        loop,
        result=(*loop.result, *result),
        init=(*loop.init, *init),
        args=(*loop.args, *args),
        body=(*ahead, *body, Yield(values=(*before, *handed), loc=loop.loc)),
    )


def _places(body: Region) -> set[Value]:
    """What tells where accesses are of, which is not followed through what loops carry."""
    ops = [*walk(body)]
    found = {v for op in ops if isinstance(op, LoadGlobal | StoreGlobal) for v in op.index}
    for op in reversed(ops):
        if found & {*results_of(op)}:
            found |= {*operands(op)}
    return found


def _is_told_by(index: Value, place: Region, carried: set[Value]) -> bool:
    """Whether a loop's index alone tells where a load is of."""
    read = {value for op in place for value in operands(op)}
    return index in read and not read & carried


def _copies(
    ops: Region, b: Builder, swap: Mapping[Value, Value], in_order: bool = False
) -> dict[Value, Value]:
    """Adds the ops for another index; what stands for what they make."""
    made = copy_region(ops, b.namer, dict(swap))
    for op in made:
        is_load = in_order and isinstance(op, LoadGlobal)
        b.add(with_fields(op, in_order=True) if is_load else op)
    news = (value for op in made for value in results_of(op))
    return dict(zip((value for op in ops for value in results_of(op)), news, strict=True))
