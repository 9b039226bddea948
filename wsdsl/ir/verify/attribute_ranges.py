"""What values the attributes of SCHEDULED ops may have: of which type, and in which range.

A value outside would be cut off by the instruction's field, or taken by each reader of the op to
mean something else. Every attribute has a range but flags, of which both values mean something.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from wsdsl.ir import ops
from wsdsl.ir.hardware.swizzle import SWIZZLE_SPAN, TMA_SPAN
from wsdsl.ir.hardware.target import TARGETS
from wsdsl.ir.op import Kernel, Op
from wsdsl.ir.op_fields import fields_of, op_name
from wsdsl.ir.ops import ForWork, Partition
from wsdsl.ir.types import DTYPES

Check = Callable[[Any], str]
"""What the values are, if this is none of them; else ""."""
I32_MAX = 2**31 - 1
MAX_COUNT = 2**20 - 1
"""Arrivals, and bytes, that a phase of an mbarrier can await."""
ROLES = ("load", "decode", "scale", "mma", "compute")
MAX_GROUPS = 7
"""Groups of wgmmas that `wgmma.wait_group` can leave in flight."""


def between(least: int, most: int = I32_MAX, step: int = 1) -> Check:
    steps = f" in steps of {step}" if step > 1 else ""
    upward = f"{least} or more" if most == I32_MAX else f"{least} to {most}"
    return lambda x: "" if least <= x <= most and not x % step else upward + steps


def one_of(*known: Any) -> Check:
    return lambda x: "" if x in known else f"one of {', '.join(map(repr, known))}"


def each(check: Check) -> Check:
    return lambda held: next((f"{told} each" for x in held if (told := check(x))), "")


def extents(held: Any) -> str:
    """(dimension, elements) of tiles."""
    return each(between(1))([size for _, size in held])


def anything(held: Any) -> str:
    return ""


MOST_SMEM = max(target.smem_bytes for target in TARGETS)
SIZE, BYTES, PLACE = between(1), between(0, MOST_SMEM), between(-1, MOST_SMEM)
COLUMN, APART, CTAS = between(0, 511), one_of(16, 32), one_of(1, 2, 4, 8)
BY_NAME: dict[str, Check] = {
    name: check
    for names, check in {
        "a_column a_scale b_scale column": COLUMN,
        "amount": between(-I32_MAX - 1),
        "arrivals": between(1, MAX_COUNT),
        "b_dtype scale_dtype": one_of("", *DTYPES),
        "barrier": between(1, 15),
        "bits": between(1, 24),
        "block": one_of(0, 16, 32),
        "box": each(between(1, 256)),
        "by num_warpgroups": between(1, 8),
        "bytes": between(1, MOST_SMEM),
        "cluster sharing ctas": CTAS,
        "columns k num rows stride": SIZE,
        "asks_early contraction tiles": extents,
        "copies": one_of(1, 2, 4, 8, 16, 32),
        "count": between(24, 256, 8),
        "cta_group": one_of(1, 2),
        "ctas_per_sm": between(1, 16),
        "dim label value": anything,
        "dtype": one_of(*DTYPES),
        "each": between(0, 128),
        "extents": each(SIZE),
        "fn": one_of("add", "max", "min"),
        "length": between(8, 1024, 8),
        "line line_bytes offset": BYTES,
        "num_warps": one_of(1, *range(4, 33, 4)),
        "parity": between(0, 1),
        "parts words": between(1, 128),
        "first pending row_dim splits start": between(0),
        "registers": between(0, 256, 8),
        "role": one_of(*ROLES),
        "scheduler": one_of("grid", "persistent", "dynamic", "split_k", "stream_k"),
        "share": one_of("rows", "columns"),
        "size": one_of(0, 2, 4, 8, 16, 32, 64, 128, 256),
        "staging": one_of(1),
        "step": between(0, 16),
        "swizzle": one_of(*TMA_SPAN),
        "tx_bytes": between(0, MAX_COUNT),
        "vector": one_of(1, 2, 4, 8, 16),
    }.items()
    for name in names.split()
}
"""Ranges of attributes; `RANGES` has those of ops that differ."""
ANY_ORDER = one_of(*SWIZZLE_SPAN)
HALF = dict(half=between(0, 1), apart=COLUMN)
"""Of lanes that a warp loads or stores at a time."""
NAMED = dict(num=between(1, 15))
RANGES: dict[type[Op], dict[str, Check]] = {
    ops.LaunchGrid: dict(narrowed=between(0, 8)),
    ops.LaunchNarrowing: dict(widths=between(2, 8)),
    ops.AllocateMbarriers: dict(offset=PLACE),
    ops.NamedBarrierSync: NAMED,
    ops.NamedBarrierArrive: NAMED,
    ops.AllocateShared: dict(offset=PLACE),
    ops.AllocateGlobal: dict(each=SIZE),
    ops.MakeTensorMap: dict(swizzle=ANY_ORDER, narrowed=between(0, 4)),
    ops.ThreadLoad: dict(row_dim=between(-1, 4)),
    ops.PrefetchTile: dict(row_dim=between(-1, 4)),
    ops.StoreShared: dict(rows=between(0), half=between(0, 2), apart=APART),
    ops.LoadPanels: dict(swizzle=ANY_ORDER, apart=APART),
    ops.TmaStore: dict(apart=BYTES, lines=between(0, 256, 8), line_dim=between(0, 4)),
    ops.ThreadStore: dict(apart=BYTES),
    ops.Wgmma: dict(widths=between(1, 8), columns=between(0, 256, 8)),
    ops.WgmmaWait: dict(pending=between(0, MAX_GROUPS)),
    ops.Iota: dict(apart=APART),
    ops.Tcgen05Alloc: dict(offset=PLACE),
    ops.TmemColumns: dict(first=COLUMN),
    ops.Tcgen05Mma: dict(rows=one_of(64, 128), columns=between(8, 256, 8)),
    ops.StoreScaleFactors: dict(line=between(4, 4096, 4), rows=between(8, 256, 8)),
    ops.Tcgen05Cp: dict(rows=between(128, 256, 128)),
    ops.Tcgen05Ld: HALF,
    ops.Tcgen05St: HALF,
    ops.StorePartials: dict(ctas=between(1, 16)),
    ops.LoadTransposed: dict(first=BYTES),
    ops.Map: dict(fn=one_of(*ops.UNARY_FUNCTIONS, *ops.BINARY_FUNCTIONS, *ops.OTHER_FUNCTIONS)),
}


@cache
def typed_attributes(cls: type[Op]) -> tuple[tuple[str, Any, Check | None], ...]:
    """(name, type, range) of each attribute."""
    by_name = BY_NAME if "scheduled" in cls.levels else {}
    hints, ranges = typing.get_type_hints(cls), by_name | RANGES.get(cls, {})
    names = [name for name, kind in fields_of(cls) if kind == "attribute"]
    return tuple((name, hints[name], ranges.get(name)) for name in names)


def fits(held: Any, hint: Any) -> bool:
    """Is the value of the type? A bool is no int."""
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


def nothing_is_left_to_lower(kernel: Kernel) -> Iterator[tuple[Op | None, str]]:
    """What a partition tells lowering means nothing behind it."""
    for op in kernel.of(Partition):
        for name in ("in_order", "late_loads", "copies_ahead", "order_barriers", "asks_early"):
            if held := getattr(op, name):
                yield op, f"{name}={held} has no effect after lowering: remove it"


def shown(hint: Any) -> str:
    """As an error names a type."""
    return hint.__name__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint)
