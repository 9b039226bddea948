"""Let products add to the accumulator in place.

Before:
    %p: f32[m, n] = contract(a=%a, b=%b)
    %y: f32[m, n] = map(fn="add", args=(%x, %p))
After:
    %y: f32[m, n] = contract(a=%a, b=%b, acc=%x)

MMAs of fp8 are not fused, unless the schedule has `mma_promotion_interval=0`: the tensor cores
accumulate in fewer bits than f32 has, so their accumulators are promoted by FADD.

An accumulator that a loop carries from anything but zeros is carried from zeros instead, and its
initial value is added after the loop: other instructions must not write the registers of an
accumulator first.

Why here: before anything looks at who uses a product.
"""

import dataclasses
from collections import Counter

from wsdsl.ir.hardware.wgmma_shapes import is_fp8
from wsdsl.ir.op import Kernel, Op, Region, Value, with_fields
from wsdsl.ir.ops import Constant, Contract, DimLoop, Full, Map
from wsdsl.ir.rewriter import Namer, uses, with_regions, yielded
from wsdsl.ir.types import Tile, Type
from wsdsl.lowering.precision import promotes
from wsdsl.lowering.split_k_rules import grows
from wsdsl.lowering.zero_padding import tiles_of_zeros


def fuse_accumulators(kernel: Kernel) -> Kernel:
    fused = _fuse(kernel, kernel.body, Counter(uses(kernel.body)))
    return kernel.with_body(_from_zeros(fused, Namer.of(kernel), tiles_of_zeros(fused)))


def _fuse(kernel: Kernel, region: Region, counts: Counter[Value]) -> Region:
    precise = promotes(kernel.schedule)
    alone = (op for op in region if isinstance(op, Contract) and op.acc is None)
    products = {op.result: op for op in alone if not (precise and is_fp8(op.dtype))}
    fused: dict[Value, Contract] = {}
    moved: set[Value] = set()
    for op in region:
        if not (isinstance(op, Map) and op.fn == "add"):
            continue
        for product, acc in (op.args[::-1], op.args):
            made = products.get(product)
            kinds = acc.type, product.type, op.result.type
            if made and counts[product] == 1 and _are_alike(kernel, *kinds):
                fused[op.result] = dataclasses.replace(made, result=op.result, acc=acc)
                moved.add(products.pop(product).result)
                break
    kept: list[Op] = []
    for op in region:
        if isinstance(op, Map) and op.result in fused:
            kept.append(fused[op.result])
        elif not (isinstance(op, Contract) and op.result in moved):
            kept.append(with_regions(op, lambda inner: _fuse(kernel, inner, counts)))
    return tuple(kept)


def _are_alike(kernel: Kernel, acc: Type, product: Type, result: Type) -> bool:
    """In tensor memory a sum has rows and columns, whichever axis is named first."""
    if kernel.target.has_tensor_memory and isinstance(product, Tile) and isinstance(acc, Tile):
        return acc == result and acc.dtype == product.dtype and {*acc.axes} == {*product.axes}
    return acc == product == result


def _from_zeros(region: Region, namer: Namer, ready: set[Value]) -> Region:
    """`ready`: accumulators that MMAs may add to: zeros, or sums of MMAs that began with zeros."""
    made: list[Op] = []
    for op in region:
        if isinstance(op, Contract) and (op.acc is None or op.acc in ready):
            ready.add(op.result)
        if not isinstance(op, DimLoop):
            made.append(with_regions(op, lambda inner: _from_zeros(inner, namer, ready)))
            continue
        init, result, after = list(op.init), list(op.result), list[Op]()
        for i, last in enumerate(yielded(op.body)):
            kind = op.init[i].as_tile
            arg = op.args[i]
            if arg == last or not grows(op.body, arg, last, by_products=True):
                continue
            if op.init[i] not in ready:
                zero = Value(namer.new("zero"), Tile(kind.dtype))
                init[i] = Value(namer.new("zeros"), kind)
                nothing = 0.0 if kind.dtype.is_float else 0
                made.append(Constant(result=zero, value=nothing, loc=op.loc))
                made.append(Full(result=init[i], value=zero, loc=op.loc))
                result[i] = Value(namer.new(op.result[i].name), kind)
                args = (op.init[i], result[i])
                after.append(Map(result=op.result[i], fn="add", args=args, loc=op.loc))
            ready.update((op.args[i], result[i]))
        body = _from_zeros(op.body, namer, ready)
        made.append(with_fields(op, init=tuple(init), result=tuple(result), body=body))
        made += after
    return tuple(made)
