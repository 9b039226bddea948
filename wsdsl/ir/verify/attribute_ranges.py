"""Types and ranges of the attributes of SCHEDULED ops.

A value outside would be cut off by the instruction's field, or taken by each reader of the op to
mean something else. Every attribute but flags has a range.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from functools import cache
from typing import Any

from wsdsl.ir.attribute_checks import BY_NAME, ROLES, Check
from wsdsl.ir.op import Kernel, Op
from wsdsl.ir.op_fields import fields_of, op_name
from wsdsl.ir.ops import ForWork, Partition


@cache
def typed_attributes(cls: type[Op]) -> tuple[tuple[str, Any, Check | None], ...]:
    """(name, type, range) of each attribute."""
    by_name = BY_NAME if "scheduled" in cls.levels else {}
    hints, ranges = typing.get_type_hints(cls), {**by_name, **cls.ranges}
    names = [name for name, kind in fields_of(cls) if kind == "attribute"]
    return tuple((name, hints[name], ranges.get(name)) for name in names)


def fits(held: Any, hint: Any) -> bool:
    """Return whether a value has the type. A bool is not an int."""
    if type(held) is hint:
        return True
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return any(fits(held, one) for one in arguments)
    if origin is not tuple or not isinstance(held, tuple):
        return False
    parts: tuple[Any, ...] = held  # pyright: ignore[reportUnknownVariableType]
    if arguments[1:] == (...,):
        return all(fits(x, arguments[0]) for x in parts)
    return len(parts) == len(arguments) and all(map(fits, parts, arguments))


def attributes_are_in_range(kernel: Kernel) -> Iterator[tuple[Op | None, str]]:
    for op in kernel.ops:
        for name, hint, check in typed_attributes(type(op)):
            held = getattr(op, name)
            if type(held) is not hint and not fits(held, hint):
                yield op, f"{op_name(type(op))}: {name}={held!r} is not of type {shown(hint)}"
            elif check is not None and (told := check(held)):
                yield op, f"{op_name(type(op))}: {name}={held!r} must be {told}"


def results_have_buffers(kernel: Kernel) -> Iterator[tuple[Op | None, str]]:
    """Of the level PARTITIONED."""
    for op in kernel.of(Partition):
        if op.staging < 1:
            yield op, f"staging={op.staging}: a warpgroup needs at least 1 staging buffer"
        if op.role not in ROLES:
            yield op, f"role={op.role!r} must be one of {', '.join(ROLES)}"
    for op in kernel.of(ForWork):
        counts = {len(told) for told in (op.dims, op.cluster or op.index, op.within or op.index)}
        if counts != {len(op.index)} or min(op.cluster, default=1) < 1:
            yield op, f"dims, cluster (at least 1) and within need {len(op.index)} entries"


def partitions_are_lowered(kernel: Kernel) -> Iterator[tuple[Op | None, str]]:
    """Check that no attribute for lowering is left."""
    for op in kernel.of(Partition):
        for name in ("in_order", "late_loads", "copies_ahead", "order_barriers", "asks_early"):
            if held := getattr(op, name):
                yield op, f"{name}={held} has no effect after lowering: remove it"


def shown(hint: Any) -> str:
    """As an error names a type."""
    return hint.__name__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint)
