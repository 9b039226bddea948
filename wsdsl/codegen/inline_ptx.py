"""With `wgmma_ptx` the only place with PTX text: instructions that LLVM has no intrinsic for, that
take an address in SMEM (LLVM's shared pointers are 64 bits wide here, and each would cost a
conversion), or that are to be predicated without a branch that LLVM can see.

Addresses in SMEM are an i32 register and a constant number of bytes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from wsdsl.codegen.writer import Operand, Writer


@dataclass(frozen=True, slots=True)
class At:
    """An address in SMEM."""

    base: str
    offset: int = 0

    def ptx(self, operand: int) -> str:
        return f"[${operand}+{self.offset}]" if self.offset else f"[${operand}]"


def _when(pred: str | None, operand: int) -> str:
    return "" if pred is None else f"@${operand} "


def _flag(pred: str | None) -> list[Operand]:
    return [] if pred is None else [("i1", pred)]


def _constraints(*held: str, pred: str | None = None) -> str:
    return ",".join([*held, *([] if pred is None else ["b"])])


def comment(label: str) -> str:
    """What can not end the comment, nor mean anything to LLVM."""
    return re.sub(r"[^\w .-]", "_", label)


# mbarriers; `label` is a comment ------------------------------------------------------------------


def barrier_init(w: Writer, at: At, arrivals: int, label: str) -> None:
    ptx = f"mbarrier.init.shared::cta.b64 {at.ptx(0)}, {arrivals}; // {comment(label)}"
    w.asm(ptx, "void", "r", [("i32", at.base)])


def barrier_wait(w: Writer, at: At, parity: str, label: str) -> None:
    ptx = (
        "{\n.reg .pred done;\n"
        "WAIT_${:uid}:\n"
        f"mbarrier.try_wait.parity.shared::cta.b64 done, {at.ptx(0)}, $1; "
        f"// {comment(label)}\n"
        "@!done bra WAIT_${:uid};\n}"
    )
    w.asm(ptx, "void", "r,r", [("i32", at.base), ("i32", parity)])


def barrier_arrive(w: Writer, at: At, pred: str | None, label: str) -> None:
    ptx = f"{_when(pred, 1)}mbarrier.arrive.shared::cta.b64 _, {at.ptx(0)}; // {comment(label)}"
    w.asm(ptx, "void", _constraints("r", pred=pred), [("i32", at.base), *_flag(pred)])


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
    constraints = _constraints("r", "r", pred=pred)
    w.asm(ptx, "void", constraints, [("i32", at), ("i32", cta), *_flag(pred)])


def barrier_arrive_expect_tx(w: Writer, at: At, tx_bytes: str, label: str) -> None:
    """`tx_bytes`: a number, or a value."""
    shown, args = (tx_bytes, []) if tx_bytes.isdigit() else ("$1", [("i32", tx_bytes)])
    ptx = f"mbarrier.arrive.expect_tx.shared::cta.b64 _, {at.ptx(0)}, {shown};"
    ptx += f" // {comment(label)}"
    w.asm(ptx, "void", ",".join(["r"] * (1 + len(args))), [("i32", at.base), *args])


# TMA ---------------------------------------------------------------------------------------------


def prefetch_tensor_map(w: Writer, map: str) -> None:
    # The intrinsic is lowered to two instructions, one for the parameter space.
    w.asm("prefetch.tensormap [$0];", "void", "l", [("ptr", map)])


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
    shown = ", ".join(f"${3 + i}" for i in range(rank))
    many, mask = ("", "") if multicast is None else (".multicast::cluster", f", ${3 + rank}")
    on = barrier.ptx(2)
    if cta is not None:
        many, on = ".cta_group::2", f"[on+{barrier.offset}]"
    ptx = (
        f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.mbarrier::complete_tx::bytes{many} "
        f"{to.ptx(0)}, [$1, {{{shown}}}], {on}{mask};"
    )
    if cta is not None:
        mapped = f"mapa.shared::cluster.u32 on, $2, ${3 + rank};"
        ptx = f"{{\n.reg .b32 on;\n{mapped}\n{ptx}\n}}"
    args = [
        ("i32", to.base),
        ("ptr", map),
        ("i32", barrier.base),
        *(("i32", c) for c in coordinates),
        *([] if multicast is None else [("i16", multicast)]),
        *([] if cta is None else [("i32", cta)]),
    ]
    constraints = ["r", "l", "r", *["r"] * rank]
    constraints += ["h"] * (multicast is not None) + ["r"] * (cta is not None)
    w.asm(ptx, "void", ",".join(constraints), args)


def tma_store(
    w: Writer, map: str, coordinates: Sequence[str], source: At, pred: str, add: bool = False
) -> None:
    rank = len(coordinates)
    shown = ", ".join(f"${3 + i}" for i in range(rank))
    ptx = (
        f"@$2 {'cp.reduce' if add else 'cp'}.async.bulk.tensor.{rank}d.global.shared::cta"
        f"{'.add' if add else ''}.bulk_group "
        f"[$1, {{{shown}}}], {source.ptx(0)};"
    )
    args = [("i32", source.base), ("ptr", map), ("i1", pred), *(("i32", c) for c in coordinates)]
    w.asm(ptx, "void", ",".join(["r", "l", "b", *["r"] * rank]), args)


def tma_store_commit(w: Writer, pred: str) -> None:
    w.asm("@$0 cp.async.bulk.commit_group;", "void", "b", [("i1", pred)])


def tma_store_wait(w: Writer, pending: int, read: bool, pred: str) -> None:
    ptx = f"@$0 cp.async.bulk.wait_group{'.read' if read else ''} {pending};"
    w.asm(ptx, "void", "b", [("i1", pred)])


# Stores to SMEM ----------------------------------------------------------------------------------


def stmatrix(w: Writer, to: At, texts: Sequence[str], transposed: bool) -> None:
    """2 or 4 matrices of 8 x 8 16-bit elements, one i32 a thread each."""
    count = len(texts)
    shown = ", ".join(f"${i + 1}" for i in range(count))
    trans = ".trans" if transposed else ""
    ptx = f"stmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {to.ptx(0)}, {{{shown}}};"
    args = [("i32", to.base), *(("i32", x) for x in texts)]
    w.asm(ptx, "void", ",".join(["r"] * (count + 1)), args)


def store_shared(w: Writer, to: At, bits: int, texts: Sequence[str]) -> None:
    """1, 2 or 4 elements of `bits` bits; i32 registers, i16 for narrower elements."""
    count = len(texts)
    letter, type = ("r", "i32") if bits == 32 else ("h", "i16")
    shown = ", ".join(f"${i + 1}" for i in range(count))
    vector = f".v{count}" if count > 1 else ""
    held = f"{{{shown}}}" if count > 1 else shown
    ptx = f"st.shared{vector}.b{bits} {to.ptx(0)}, {held};"
    args = [("i32", to.base), *((type, x) for x in texts)]
    w.asm(ptx, "void", ",".join(["r", *[letter] * count]), args)


def add_shared(w: Writer, to: At, kind: str, text: str) -> None:
    """Atomic addition of an i32 register to a word; `kind` is PTX's, as in f32."""
    ptx, held = f"red.shared.add.{kind} {to.ptx(0)}, $1;", "n" if text.isdigit() else "r"
    w.asm(ptx, "void", f"r,{held}", [("i32", to.base), ("i32", text)])


