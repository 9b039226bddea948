"""Fragments sent in a cluster: events of PTX."""

from wsdsl.ir import ops
from wsdsl.prover.ptx.sync_trace_builder import ThreadSet, TraceBuilder


def trace_send_fragment(t: TraceBuilder, op: ops.SendFragment, _: ThreadSet) -> None:
    cta, shifts = t.of_ranks(op.cta), t.of_warpgroups(op.shift)

    def place(tid: int, _: int) -> int | None:
        shift = shifts[tid // 128]
        return None if shift is None else shift + ops.HELD_BYTES * (tid % 128)

    for block in range(op.value.as_fragment.columns // ops.BLOCK_COLUMNS):
        start, stride = t.item(op.shared, op.offset + block * ops.BLOCK_BYTES)
        fill = t.of_barrier(op, start=start, stride=stride, further=place, cta=cta)
        t.emit(op, "st.async", "16 bytes", fill=fill)
