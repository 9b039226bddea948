"""Ranges of the values of attributes, by name; an op states those that differ in `Op.ranges`."""

from typing import Any

from wsdsl.ir.hardware.swizzle import SWIZZLE_SPAN, TMA_SPAN
from wsdsl.ir.hardware.target import TARGETS
from wsdsl.ir.op import Check
from wsdsl.ir.types import DTYPES

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
"""Ranges of attributes; `Op.ranges` has those that differ."""
ANY_ORDER = one_of(*SWIZZLE_SPAN)
HALF = dict(half=between(0, 1), apart=COLUMN)
"""Lanes that a warp loads or stores together."""