# Loads from SMEM ---------------------------------------------------------------------------------


def load_shared(w: Writer, at: At, bits: int = 32) -> str:
    """As an i32, or an i16 if it is narrower. It keeps its place among waits and arrivals."""
    letter, type = LETTERS[bits]
    return w.asm(f"ld.shared.b{bits} $0, {at.ptx(1)};", type, f"={letter},r", [("i32", at.base)])


def load_shared_words(w: Writer, at: At, count: int = 4) -> tuple[str, ...]:
    """1, 2 or 4 aligned elements of 32 bits."""
    if count == 1:
        return (load_shared(w, at),)
    args: list[Operand] = [("i32", at.base)]
    shown = ", ".join(f"${i}" for i in range(count))
    ptx = f"ld.shared.v{count}.b32 {{{shown}}}, {at.ptx(count)};"
    return w.asm_values(ptx, ["i32"] * count, [*["=r"] * count, "r"], args)


def ldmatrix(w: Writer, at: At, count: int) -> tuple[str, ...]:
    """2 or 4 matrices of 8 x 8 16-bit elements, one i32 a thread each."""
    shown = ", ".join(f"${i}" for i in range(count))
    ptx = f"ldmatrix.sync.aligned.m8n8.x{count}.shared.b16 {{{shown}}}, {at.ptx(count)};"
    args: list[Operand] = [("i32", at.base)]
    return w.asm_values(ptx, ["i32"] * count, [*["=r"] * count, "r"], args)


