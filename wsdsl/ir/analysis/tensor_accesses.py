"""Which tensors in GMEM the ops of a TILE or SCHEDULED kernel access, and what they do to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from wsdsl.ir import ops
from wsdsl.ir.effects import Access, Arrive, Effects, Wait
from wsdsl.ir.op import Kernel, Op, Value, effects, once
from wsdsl.ir.types import Tensor, TensorMap
from wsdsl.record import record


@record
class Touch:
    """An access to `tensor`, by name. `adds`: it writes what it adds to what is there."""

    tensor: str
    reads: bool = False
    writes: bool = False
    adds: bool = False
    flag: bool = False
    """Of flags, which others change while they are waited for."""


@once
def mapped_tensors(kernel: Kernel) -> Mapping[Value, str]:
    """By a tensor map's value."""
    return {op.result: op.tensor.name for op in kernel.making(TensorMap)}


def touch_in(effects: Effects) -> Touch | None:
    """Return the access to GMEM of an op with these effects, if it has one."""
    for effect in effects:
        if isinstance(effect, Access) and effect.space == "gmem" and effect.of is not None:
            kind = effect.kind
            return Touch(effect.of.name, kind == "read", kind != "read", kind == "add")
        if isinstance(effect, Arrive | Wait) and effect.on == "semaphore" and effect.of is not None:
            return Touch(effect.of.name, True, True, flag=True)
    return None


def is_load(op: Op | None) -> bool:
    """Return whether an op reads GMEM, and may do so again."""
    return op is not None and op.repeatable and not op.pure


@once
def touches(kernel: Kernel) -> Sequence[tuple[Op, Touch]]:
    found = ((op, touch_in(stated)) for op, stated in kernel.effects if stated)
    return [(op, touch) for op, touch in found if touch is not None]


def _direct_tensor(op: Op, kernel: Kernel) -> Value | None:
    """Return the tensor whose address an op has: it accesses the tensor, or prefetches a part."""
    tensor: object = getattr(op, "tensor", None)
    if op.result_type is TensorMap or not isinstance(tensor, Value):
        return None
    stated = kernel.effects_of[id(op)]
    return tensor if not effects(type(op)) or touch_in(stated) is not None else None


def direct_tensors(kernel: Kernel) -> dict[str, Tensor]:
    """Return the tensors whose address ops have, by name."""
    found = (_direct_tensor(op, kernel) for op in kernel.having("tensor"))
    return {tensor.name: tensor.as_tensor for tensor in found if tensor is not None}


def sized_dims(kernel: Kernel) -> dict[str, None]:
    """Return the dimensions whose sizes ops need, in textual order."""
    dims: dict[str | int, None] = {}
    for op in kernel.of(ops.DimSize, *{type(op): None for op in kernel.having("tensor")}):
        if isinstance(op, ops.DimSize):
            dims[op.dim] = None
        elif (tensor := _direct_tensor(op, kernel)) is not None:
            dims |= dict.fromkeys(tensor.as_tensor.dims)
    return {d: None for d in dims if isinstance(d, str)}


@once
def written_tensors(kernel: Kernel) -> frozenset[str]:
    """Tensors that change while the kernel runs."""
    return frozenset(touch.tensor for _, touch in touches(kernel) if touch.writes)
