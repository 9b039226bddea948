"""With `wgmma_ptx` the only place with PTX text: instructions that LLVM has no intrinsic for, that
take an address in SMEM (LLVM's shared pointers are 64 bits wide here, and each would cost a
conversion), or that are to be predicated without a branch that LLVM can see.

Addresses in SMEM are an i32 register and a constant number of bytes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar

from wsdsl.codegen.writer import Operand, Writer
from wsdsl.record import record


@record
class At:
    """An address in SMEM."""

    base: str
    offset: int = 0
    type: ClassVar = "i32"

    def ptx(self, operand: int) -> str:
        return f"[${operand}+{self.offset}]" if self.offset else f"[${operand}]"

    @property
    def held(self) -> Operand:
        return self.type, self.base


class Global(At):
    """An address in GMEM: a pointer and a constant number of bytes."""

    __slots__ = ()
    type = "ptr addrspace(1)"


def operands(first: int, count: int) -> str:
    """So many, from the first on."""
    return ", ".join(f"${first + i}" for i in range(count))


def _vector(first: int, count: int) -> tuple[str, str]:
    """The suffix of an access of so many elements, and its operands."""
    shown = operands(first, count)
    return (f".v{count}", f"{{{shown}}}") if count > 1 else ("", shown)


def _number_or_value(text: str) -> tuple[str, list[Operand]]:
    """An i32 as it stands in PTX behind the operand 0, and what is given."""
    return (text, []) if text.lstrip("-").isdigit() else ("$1", [("i32", text)])


def _when(pred: str | None, operand: int) -> str:
    return "" if pred is None else f"@${operand} "


def _flag(pred: str | None) -> list[Operand]:
    return [] if pred is None else [("i1", pred)]


def comment(label: str) -> str:
    """What can not end the comment, nor mean anything to LLVM."""
    return re.sub(r"[^\w .-]", "_", label)


# mbarriers; `label` is a comment ------------------------------------------------------------------


def barrier_init(w: Writer, at: At, arrivals: int, label: str) -> None:
    ptx = f"mbarrier.init.shared::cta.b64 {at.ptx(0)}, {arrivals}; // {comment(label)}"
    w.asm(ptx, [at.held])


def barrier_wait(w: Writer, at: At, parity: str, label: str) -> None:
    ptx = (
        "{\n.reg .pred done;\n"
        "WAIT_${:uid}:\n"
        f"mbarrier.try_wait.parity.shared::cta.b64 done, {at.ptx(0)}, $1; "
        f"// {comment(label)}\n"
        "@!done bra WAIT_${:uid};\n}"
    )
    w.asm(ptx, [at.held, ("i32", parity)])


def barrier_arrive(w: Writer, at: At, pred: str | None, label: str) -> None:
    ptx = f"{_when(pred, 1)}mbarrier.arrive.shared::cta.b64 _, {at.ptx(0)}; // {comment(label)}"
    w.asm(ptx, [at.held, *_flag(pred)])


def barrier_arrive_remote(w: Writer, at: str, cta: str, pred: str | None, label: str) -> None:
    """Arrive on the barrier that lies at the same address in another CTA of the cluster.

    Without `.release.cluster`, which is a fence of the whole GPU (half of a gemm's speed). What is
    ordered is the reading of a slot before another CTA's copy to it: wgmma has read when it is
    waited for, and the async proxy copies once the phase is seen to be complete. That sums which
    another CTA sent have been read when the warpgroups have met (bar.sync) is taken for granted
    (docs/prover.md).
    """
    ptx = (
        "{\n.reg .b32 remote;\n"
        "mapa.shared::cluster.u32 remote, $0, $1;\n"
        f"{_when(pred, 2)}mbarrier.arrive.shared::cluster.b64 _, [remote]; "
        f"// {comment(label)}\n}}"
    )
    w.asm(ptx, [("i32", at), ("i32", cta), *_flag(pred)])


def barrier_mbarrier_arrive_expect_tx(w: Writer, at: At, tx_bytes: str, label: str) -> None:
    """`tx_bytes`: a number, or a value."""
    shown, args = _number_or_value(tx_bytes)
    ptx = f"mbarrier.arrive.expect_tx.shared::cta.b64 _, {at.ptx(0)}, {shown};"
    w.asm(f"{ptx} // {comment(label)}", [at.held, *args])


# TMA ---------------------------------------------------------------------------------------------


def prefetch_tensor_map(w: Writer, map: str) -> None:
    # The intrinsic is lowered to two instructions, one for the parameter space.
    w.asm("prefetch.tensormap [$0];", [("ptr", map)])


def tma_load(
    w: Writer,
    map: str,
    coordinates: Sequence[str],
    to: At,
    barrier: At,
    multicast: str | None = None,
    cta: str | None = None,
) -> None:
    """`coordinates`: contiguous dimension first. `multicast`: an i16, a bit for each CTA. `cta`:
    the CTA of the pair whose barrier counts.
    """
    rank = len(coordinates)
    many, mask = ("", "") if multicast is None else (".multicast::cluster", f", ${3 + rank}")
    on = barrier.ptx(2)
    if cta is not None:
        many, on = ".cta_group::2", f"[on+{barrier.offset}]"
    ptx = (
        f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.mbarrier::complete_tx::bytes{many} "
        f"{to.ptx(0)}, [$1, {{{operands(3, rank)}}}], {on}{mask};"
    )
    if cta is not None:
        mapped = f"mapa.shared::cluster.u32 on, $2, ${3 + rank};"
        ptx = f"{{\n.reg .b32 on;\n{mapped}\n{ptx}\n}}"
    args = [to.held, ("ptr", map), barrier.held, *(("i32", c) for c in coordinates)]
    args += [] if multicast is None else [("i16", multicast)]
    w.asm(ptx, [*args, *([] if cta is None else [("i32", cta)])])


def tma_store(
    w: Writer, map: str, coordinates: Sequence[str], source: At, pred: str, add: bool = False
) -> None:
    rank = len(coordinates)
    ptx = (
        f"@$2 {'cp.reduce' if add else 'cp'}.async.bulk.tensor.{rank}d.global.shared::cta"
        f"{'.add' if add else ''}.bulk_group "
        f"[$1, {{{operands(3, rank)}}}], {source.ptx(0)};"
    )
    w.asm(ptx, [source.held, ("ptr", map), ("i1", pred), *(("i32", c) for c in coordinates)])


def tma_store_commit(w: Writer, pred: str) -> None:
    w.asm("@$0 cp.async.bulk.commit_group;", [("i1", pred)])


def tma_store_wait(w: Writer, pending: int, read: bool, pred: str) -> None:
    ptx = f"@$0 cp.async.bulk.wait_group{'.read' if read else ''} {pending};"
    w.asm(ptx, [("i1", pred)])


# Stores to SMEM ----------------------------------------------------------------------------------


def stmatrix(w: Writer, to: At, texts: Sequence[str], transposed: bool) -> None:
    """2 or 4 matrices of 8 x 8 16-bit elements, one i32 a thread each."""
    count, trans = len(texts), ".trans" if transposed else ""
    held = f"{{{operands(1, count)}}}"
    ptx = f"stmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {to.ptx(0)}, {held};"
    w.asm(ptx, [to.held, *(("i32", x) for x in texts)])


def store_shared(w: Writer, to: At, bits: int, texts: Sequence[str]) -> None:
    """1, 2 or 4 elements of `bits` bits; i32 registers, i16 for narrower elements."""
    vector, held = _vector(1, len(texts))
    ptx = f"st.shared{vector}.b{bits} {to.ptx(0)}, {held};"
    w.asm(ptx, [to.held, *((TYPES[bits], x) for x in texts)])


def add_shared(w: Writer, to: At, kind: str, text: str) -> None:
    """Atomic addition of an i32 register to a word; `kind` is PTX's, as in f32."""
    shown, held = _number_or_value(text)
    w.asm(f"red.shared.add.{kind} {to.ptx(0)}, {shown};", [to.held, *held])


# Loads from SMEM ---------------------------------------------------------------------------------


def load_shared(w: Writer, at: At, bits: int = 32) -> str:
    """As an i32, or an i16 if it is narrower. It keeps its place among waits and arrivals."""
    return w.asm_value(f"ld.shared.b{bits} $0, {at.ptx(1)};", [at.held], TYPES[bits])


def load_shared_words(w: Writer, at: At, count: int = 4) -> tuple[str, ...]:
    """1, 2 or 4 aligned elements of 32 bits."""
    vector, shown = _vector(0, count)
    ptx = f"ld.shared{vector}.b32 {shown}, {at.ptx(count)};"
    return w.asm(ptx, [at.held], ["i32"] * count)


def ldmatrix(w: Writer, at: At, count: int) -> tuple[str, ...]:
    """2 or 4 matrices of 8 x 8 16-bit elements, one i32 a thread each."""
    held = f"{{{operands(0, count)}}}"
    ptx = f"ldmatrix.sync.aligned.m8n8.x{count}.shared.b16 {held}, {at.ptx(count)};"
    return w.asm(ptx, [at.held], ["i32"] * count)


def mma_sync(
    w: Writer, dtype: str, a: Sequence[str], b: Sequence[str], sums: Sequence[str]
) -> tuple[str, ...]:
    """16 x 8 sums plus 16 x 16 by 16 x 8 elements of 16 bits: four, four and two registers."""
    parts = ", ".join(f"{{{operands(n, count)}}}" for n, count in ((0, 4), (4, 4), (8, 2), (10, 4)))
    ptx = f"mma.sync.aligned.m16n8k16.row.col.f32.{dtype}.{dtype}.f32 {parts};"
    args = [*(("i32", x) for x in (*a, *b)), *(("float", x) for x in sums)]
    return w.asm(ptx, args, ["float"] * 4, pure=True)


def load_shared_pair(w: Writer, at: At, bits: int) -> tuple[str, ...]:
    """Two aligned elements: i32 registers, or narrower ones packed in one i16 or i32."""
    return load_shared_words(w, at, 2) if bits == 32 else (load_shared(w, at, 2 * bits),)


def pack_bytes(w: Writer, dtype: str, low: str, high: str) -> str:
    """Two i32 clamped to i8 or u8, in an i16."""
    kind = {"i8": "s8", "u8": "u8"}[dtype]
    ptx = f"cvt.pack.sat.{kind}.s32.b32 $0, $2, $1, 0;"
    made = w.asm_value(ptx, [("i32", low), ("i32", high)], pure=True)
    return w.value(f"trunc i32 {made} to i16")


# Stores to SMEM of other CTAs of the cluster, and bytes that they expect --------------------------


def store_remote(
    w: Writer, at: At, barrier: At, cta: str, texts: Sequence[str], label: str
) -> None:
    """One or four elements of 32 bits to the same place in another CTA of the cluster, counted on
    its barrier.
    """
    vector, held = _vector(3, len(texts))
    ptx = (
        "{\n.reg .b32 to, on;\n"
        "mapa.shared::cluster.u32 to, $0, $2;\n"
        "mapa.shared::cluster.u32 on, $1, $2;\n"
        f"st.async.weak.shared::cluster.mbarrier::complete_tx::bytes{vector}.b32 "
        f"[to+{at.offset}], {held}, [on+{barrier.offset}]; // {comment(label)}\n}}"
    )
    w.asm(ptx, [at.held, barrier.held, ("i32", cta), *(("i32", x) for x in texts)])


def expect_remote(w: Writer, barrier: At, cta: str, tx_bytes: int, label: str) -> None:
    """Arrive on the barrier that lies at the same address in another CTA, and expect bytes."""
    ptx = (
        "{\n.reg .b32 remote;\n"
        "mapa.shared::cluster.u32 remote, $0, $1;\n"
        f"mbarrier.arrive.expect_tx.shared::cluster.b64 _, [remote+{barrier.offset}], {tx_bytes}; "
        f"// {comment(label)}\n}}"
    )
    w.asm(ptx, [barrier.held, ("i32", cta)])


# The kernel in front -----------------------------------------------------------------------------


def griddep_wait(w: Writer) -> None:
    """LLVM's intrinsic touches no memory, and loads may pass it. (In front of the partitions it may
    be used: `sync_cta` follows.)
    """
    w.asm("griddepcontrol.wait;")


# Global memory -----------------------------------------------------------------------------------

ROW = ("", ".L2::128B")
"""Comes to L2 with what is loaded: 4 bytes of a row would wait for memory every eighth time."""
TYPES = {8: "i16", 16: "i16", 32: "i32"}
"""LLVM types of registers, by the bits of an access."""


def load_global(
    w: Writer, at: Global, bits: int, pred: str | None, constant: bool, row: bool = False
) -> str:
    """One element, see `load_global_vector`."""
    return load_global_vector(w, at, bits, 1, pred, constant, row)[0]


def load_global_vector(
    w: Writer,
    at: Global,
    bits: int,
    count: int,
    pred: str | None,
    constant: bool = False,
    row: bool = False,
    first: str | None = None,
) -> tuple[str, ...]:
    """1, 2 or 4 aligned elements at once, 0 where `pred` does not hold. `constant`: no thread
    writes them while the kernel runs; `row`: the elements that follow in memory are read soon.
    Where `first` holds, the first of two elements is loaded alone, or the lower half of one.
    """
    (vector, held), kind = _vector(0, count), ".nc" * constant + ROW[row]
    ptx = f"{_when(pred, count + 1)}ld.global{kind}{vector}.b{bits} {held}, {at.ptx(count)};"
    if pred is not None:
        ptx = "".join(f"mov.b{max(bits, 16)} ${i}, 0;\n" for i in range(count)) + ptx
    if first is not None:
        # Straight to the wide register: a narrow one of its own, set only sometimes, would be live
        # all around the kernel's loop.
        alone = f"b{bits}" if count > 1 else f"u{bits // 2}"
        ptx += f"\n@${count + 2} ld.global{kind}.{alone} $0, {at.ptx(count)};"
    args = [at.held, *_flag(pred), *_flag(first)]
    return w.asm(ptx, args, [TYPES[bits]] * count, early=True, pure=constant)


def prefetch_global(w: Writer, pointer: str, pred: str) -> None:
    """Bring the line of an address to L2."""
    ptx = f"{_when(pred, 1)}prefetch.global.L2 [$0];"
    w.asm(ptx, [Global(pointer).held, *_flag(pred)])


def flag_arrive(w: Writer, at: Global, kind: str, amount: str, pred: str | None) -> None:
    """`amount`: a number, or an i32 value."""
    shown, held = _number_or_value(amount)
    ptx = f"{_when(pred, 1 + len(held))}red.{kind} {at.ptx(0)}, {shown};"
    w.asm(ptx, [at.held, *held, *_flag(pred)])


def flag_wait(w: Writer, at: Global, count: str) -> None:
    ptx = (
        "{\n.reg .pred less;\n.reg .b32 seen;\n"
        "WAIT_${:uid}:\n"
        f"ld.acquire.gpu.global.b32 seen, {at.ptx(0)};\n"
        "setp.lt.s32 less, seen, $1;\n"
        "@less bra WAIT_${:uid};\n}"
    )
    w.asm(ptx, [at.held, ("i32", count)])


def store_global(w: Writer, at: Global, bits: int, texts: Sequence[str], pred: str | None) -> None:
    """One element, or two or four aligned ones."""
    count = len(texts)
    vector, held = _vector(1, count)
    ptx = f"{_when(pred, count + 1)}st.global{vector}.b{bits} {at.ptx(0)}, {held};"
    w.asm(ptx, [at.held, *((TYPES[bits], x) for x in texts), *_flag(pred)])


def add_global(
    w: Writer, at: Global, kind: str, bits: int, texts: Sequence[str], pred: str | None
) -> None:
    """Atomic addition of one element (or packed pair), of two or of four; `kind` is
    PTX's, as in f32.
    """
    count = len(texts)
    vector, held = _vector(1, count)
    rounding = ".noftz" if "f16" in kind else ""
    ptx = f"{_when(pred, count + 1)}red.global.add{rounding}{vector}.{kind} {at.ptx(0)}, {held};"
    w.asm(ptx, [at.held, *((TYPES[bits], x) for x in texts), *_flag(pred)])
