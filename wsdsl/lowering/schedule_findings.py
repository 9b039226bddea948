"""Findings about a schedule that several checks report."""

from typing import TypeAlias

from wsdsl.diagnostics import Finding, Loc
from wsdsl.ir.op import Kernel
from wsdsl.ir.ops import Contract
from wsdsl.ir.types import Role
from wsdsl.lowering.axes import axes_of, loop_variable
from wsdsl.schedule import Schedule

At: TypeAlias = Loc | None
EXTENTS: dict[Role, str] = {"rows": "M extent", "columns": "N extent", "": "K extent"}
LEAVE = "leave it out"


def extent_fault(
    kernel: Kernel, axis: str, size: int, limit: str, loc: At = None, hint: str = ""
) -> Finding:
    products, role = kernel.of(Contract), axes_of(kernel)[axis].role
    free = {name for op in products for side in op.free for name in side}
    if any(axis in op.summed for op in products) and axis not in free:
        role = ""  # Operands that threads transform have roles along K, too.
    extent = EXTENTS[role] if products else role or "contracted"
    message = f"WS0445 tile {loop_variable(axis)}={size} ({extent}) must be {limit}"
    return Finding(message, loc, hint or f"use {limit.partition(':')[0]}")


def smem_fault(user: str, used: int, room: int, hint: str, loc: At = None) -> Finding:
    return Finding(f"WS0446 {user} {used} bytes of SMEM; a CTA has {room}", loc, hint)


def cluster_fault(chosen: Schedule, why: str, loc: At = None, hint: str = LEAVE) -> Finding:
    return Finding(f"WS0447 Schedule.cluster is {chosen.cluster}, and {why}", loc, hint)


def split_fault(chosen: Schedule, why: str, loc: At = None, hint: str = LEAVE) -> Finding:
    split = f'"{chosen.consumer_split}"'
    return Finding(f"WS0448 Schedule.consumer_split is {split}, and {why}", loc, hint)


def pair_fault(why: str, loc: At = None, hint: str = LEAVE) -> Finding:
    return Finding(f"WS0449 Schedule.cta_group is 2, and {why}", loc, hint)


def order_fault(why: str, loc: At = None, hint: str = LEAVE) -> Finding:
    return Finding(f"WS0450 Schedule.order_barriers is True, and {why}", loc, hint)
