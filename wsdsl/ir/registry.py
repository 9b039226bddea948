"""Every op by its textual name."""

from __future__ import annotations

from types import ModuleType

from wsdsl.ir import (
    barrier_ops,
    counter_ops,
    fragment_ops,
    memory_ops,
    pipeline_ops,
    prefetch_ops,
    slot_ops,
    tensor_ops,
    tile_ops,
    transpose_ops,
)
from wsdsl.ir.op import Op, op_name

MODULES: tuple[ModuleType, ...] = (
    tile_ops, pipeline_ops, slot_ops, barrier_ops, memory_ops, prefetch_ops, counter_ops,
    fragment_ops, tensor_ops, transpose_ops,
)  # fmt: skip

OPS: dict[str, type[Op]] = {
    op_name(cls): cls
    for module in MODULES
    for cls in vars(module).values()
    if isinstance(cls, type) and issubclass(cls, Op) and cls.__module__ == module.__name__
}
