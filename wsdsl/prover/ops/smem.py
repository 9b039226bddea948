"""SMEM arrays."""

from wsdsl.ir import ops
from wsdsl.prover.ptx.sync_trace_builder import ThreadSet, TraceBuilder


def trace_allocate_shared(t: TraceBuilder, op: ops.AllocateShared, _: ThreadSet) -> None:
    t.shared[op.result] = op