def load_shared_pair(w: Writer, at: At, bits: int) -> tuple[str, ...]:
    """Two aligned elements: i32 registers, or narrower ones packed in one i16 or i32."""
    args: list[Operand] = [("i32", at.base)]
    if bits == 32:
        ptx = f"ld.shared.v2.b32 {{$0, $1}}, {at.ptx(2)};"
        return w.asm_values(ptx, ["i32", "i32"], ["=r", "=r", "r"], args)
    letter, type = LETTERS[2 * bits]
    return (w.asm(f"ld.shared.b{2 * bits} $0, {at.ptx(1)};", type, f"={letter},r", args),)


def pack_bytes(w: Writer, dtype: str, low: str, high: str) -> str:
    """Two i32 clamped to i8 or u8, in an i16."""
    kind = {"i8": "s8", "u8": "u8"}[dtype]
    ptx = f"cvt.pack.sat.{kind}.s32.b32 $0, $2, $1, 0;"
    made = w.asm(ptx, "i32", "=r,r,r", [("i32", low), ("i32", high)], pure=True)
    return w.value(f"trunc i32 {made} to i16")


# The kernel in front -----------------------------------------------------------------------------


def wait_predecessor(w: Writer) -> None:
    """LLVM's intrinsic touches no memory, and loads may pass it. (In front of the partitions it may
    be used: `sync_cta` follows.)
    """
    w.asm("griddepcontrol.wait;", "void", "", [])


# Global memory -----------------------------------------------------------------------------------

ROW = ("", ".L2::128B")
"""Comes to L2 with what is loaded: 4 bytes of a row would wait for memory every eighth time."""
LETTERS = {8: ("h", "i16"), 16: ("h", "i16"), 32: ("r", "i32")}
"""The register that holds an access of so many bits: constraint letter and LLVM type."""


@dataclass(frozen=True, slots=True)
class Global:
    """An address in GMEM: a pointer and a constant number of bytes."""

    pointer: str
    offset: int = 0

    def ptx(self, operand: int) -> str:
        return f"[${operand}+{self.offset}]" if self.offset else f"[${operand}]"


def load_global(
    w: Writer, at: Global, bits: int, pred: str | None, constant: bool, row: bool = False
) -> str:
    """One element, 0 where `pred` does not hold. `constant`: nobody writes it while we run; `row`:
    what follows it in memory is read soon.
    """
    letter, type = LETTERS[bits]
    kind = ".nc" * constant + ROW[row]
    zero = "" if pred is None else f"mov.b{max(bits, 16)} $0, 0;\n"
    ptx = f"{zero}{_when(pred, 2)}ld.global{kind}.b{bits} $0, {at.ptx(1)};"
    args = [("ptr addrspace(1)", at.pointer), *_flag(pred)]
    return w.asm(ptx, type, _constraints(f"=&{letter}", "l", pred=pred), args, pure=constant)


def load_global_pair(
    w: Writer, at: Global, bits: int, both: str | None, first: str | None, constant: bool
) -> tuple[str, str]:
    """Two aligned elements at once where `both` holds, else the first alone where `first` holds."""
    letter, type = LETTERS[bits]
    kind = ".nc" if constant else ""
    width = max(bits, 16)
    args: list[Operand] = [("ptr addrspace(1)", at.pointer)]
    ptx = f"{_when(both, 3)}ld.global{kind}.v2.b{bits} {{$0, $1}}, {at.ptx(2)};"
    constraints = f"=&{letter},=&{letter},l"
    if both is not None:
        ptx = f"mov.b{width} $0, 0;\nmov.b{width} $1, 0;\n{ptx}"
        args.append(("i1", both))
        constraints += ",b"
    if first is not None:
        ptx += f"\n@$4 ld.global{kind}.b{bits} $0, {at.ptx(2)};"
        args.append(("i1", first))
        constraints += ",b"
    result = f"{{ {type}, {type} }}"
    made = w.asm(ptx, result, constraints, args, pure=constant)
    return w.extract(result, made, 0), w.extract(result, made, 1)


def load_global_words(
    w: Writer, at: Global, count: int, pred: str | None, constant: bool = False, row: bool = False
) -> tuple[str, ...]:
    """1, 2 or 4 aligned words at once, 0 where `pred` does not hold."""
    shown, kind = ", ".join(f"${i}" for i in range(count)), ".nc" * constant + ROW[row]
    vector, held = (f".v{count}", f"{{{shown}}}") if count > 1 else ("", shown)
    ptx = f"{_when(pred, count + 1)}ld.global{kind}{vector}.b32 {held}, {at.ptx(count)};"
    if pred is not None:
        ptx = "".join(f"mov.b32 ${i}, 0;\n" for i in range(count)) + ptx
    args: list[Operand] = [("ptr addrspace(1)", at.pointer), *_flag(pred)]
    constraints = _constraints(*["=&r"] * count, "l", pred=pred)
    if count == 1:
        return (w.asm(ptx, "i32", constraints, args, pure=constant),)
    result = f"{{ {', '.join(['i32'] * count)} }}"
    made = w.asm(ptx, result, constraints, args, pure=constant)
    return tuple(w.extract(result, made, i) for i in range(count))


