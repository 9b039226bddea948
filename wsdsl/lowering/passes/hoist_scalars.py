"""Load numbers that are the same for all tiles once, in front of the loop over them.

Before:
    %s2 = for_range(index=%work, ...) {
      %acc1, %s1 = for_range(index=%k, ...) { ... }
      %a: f32 = load_global(tensor=%a_scale, index=(%c0,))
      %b: f32 = load_global(tensor=%b_scale, index=(%c0,))
      %ab: f32 = map(fn="mul", args=(%a, %b))
      %y = map(fn="mul", args=(%acc1, %ab))
      ...
    }
After:
    %a: f32 = load_global(tensor=%a_scale, index=(%c0,))
    %b: f32 = load_global(tensor=%b_scale, index=(%c0,))
    %ab: f32 = map(fn="mul", args=(%a, %b))
    %s2 = for_range(index=%work, ...) {
      %acc1, %s1 = for_range(index=%k, ...) { ... }
      %y = map(fn="mul", args=(%acc1, %ab))
      ...
    }

Behind the products nothing hides the way to GMEM, not even where consumers are in ping-pong, if
sums are short. A few are moved, since each takes a register of those that sums leave. Tensors that
the kernel writes are left alone, and so are load partitions: they may start before the kernel in
front is over.

Why here: in front of `insert_prologue`, which has whoever touches GMEM wait for that kernel first.
"""

from functools import partial

from wsdsl.ir.analysis.tensor_accesses import written_tensors
from wsdsl.ir.op import Kernel, Op, Value, bound, operands, results_of, with_fields
from wsdsl.ir.ops import Cast, Constant, LoadGlobal, Loop, Map, Partition, with_partitions
from wsdsl.ir.rewriter import rewrite, walk
from wsdsl.ir.types import Tile

MOST_BITS = 4 * 32


def hoist_scalars(kernel: Kernel) -> Kernel:
    if not kernel.of(LoadGlobal):
        return kernel
    written = written_tensors(kernel)
    return with_partitions(kernel, partial(_partition, written=written), "compute")


def _partition(partition: Partition, written: frozenset[str]) -> Partition:
    body = partition.body
    first = next((i for i, op in enumerate(body) if isinstance(op, Loop)), None)
    if first is None:
        return partition
    later = {v for op in walk(body[first:]) for v in (*results_of(op), *bound(op))}
    constants: dict[Value, Op] = {}
    moved: list[Op] = []
    made: set[Value] = set()
    bits = 0
    for op in walk(body[first:]):
        if isinstance(op, Constant):
            constants[op.result] = op
        needed = later & {*operands(op)} - made
        scalars = all(isinstance(v.type, Tile) and not v.type.axes for v in results_of(op))
        if not (scalars and needed <= {*constants}):
            continue
        load = isinstance(op, LoadGlobal) and op.tensor.name not in written
        derived = isinstance(op, (Map, Cast)) and made & {*operands(op)}
        if (load and bits < MOST_BITS) or derived:
            moved += [constants[v] for v in dict.fromkeys(operands(op)) if v in needed]
            moved.append(op)
            made |= {*needed, *results_of(op)}
            bits += load and _bits(op)
    rest = rewrite(body[first:], lambda op: () if op in moved else (op,))
    return with_fields(partition, body=(*body[:first], *moved, *rest))


def _bits(op: Op) -> int:
    """Of a register: bytes are mostly put together in one."""
    (made,) = results_of(op)
    return made.type.dtype.bits if isinstance(made.type, Tile) else 0
