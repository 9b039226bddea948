"""Describe how the tensors of a SCHEDULED kernel move between GMEM, SMEM and registers."""

from collections.abc import Iterator, Mapping
from typing import Any

from wsdsl.ir.analysis.scale_factor_indices import unaligned_scales
from wsdsl.ir.analysis.tensor_accesses import touches
from wsdsl.ir.hardware.block_scale_factors import WARP_ROWS, WORD, scale_columns
from wsdsl.ir.hardware.scale_factor_atoms import BYTES, ROWS
from wsdsl.ir.op import Kernel, Value
from wsdsl.ir.ops import Bins
from wsdsl.report.timed.cycle_costs import op_effects

BY_THREADS = "TMA needs strides and addresses that are multiples of 16 bytes"


STORES = tuple(
    f"{store} of threads from SMEM ({BY_THREADS})" for store in ("stores", "atomic additions")
)
WAYS = {
    "map": ("TMA loads to SMEM stages", "TMA stores from SMEM", "TMA reductions from SMEM"),
    "shared": (f"threads of the load warpgroup copy it to SMEM stages ({BY_THREADS})", *STORES),
    "tensor": ("threads load it to registers", *["threads store it from registers"] * 2),
}
"""Loads, stores and additions, by the first field that an op has."""


def tensor_moves(kernel: Kernel) -> Iterator[str]:
    """A line per tensor."""
    moves: dict[str, set[str]] = {}
    for op, touch in touches(kernel):
        if not touch.flag and not isinstance(op, Bins):
            ways = next(WAYS[field] for field in WAYS if hasattr(op, field))
            moves.setdefault(touch.tensor, set()).add(ways[touch.writes + touch.adds])
    yield from (f"{name}: {', '.join(sorted(ways))}" for name, ways in moves.items())
    yield from scale_moves(kernel)


def scale_moves(kernel: Kernel) -> Iterator[str]:
    """A line per operand of block scale factors (SCHEDULED)."""
    for name in unaligned_scales(kernel):
        yield (
            f"{name}: threads load it and apply the scale factors ({BY_THREADS}), which is slow. "
            "hint: pad its rows (`[:, :n]` of a wider array): the tensor cores apply these scales"
        )
    found = ((op, op_effects(op, kernel.definers).accesses) for op in kernel.ops)
    accesses: dict[Any, Any] = {op: own for op, own in found if "smem" in own}
    tensors = {_source(own): own["gmem"].of.name for own in accesses.values() if "gmem" in own}
    for op in (op for op in accesses if "tmem" in accesses[op] and hasattr(op, "words")):
        (span,), name = accesses[op]["smem"].spans[0], tensors[_source(accesses[op])]
        copied = f"{scale_columns(op.rows, op.words)} TMEM columns by tcgen05.cp"
        if accesses[op]["smem"].asynchronous:
            yield f"{name}: {span.size} bytes of atoms per k-tile, to {copied}"
            continue
        useful, atoms = WORD * op.words * op.rows, BYTES * -(-op.rows // ROWS) * op.words
        columns = op.words * -(-op.rows // WARP_ROWS)
        other = copied if op.atoms else f"as atoms: {atoms} bytes, {copied}"
        yield (
            f"{name}: {span.size} bytes to SMEM per k-tile, {useful} of them "
            f"useful; threads store them to {columns} TMEM columns ({other})"
        )


def _source(accesses: Mapping[str, Any]) -> tuple[Value, int]:
    """Return the item of SMEM that an op accesses, and the first byte of it."""
    return accesses["smem"].of, accesses["smem"].spans[0][0].start