def prefetch_global(w: Writer, pointer: str, pred: str) -> None:
    """Bring the line of an address to L2."""
    ptx = f"{_when(pred, 1)}prefetch.global.L2 [$0];"
    args: list[Operand] = [("ptr addrspace(1)", pointer), *_flag(pred)]
    w.asm(ptx, "void", _constraints("l", pred=pred), args)


def load_global_packed(
    w: Writer,
    at: Global,
    bits: int,
    both: str | None,
    first: str | None,
    constant: bool,
) -> str:
    """Two elements of 8 or 16 bits as one i16 or i32, like `load_global_pair`."""
    kind = ".nc" if constant else ""
    letter, type = LETTERS[2 * bits]
    lines = [] if both is None else [f"mov.b{2 * bits} $0, 0;"]
    lines.append(f"{_when(both, 2)}ld.global{kind}.b{2 * bits} $0, {at.ptx(1)};")
    args: list[Operand] = [("ptr addrspace(1)", at.pointer), *_flag(both)]
    constraints = _constraints(f"=&{letter}", "l", pred=both)
    if first is not None:
        # Straight to the wide register: a narrow one of its own, set only sometimes, would be live
        # all around the kernel's loop.
        lines.append(f"@$3 ld.global{kind}.u{bits} $0, {at.ptx(1)};")
        args.append(("i1", first))
        constraints += ",b"
    return w.asm("\n".join(lines), type, constraints, args, pure=constant)


def flag_arrive(w: Writer, at: Global, kind: str, amount: str, pred: str | None) -> None:
    """`amount`: a number, or an i32 value."""
    number = amount.lstrip("-").isdigit()
    shown, held = (amount, []) if number else ("$1", [("i32", amount)])
    ptx = f"{_when(pred, 1 + len(held))}red.{kind} {at.ptx(0)}, {shown};"
    args = [("ptr addrspace(1)", at.pointer), *held, *_flag(pred)]
    w.asm(ptx, "void", _constraints("l", *("r" for _ in held), pred=pred), args)


def flag_wait(w: Writer, at: Global, count: str) -> None:
    ptx = (
        "{\n.reg .pred less;\n.reg .b32 seen;\n"
        "WAIT_${:uid}:\n"
        f"ld.acquire.gpu.global.b32 seen, {at.ptx(0)};\n"
        "setp.lt.s32 less, seen, $1;\n"
        "@less bra WAIT_${:uid};\n}"
    )
    w.asm(ptx, "void", "l,r", [("ptr addrspace(1)", at.pointer), ("i32", count)])


def store_global(w: Writer, at: Global, bits: int, texts: Sequence[str], pred: str | None) -> None:
    """One element, or two or four aligned ones."""
    letter, type = LETTERS[bits]
    count = len(texts)
    shown = ", ".join(f"${i + 1}" for i in range(count))
    vector, held = (f".v{count}", f"{{{shown}}}") if count > 1 else ("", shown)
    ptx = f"{_when(pred, count + 1)}st.global{vector}.b{bits} {at.ptx(0)}, {held};"
    args = [("ptr addrspace(1)", at.pointer), *((type, x) for x in texts), *_flag(pred)]
    w.asm(ptx, "void", _constraints("l", *[letter] * count, pred=pred), args)


def add_global(
    w: Writer, at: Global, kind: str, bits: int, texts: Sequence[str], pred: str | None
) -> None:
    """Atomic addition of one element (or packed pair), of two or of four; `kind` is
    PTX's, as in f32.
    """
    letter, type = LETTERS[bits]
    count = len(texts)
    shown = ", ".join(f"${i + 1}" for i in range(count))
    vector, held = (f".v{count}", f"{{{shown}}}") if count > 1 else ("", shown)
    rounding = ".noftz" if "f16" in kind else ""
    ptx = f"{_when(pred, count + 1)}red.global.add{rounding}{vector}.{kind} {at.ptx(0)}, {held};"
    args = [("ptr addrspace(1)", at.pointer), *((type, x) for x in texts), *_flag(pred)]
    w.asm(ptx, "void", _constraints("l", *[letter] * count, pred=pred), args)
