"""Cluster launch control: events of PTX."""

from wsdsl.ir import ops
from wsdsl.prover.ptx.sync_events import CONDITIONAL, FIRST_CTA, IS_CANCELED, TRY_CANCEL
from wsdsl.prover.ptx.sync_trace_builder import ThreadSet, TraceBuilder


def trace_clc_try_cancel(t: TraceBuilder, op: ops.ClcTryCancel, _: ThreadSet) -> None:
    start, stride = t.item(op.shared, 0)
    fill = t.of_barrier(op, start=start, stride=stride)
    t.emit(op, "multicast " * (op.ctas > 1) + TRY_CANCEL, fill=fill)


def trace_clc_query_cancel(t: TraceBuilder, op: ops.ClcQueryCancel, _: ThreadSet) -> None:
    t.emit(op, IS_CANCELED)
    t.emit(op, CONDITIONAL + FIRST_CTA)
