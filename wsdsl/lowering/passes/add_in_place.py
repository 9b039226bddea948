"""Read, add and store elements to which nobody else adds, where additions in memory take longer.

Before:
    for_tiles(index=%m: axis<m of M>) {
      for_tiles(index=%n: axis<n of N>) {
        store(tensor=%Y, index=(%m, %n), value=%x, accumulate=True)
After:
    for_tiles(index=%m: axis<m of M>) {
      for_tiles(index=%n: axis<n of N>) {
        %y: bf16[m, n] = load(tensor=%Y, index=(%m, %n))
        %y_wide: f32[m, n] = cast(x=%y)
        %x_wide: f32[m, n] = cast(x=%x)
        %sum: f32[m, n] = map(fn="add", args=(%y_wide, %x_wide))
        store(tensor=%Y, index=(%m, %n), value=%sum)

Of a kernel without products: on an H100 L2 adds some 0.9 TB/s of vectors, and memory gives and
takes three times as much. Each element is one iteration's if all loops of the output have their
index in that of the store; nothing else may touch the tensor. Where something is reduced, several
threads or pieces have a result, and one of them adds it. Tiles that are loaded along another
axis stay as they are: what is read and stored in place is not turned.

Why here: what a kernel may not read and store is refused next.
"""

from collections import Counter

from wsdsl.ir.analysis.tensor_accesses import touches
from wsdsl.ir.op import Kernel, Op, Region, Value, regions, with_fields
from wsdsl.ir.ops import Cast, Contract, Load, Map, Reduce, Store
from wsdsl.ir.rewriter import Namer, rewrite
from wsdsl.ir.types import F32, DType, Tile
from wsdsl.lowering.axes import output_nest


def add_in_place(kernel: Kernel) -> Kernel:
    nest, body = output_nest(kernel)
    if kernel.of(Contract) or kernel.of(Reduce) or any(map(regions, body)):
        return kernel
    times = Counter(touch.tensor for _, touch in touches(kernel))
    own = {
        op
        for op in body
        if isinstance(op, Store)
        and op.accumulate
        and times[op.tensor.name] == 1
        and {loop.index for loop in nest} <= {*op.index}
        and all(load.last == op.last for load in kernel.of(Load) if len(load.axes) > 1)
        and {*op.value.axes} <= {axis.name for axis in op.axes}
    }
    namer = Namer.of(kernel)

    def change(op: Op) -> Region:
        return _added(op, namer) if isinstance(op, Store) and op in own else (op,)

    return kernel.with_body(rewrite(kernel.body, change)) if own else kernel


def _added(op: Store, namer: Namer) -> Region:
    name, axes = op.tensor.name.lower(), tuple(axis.name for axis in op.axes)
    there = Value(namer.new(name), Tile(op.dtype, axes))
    ops: list[Op] = [Load(result=there, tensor=op.tensor, index=op.index, loc=op.loc)]

    def converted(value: Value, to: DType, wish: str) -> Value:
        kind = value.as_tile
        if kind.dtype == to:
            return value
        made = Value(namer.new(wish), Tile(to, kind.axes))
        saturate = kind.dtype.is_integer and to.is_integer  # as a store converts
        ops.append(Cast(result=made, x=value, saturate=saturate, loc=op.loc))
        return made

    to = F32 if op.dtype.is_float else op.dtype
    # As in memory: what is added has the tensor's precision.
    own = converted(op.value, op.dtype, f"{op.value.name}_{op.dtype}")
    args = tuple(converted(value, to, f"{value.name}_wide") for value in (there, own))
    total = Value(namer.new("sum"), Tile(args[0].as_tile.dtype, axes))
    ops.append(Map(result=total, fn="add", args=args, loc=op.loc))
    return (*ops, with_fields(op, value=total, accumulate=False))
