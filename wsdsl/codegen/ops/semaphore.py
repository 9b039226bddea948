"""Semaphores in GMEM."""

from __future__ import annotations

from wsdsl.codegen import inline_ptx
from wsdsl.codegen.addresses.gmem_addresses import Addresses
from wsdsl.codegen.emission_context import Context
from wsdsl.codegen.value_registers import Shape
from wsdsl.ir import ops


def convert_semaphore_arrive(c: Context, op: ops.SemaphoreArrive) -> None:
    kind, amount = "add.s32", str(op.amount) if op.by is None else c.scalar(op.by).text
    if op.wrap is not None:
        kind, amount = "inc.u32", c.scalar(op.wrap).text
    order = "release" if op.release else "relaxed"
    inline_ptx.flag_arrive(c.w, _flag(c, op), f"{order}.gpu.global.{kind}", amount, c.one_thread())


def convert_semaphore_wait(c: Context, op: ops.SemaphoreWait) -> None:
    inline_ptx.flag_wait(c.w, _flag(c, op), c.scalar(op.count).text)


def _flag(c: Context, op: ops.SemaphoreArrive | ops.SemaphoreWait) -> inline_ptx.Global:
    return Addresses(c, op.tensor, op.index, Shape(1, 1)).at(0)
