"""How scales of blocks come to tensor memory: bytes copied against bytes useful, and the other way
to bring them.
"""

from __future__ import annotations

from collections.abc import Iterator

from wsdsl.ir.block_scales import WARP_ROWS, WORD, scale_columns
from wsdsl.ir.memory_ops import MakeTensorMap, TmaLoad
from wsdsl.ir.op import Kernel
from wsdsl.ir.scale_atoms import BYTES, ROWS
from wsdsl.ir.tensor_ops import StoreScales, TensorCopy


def scale_moves(kernel: Kernel) -> Iterator[str]:
    """Of a SCHEDULED kernel, a line for each operand."""
    maps = {op.result: op for op in kernel.of(MakeTensorMap)}
    names = {(op.shared, op.offset): maps[op.map].tensor.name for op in kernel.of(TmaLoad)}
    for op in kernel.of(StoreScales):
        if (op.shared, op.offset) not in names:
            columns = op.words * -(-op.rows // WARP_ROWS)
            yield f"scales that are computed: threads store them to {columns} columns"
            continue
        useful, atoms = WORD * op.words * op.rows, BYTES * -(-op.rows // ROWS) * op.words
        columns = op.words * -(-op.rows // WARP_ROWS)
        copied = f"copied to {scale_columns(op.rows, op.words)} columns"
        other = f"the tensor cores would have them {copied}"
        other = other if op.atoms else f"in atoms: {atoms} bytes, {copied}"
        yield (
            f"{names[op.shared, op.offset]}: of {op.bytes} bytes that come to SMEM for a k-tile "
            f"{useful} are useful; threads store them to {columns} columns of tensor memory "
            f"({other})"
        )
    for op in kernel.of(TensorCopy):
        copied = BYTES * (op.rows // ROWS) * op.words
        yield (
            f"{names[op.shared, op.offset]}: {copied} bytes of atoms for a k-tile, copied by the "
            f"tensor cores to {scale_columns(op.rows, op.words)} columns of tensor memory"
        )
