"""PTX of several ops: instructions that LLVM has no intrinsic for, that take an address in SMEM
(LLVM's shared pointers are 64 bits wide here, and each would cost a conversion), or that are
predicated without a branch that LLVM can see.

Addresses in SMEM are an i32 register and a constant number of bytes.
"""

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
    def operand(self) -> Operand:
        return self.type, self.base


class Global(At):
    """An address in GMEM: a pointer and a constant number of bytes."""

    __slots__ = ()
    type = "ptr addrspace(1)"


def operands(first: int, count: int) -> str:
    """Return `count` operands, from `$first` on."""
    return ", ".join(f"${first + i}" for i in range(count))


def vector_operands(first: int, count: int) -> tuple[str, str]:
    """The suffix of an access to `count` elements, and its operands."""
    shown = operands(first, count)
    return (f".v{count}", f"{{{shown}}}") if count > 1 else ("", shown)


def number_or_value(text: str) -> tuple[str, list[Operand]]:
    """An i32 in PTX, with operand 1 where it is a value, and that operand."""
    return (text, []) if text.lstrip("-").isdigit() else ("$1", [("i32", text)])


def predicate(pred: str | None, operand: int) -> str:
    return "" if pred is None else f"@${operand} "


def predicate_operand(pred: str | None) -> list[Operand]:
    return [] if pred is None else [("i1", pred)]


def st_shared(w: Writer, to: At, bits: int, texts: Sequence[str]) -> None:
    """1, 2 or 4 elements of `bits` bits; i32 registers, i16 for narrower elements."""
    vector, value = vector_operands(1, len(texts))
    ptx = f"st.shared{vector}.b{bits} {to.ptx(0)}, {value};"
    w.asm(ptx, [to.operand, *((TYPES[bits], x) for x in texts)])


def ld_shared(w: Writer, at: At, bits: int = 32) -> str:
    """As an i32, or an i16 if it is narrower. It keeps its place among waits and arrivals."""
    return w.asm_value(f"ld.shared.b{bits} $0, {at.ptx(1)};", [at.operand], TYPES[bits])


def ld_shared_words(w: Writer, at: At, count: int = 4) -> tuple[str, ...]:
    """1, 2 or 4 aligned elements of 32 bits."""
    vector, shown = vector_operands(0, count)
    ptx = f"ld.shared{vector}.b32 {shown}, {at.ptx(count)};"
    return w.asm(ptx, [at.operand], ["i32"] * count)


def ld_shared_pair(w: Writer, at: At, bits: int) -> tuple[str, ...]:
    """Two aligned elements: i32 registers, or narrower ones packed in one i16 or i32."""
    return ld_shared_words(w, at, 2) if bits == 32 else (ld_shared(w, at, 2 * bits),)


def store_remote(
    w: Writer, at: At, barrier: At, cta: str, texts: Sequence[str], comment: str
) -> None:
    """One or four elements of 32 bits to the same place in another CTA of the cluster, counted on
    its barrier.
    """
    vector, value = vector_operands(3, len(texts))
    ptx = (
        "{\n.reg .b32 to, on;\n"
        "mapa.shared::cluster.u32 to, $0, $2;\n"
        "mapa.shared::cluster.u32 on, $1, $2;\n"
        f"st.async.weak.shared::cluster.mbarrier::complete_tx::bytes{vector}.b32 "
        f"[to+{at.offset}], {value}, [on+{barrier.offset}]; {comment}\n}}"
    )
    w.asm(ptx, [at.operand, barrier.operand, ("i32", cta), *(("i32", x) for x in texts)])


ROW = ("", ".L2::128B")
"""Comes to L2 with what is loaded: 4 bytes of a row would wait for memory every eighth time."""
TYPES = {8: "i16", 16: "i16", 32: "i32"}
"""LLVM types of registers, by the bits of an access."""


def ld_global(
    w: Writer, at: Global, bits: int, pred: str | None, constant: bool, row: bool = False
) -> str:
    """One element, see `ld_global_vector`."""
    return ld_global_vector(w, at, bits, 1, pred, constant, row)[0]


def ld_global_vector(
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
    (vector, value), kind = vector_operands(0, count), ".nc" * constant + ROW[row]
    ptx = f"{predicate(pred, count + 1)}ld.global{kind}{vector}.b{bits} {value}, {at.ptx(count)};"
    if pred is not None:
        ptx = "".join(f"mov.b{max(bits, 16)} ${i}, 0;\n" for i in range(count)) + ptx
    if first is not None:
        # Straight to the wide register: a narrow one of its own, set only sometimes, would be live
        # all around the kernel's loop.
        alone = f"b{bits}" if count > 1 else f"u{bits // 2}"
        ptx += f"\n@${count + 2} ld.global{kind}.{alone} $0, {at.ptx(count)};"
    args = [at.operand, *predicate_operand(pred), *predicate_operand(first)]
    return w.asm(ptx, args, [TYPES[bits]] * count, early=True, pure=constant)


def st_global(w: Writer, at: Global, bits: int, texts: Sequence[str], pred: str | None) -> None:
    """One element, or two or four aligned ones."""
    count = len(texts)
    vector, value = vector_operands(1, count)
    ptx = f"{predicate(pred, count + 1)}st.global{vector}.b{bits} {at.ptx(0)}, {value};"
    w.asm(ptx, [at.operand, *((TYPES[bits], x) for x in texts), *predicate_operand(pred)])


def add_global(
    w: Writer, at: Global, kind: str, bits: int, texts: Sequence[str], pred: str | None
) -> None:
    """Atomic addition of one element (or packed pair), of two or of four; `kind` is
    PTX's, as in f32.
    """
    count = len(texts)
    vector, value = vector_operands(1, count)
    rounding = ".noftz" if "f16" in kind else ""
    ptx = (
        f"{predicate(pred, count + 1)}red.global.add{rounding}{vector}.{kind} {at.ptx(0)}, {value};"
    )
    w.asm(ptx, [at.operand, *((TYPES[bits], x) for x in texts), *predicate_operand(pred)])
