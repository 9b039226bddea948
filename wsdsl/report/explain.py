"""Why a kernel is cut, buffered and sized as it is, in words."""

from __future__ import annotations

from collections.abc import Iterator

from wsdsl.artifact.signature import Signature
from wsdsl.ir import memory_ops as m
from wsdsl.ir.barrier_ops import AllocateBarriers, ClaimCluster, WaitPredecessor
from wsdsl.ir.block_scales import WARP_ROWS, WORD, scale_columns
from wsdsl.ir.narrowing import narrowings
from wsdsl.ir.op import Kernel
from wsdsl.ir.pipeline_ops import Partition
from wsdsl.ir.scale_atoms import BYTES, ROWS, unaligned_scales
from wsdsl.ir.tensor_ops import StoreScales, TensorCopy
from wsdsl.ir.types import Shared
from wsdsl.ir.walk import walk

BY_THREADS = "TMA takes strides and addresses of 16 bytes only"


def _asks(op: Partition) -> bool:
    return any(isinstance(inner, ClaimCluster) for inner in walk(op.body))


def explain(kernel: Kernel, signature: Signature) -> str:
    """A few lines: schedule, partitions, how each tensor moves, SMEM."""
    lines = [f"kernel {kernel.name}: {kernel.schedule!r}"]
    made = kernel.definers
    sides = enumerate(signature.tiles)
    work = " x ".join(f"ceil({dim}/{_side(signature, at, n)})" for at, (dim, n) in sides)
    doer = "one CTA" if signature.cluster == 1 else f"a cluster of {signature.cluster} CTAs"
    pieces = f" in {signature.splits} pieces" if signature.splits > 1 else ""
    lines.append(f"work items: {work or 1}{pieces}, each for {doer}, by {signature.scheduler}")
    asks = next((op.role for op in kernel.of(Partition) if _asks(op)), "")
    if asks:
        lines.append(
            f"the {asks} partition asks the card for the next item, and all read the answer"
        )
    for op in kernel.body:
        if isinstance(op, Partition):
            registers = f", {op.registers} registers a thread" if op.registers else ""
            runs = f"{op.num_warpgroups} warpgroup(s)" if op.num_warpgroups else "another thread"
            waits = any(isinstance(own, WaitPredecessor) for own in (*kernel.body, *op.body))
            early = "" if waits or not signature.waits else ", waits for no kernel in front"
            lines.append(f"partition {op.role}: {runs}{registers}{early}")
    moves: dict[str, set[str]] = {}
    for op in kernel.ops:
        match op:
            case m.TmaLoad():
                moves.setdefault(made[op.map].tensor.name, set()).add("TMA into slots")  # pyright: ignore[reportAttributeAccessIssue,reportUnknownMemberType,reportUnknownArgumentType]
            case m.TmaStore():
                way = f"SMEM, then a TMA {'reduction' if op.accumulate else 'store'}"
                moves.setdefault(made[op.map].tensor.name, set()).add(way)  # pyright: ignore[reportAttributeAccessIssue,reportUnknownMemberType,reportUnknownArgumentType]
            case m.ThreadLoad():
                way = f"copied to slots by the load warpgroup's threads ({BY_THREADS})"
                moves.setdefault(op.tensor.name, set()).add(way)
            case m.ThreadStore():
                way = f"SMEM, then {'added' if op.accumulate else 'copied'} by threads"
                moves.setdefault(op.tensor.name, set()).add(f"{way} ({BY_THREADS})")
            case m.LoadGlobal():
                moves.setdefault(op.tensor.name, set()).add("read directly by compute warpgroups")
            case m.StoreGlobal():
                moves.setdefault(op.tensor.name, set()).add("written directly")
            case _:
                pass
    lines += [f"{name}: {', '.join(sorted(ways))}" for name, ways in moves.items()]
    lines += scale_moves(kernel)
    for op in kernel.body:
        if isinstance(op, m.AllocateShared) and isinstance(op.result.type, Shared):
            kind = op.result.type
            lines.append(f"SMEM {op.label}: {kind.num} x {kind.bytes} bytes")
    barriers = sum(isinstance(op, AllocateBarriers) for op in kernel.body)
    used = f"{signature.smem_bytes} of {kernel.target.smem_bytes} bytes"
    lines.append(f"SMEM in all: {used}, {barriers} barrier arrays")
    return "\n".join(lines)


def _side(signature: Signature, at: int, size: int) -> str:
    """A side of a tile; with several widths, between which each launch chooses."""
    if signature.widths == 1 or at != signature.narrowed:
        return str(size)
    return f"{size - narrowings(signature.widths)[-1]}..{size}"


def scale_moves(kernel: Kernel) -> Iterator[str]:
    """Of a SCHEDULED kernel, a line for each operand."""
    for name in unaligned_scales(kernel):
        yield (
            f"{name}: read by threads ({BY_THREADS}), which is slow; with padded rows, `[:, :n]` "
            "of a wider array, the tensor cores apply these scales"
        )
    maps = {op.result: op for op in kernel.of(m.MakeTensorMap)}
    names = {(op.shared, op.offset): maps[op.map].tensor.name for op in kernel.of(m.TmaLoad)}
    for op in kernel.of(StoreScales):
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
