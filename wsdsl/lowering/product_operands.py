"""What products read: where the table of edges begins, and what is asked before there is one."""

from __future__ import annotations

from collections.abc import Mapping

from wsdsl.ir.op import Kernel, Op, Value, once
from wsdsl.ir.tile_ops import Bitcast, Cast, Contract, ForEach, ForTiles, Load, Lookup, Map
from wsdsl.ir.walk import made_of


@once
def multiplied(kernel: Kernel) -> frozenset[Value]:
    """The operands of products. One that is loaded from a packed tensor counts as computed: threads
    hold it before it is multiplied.
    """
    packed = {op.result for op in kernel.of(Load) if op.packed}
    return frozenset(v for op in kernel.of(Contract) for v in (op.a, op.b) if v not in packed)


def computed_operands(kernel: Kernel, op: Contract) -> list[Value]:
    """Those of a product that are not loaded as they are."""
    return [v for v in (op.a, op.b) if v not in operand_loads(kernel)]


@once
def operand_loads(kernel: Kernel) -> frozenset[Value]:
    """Operands that are loaded as they are."""
    return frozenset(op.result for op in kernel.of(Load) if op.result in multiplied(kernel))


@once
def operand_scales(kernel: Kernel) -> frozenset[Value]:
    """Tiles of scales that the tensor cores multiply operands by."""
    return frozenset(v for op in kernel.of(Contract) for v in op.scales)


@once
def multiplied_tensors(kernel: Kernel) -> frozenset[Value]:
    return frozenset(op.tensor for op in kernel.of(Load) if op.result in multiplied(kernel))


@once
def copied_operands(kernel: Kernel) -> frozenset[str]:
    """Those that threads copy, since TMA can not take them."""
    return frozenset(tensor.name for tensor in multiplied_tensors(kernel)) & {*kernel.unaligned}


def of_product(value: Value, made: Mapping[Value, Op]) -> bool:
    """Whether a value is made of a product's results in the same loop."""
    ops = made_of((value,), made, lambda op: not isinstance(op, (ForTiles, ForEach)))
    return any(isinstance(op, Contract) for _, op in ops)


def is_elementwise(op: Op) -> bool:
    """Whether an element of the result is made of the same element of each operand."""
    return isinstance(op, (Bitcast, Cast, Lookup, Map))
