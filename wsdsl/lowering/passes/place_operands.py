"""Say where computed operands of products are made that can not be made in registers, where the
schedule leaves that open (`Schedule.operand_transform`).

Before:
    %a: bf16[m, k] = cast(x=%a_loaded)    # from A, of f32
    %b: bf16[n, k] = cast(x=%b_loaded)    # from B, of i8
    %t: f32[m, n] = contract(a=%a, b=%b)
After: the same, with `schedule=Schedule(operand_transform=dict(A="smem"))`

The tensor cores take one operand of a product from registers, of 16 bits, whose own axis is the
rows of the fragments that a kernel holds. What does not fit that is made in SMEM, if it is made of
loads alone. Of two operands that could be in registers the one stays there of which fewer bits are
loaded an element: it has the most to gain from not crossing SMEM a second time. Where products are
summed in tensor memory, none comes from registers.

Why here: everything that asks for roles, slots or partitions reads the schedule.
"""

import dataclasses
from collections.abc import Iterator

from wsdsl.diagnostics import WsdslError
from wsdsl.ir.op import Kernel, Value
from wsdsl.ir.ops import Contract, Load
from wsdsl.lowering.assign_roles import assign_roles
from wsdsl.lowering.decode import decoded, loads_of, places_of, tensors_of
from wsdsl.lowering.product_operands import computed_operands
from wsdsl.schedule import FrozenDict, Place, Schedule


def place_operands(kernel: Kernel) -> Kernel:
    asked = kernel.schedule.operand_transform if kernel.schedule else None
    open_ones = [v for op in kernel.of(Contract) for v in computed_operands(kernel, op)]
    open_ones = [v for v in open_ones if not places_of(asked, tensors_of(kernel, v))]
    if isinstance(asked, str) or not open_ones:
        return kernel
    beside = _with(kernel, open_ones)
    may_be = [v for v in open_ones if v in decoded(beside).tiles]
    unfit = may_be if kernel.target.has_tensor_memory else {*_unfit(kernel, beside)}
    needed = [v for v in may_be if v in unfit]
    made = _with(kernel, needed) if needed else kernel
    if may_be and not _has_roles(made) and _has_roles(every := _with(kernel, may_be)):
        return every
    return made


def _unfit(kernel: Kernel, beside: Kernel) -> Iterator[Value]:
    """Operands that can not be made in registers."""
    may_be = decoded(beside).tiles
    for op in kernel.of(Contract):
        computed = [v for v in computed_operands(kernel, op) if v not in decoded(kernel).tiles]
        yield from (v for v in computed if v.as_tile.dtype.bits != 16)
        if len(computed) > 1:
            yield max(
                computed, key=lambda v: (v in may_be, not _is_packed(kernel, v), _bits(kernel, v))
            )


def _has_roles(kernel: Kernel) -> bool:
    if any(len(free) != 1 for op in kernel.of(Contract) for free in op.free):
        return True  # not lowered in any case, and told of later
    try:
        assign_roles(kernel)
    except WsdslError:
        return False
    return True


def _with(kernel: Kernel, shared: list[Value]) -> Kernel:
    """These in SMEM."""
    given = kernel.schedule or Schedule()
    places = given.operand_transform
    held: dict[str, Place] = dict(places) if isinstance(places, FrozenDict) else {}
    for value in shared:
        whole = {op.tensor.name for op in _of_each_element(kernel, value)}
        held |= dict.fromkeys(sorted(whole or tensors_of(kernel, value)), "smem")
    return dataclasses.replace(kernel, schedule=dataclasses.replace(given, operand_transform=held))


def _is_packed(kernel: Kernel, operand: Value) -> bool:
    """Whether it is multiplied as it is, in the order of registers."""
    made = kernel.definers[operand]
    return isinstance(made, Load) and made.packed


def _of_each_element(kernel: Kernel, operand: Value) -> list[Load]:
    """Loads that have all of an operand's axes."""
    axes = {*operand.as_tile.axes}
    return [op for op in loads_of(kernel, operand) if {*op.result.as_tile.axes} >= axes]


def _bits(kernel: Kernel, operand: Value) -> int:
    """Loaded for an element."""
    return sum(op.dtype.bits for op in _of_each_element(kernel, operand))
