"""Semaphores in GMEM."""

from wsdsl.codegen.addresses.gmem_addresses import Addresses
from wsdsl.codegen.emission_context import Context
from wsdsl.codegen.inline_ptx import Global, number_or_value, predicate, predicate_operand
from wsdsl.codegen.value_registers import Shape
from wsdsl.ir import ops


def convert_semaphore_arrive(c: Context, op: ops.SemaphoreArrive) -> None:
    kind, amount = "add.s32", str(op.amount) if op.by is None else c.scalar(op.by).text
    if op.wrap is not None:
        kind, amount = "inc.u32", c.scalar(op.wrap).text
    order, at, pred = "release" if op.release else "relaxed", _address(c, op), c.one_thread()
    shown, args = number_or_value(amount)
    ptx = f"red.{order}.gpu.global.{kind} {at.ptx(0)}, {shown};"
    operands = [at.operand, *args, *predicate_operand(pred)]
    c.w.asm(f"{predicate(pred, 1 + len(args))}{ptx}", operands)


def convert_semaphore_wait(c: Context, op: ops.SemaphoreWait) -> None:
    at = _address(c, op)
    ptx = (
        "{\n.reg .pred less;\n.reg .b32 seen;\n"
        "WAIT_${:uid}:\n"
        f"ld.acquire.gpu.global.b32 seen, {at.ptx(0)};\n"
        "setp.lt.s32 less, seen, $1;\n"
        "@less bra WAIT_${:uid};\n}"
    )
    c.w.asm(ptx, [at.operand, ("i32", c.scalar(op.count).text)])


def _address(c: Context, op: ops.SemaphoreArrive | ops.SemaphoreWait) -> Global:
    return Addresses(c, op.tensor, op.index, Shape(1, 1)).at(0)
