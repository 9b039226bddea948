"""Letters of tcgen05 instructions in PTX."""

from collections.abc import Callable, Sequence

from wsdsl.prover.ptx.sync_events import UNKNOWN, Letter

FIRST_WARP = (1 << 32) - 1
"""Threads, as bits."""
PREFIX = "tcgen05."
IN_TENSOR = ", a in tensor memory"
RING = "tensor memory[]"
"""All of its stages are looked at together."""


def tensor_letter(
    kind: str, args: Sequence[str], operand: int, constant: Callable[[str], int | None]
) -> tuple[Letter, str, str]:
    """Of an instruction without what is neutral, with the field that an operand says (of a product
    the one asked for), and that; `constant`: the value of a register, if it is known.
    """
    operation = kind.removeprefix(PREFIX).partition(".")[0]
    if operation in ("alloc", "dealloc"):
        return Letter(kind, args[-1]), "to", args[0]
    if operation in ("ld", "st", "cp"):
        return Letter(kind, "", RING), "to", args[-1 if operation == "ld" else 0]
    if operand > 0:
        return Letter(kind, f"operand {operand}", RING), "to", args[operand]
    if operation == "mma":
        shown = args[-1] if args[-1] in ("0", "1") else "p"
        scaled = ".block_scale" in kind
        how = constant(args[3]) if len(args) == 5 + 2 * scaled else None
        there = IN_TENSOR if args[1].startswith("[") else ""
        detail = f"{shown}, {UNKNOWN if how is None else how}{there}"
        return Letter(kind, detail, RING), "to", args[0]
    return Letter(kind), "barrier" if operation == "commit" else "", args[0] if args else ""
