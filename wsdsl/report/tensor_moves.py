"""Describe how the tensors of a SCHEDULED kernel move between GMEM, SMEM and registers."""

from collections.abc import Iterator

from wsdsl.ir import ops
from wsdsl.ir.analysis.scale_factor_indices import unaligned_scales
from wsdsl.ir.analysis.tensor_accesses import touches
from wsdsl.ir.hardware.block_scale_factors import WARP_ROWS, WORD, scale_columns
from wsdsl.ir.hardware.scale_factor_atoms import BYTES, ROWS
from wsdsl.ir.op import Kernel
from wsdsl.ir.ops import Bins, StoreScaleFactors, Tcgen05Cp

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
    maps = {op.result: op for op in kernel.of(ops.MakeTensorMap)}
    names = {(op.shared, op.offset): maps[op.map].tensor.name for op in kernel.of(ops.TmaLoad)}
    for op in kernel.of(StoreScaleFactors):
        useful, atoms = WORD * op.words * op.rows, BYTES * -(-op.rows // ROWS) * op.words
        columns = op.words * -(-op.rows // WARP_ROWS)
        copied = f"{scale_columns(op.rows, op.words)} TMEM columns by tcgen05.cp"
        other = copied if op.atoms else f"as atoms: {atoms} bytes, {copied}"
        yield (
            f"{names[op.shared, op.offset]}: {op.bytes} bytes to SMEM per k-tile, {useful} of them "
            f"useful; threads store them to {columns} TMEM columns ({other})"
        )
    for op in kernel.of(Tcgen05Cp):
        copied = BYTES * (op.rows // ROWS) * op.words
        yield (
            f"{names[op.shared, op.offset]}: {copied} bytes of atoms per k-tile, to "
            f"{scale_columns(op.rows, op.words)} TMEM columns by tcgen05.cp"
        )
