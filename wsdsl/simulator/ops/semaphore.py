"""Semaphores in GMEM, on which CTAs of a grid synchronize."""

import numpy as np

from wsdsl.ir import ops
from wsdsl.simulator.reference.arithmetic import Array
from wsdsl.simulator.warpgroup import Blocked, Steps, Warpgroup


def _flag(
    wg: Warpgroup, op: ops.SemaphoreArrive | ops.SemaphoreWait
) -> tuple[Array, tuple[int, ...]]:
    tensor = wg.cta.arguments.tensors[op.tensor.name]
    at = tuple(int(wg.get(i, op)) for i in op.index)
    if tensor.dtype.name != "i32":
        wg.fail(op, f"flags in {tensor.name}, of {tensor.dtype}", hint="use a tensor of i32")
    shape = tensor.array.shape
    if len(at) != len(shape) or any(not 0 <= i < n for i, n in zip(at, shape, strict=True)):
        wg.outside(op, f"flag {tensor.name}{list(at)} is outside the shape {list(shape)}")
    return tensor.array, at


def semaphore_arrive(wg: Warpgroup, op: ops.SemaphoreArrive) -> None:
    array, at = _flag(wg, op)
    before = array[at]
    with np.errstate(over="ignore"):
        after = array[at] = _after(wg, op, before)
    wg.effect(op, "arrive", "flag", wg.one, at, op.tensor.name, -1)
    flags = wg.cta.residents.flags
    message = flags.arrive((op.tensor.name, at), int(before), int(after), wg.one, op.release)
    if message:
        wg.fail(op, f"it arrives on {op.tensor.name}{list(at)}; {message}", kind="race")


def _after(wg: Warpgroup, op: ops.SemaphoreArrive, before: np.int32) -> np.int32:
    if op.wrap is not None:
        return np.int32(0 if before >= int(wg.get(op.wrap, op)) else before + 1)
    return np.int32(before + np.int32(op.amount if op.by is None else wg.get(op.by, op)))


def semaphore_wait(wg: Warpgroup, op: ops.SemaphoreWait) -> Steps:
    array, at = _flag(wg, op)
    count = int(wg.get(op.count, op))
    if array[at] < count:
        yield Blocked(
            op,
            lambda: bool(array[at] >= count),
            lambda: f"flag {op.tensor.name}{list(at)} to reach {count}; it is {array[at]}",
        )
    wg.effect(op, "wait", "flag", wg.actors, at, op.tensor.name, -1)
    wg.cta.residents.flags.acquire((op.tensor.name, at), int(array[at]), count, wg.actors)
