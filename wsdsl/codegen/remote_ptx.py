"""Inline PTX of stores to SMEM of other CTAs of the cluster, and of bytes that they expect."""

from __future__ import annotations

from collections.abc import Sequence

from wsdsl.codegen.inline_ptx import At, comment, operands
from wsdsl.codegen.writer import Writer


def store_remote(
    w: Writer, at: At, barrier: At, cta: str, texts: Sequence[str], label: str
) -> None:
    """One or four elements of 32 bits to the same place in another CTA of the cluster, counted on
    its barrier.
    """
    count = len(texts)
    shown = operands(3, count)
    vector, held = (".v4", f"{{{shown}}}") if count == 4 else ("", shown)
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
