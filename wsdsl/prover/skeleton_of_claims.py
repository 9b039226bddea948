"""The events of clusters that claim others, as codegen is to emit them, and as PTX has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from wsdsl.ir.barrier_ops import ClaimCluster, ClaimedCluster
from wsdsl.ir.memory_ops import AllocateShared
from wsdsl.ir.op import Value
from wsdsl.ir.types import Shared
from wsdsl.prover.skeleton_states import Fill, Places

ASK, QUERY = "clusterlaunchcontrol.try_cancel", "clusterlaunchcontrol.query_cancel"
_ASKS = f"{ASK}.async.shared::cta.mbarrier::complete_tx::bytes"
ASKS = {f"{_ASKS}.b128": ASK, f"{_ASKS}.multicast::cluster::all.b128": f"multicast {ASK}"}
"""What stands in PTX, and the event."""
IS_CLAIMED, CLAIMED = f"{QUERY}.is_canceled", f"{QUERY}.get_first_ctaid::x"
READS = {f"{IS_CLAIMED}.pred.b128": IS_CLAIMED, f"{CLAIMED}.b32.b128": CLAIMED}


class Builder(Protocol):
    places: Places
    shared: dict[Value, AllocateShared]

    @property
    def emit(self) -> Callable[..., None]: ...


def claim_events(made: Builder, op: ClaimCluster | ClaimedCluster, conditional: str) -> None:
    """An answer's cluster is read where there is one."""
    if isinstance(op, ClaimedCluster):
        made.emit(op, IS_CLAIMED)
        made.emit(op, conditional + CLAIMED)
        return
    assert isinstance(op.shared.type, Shared)
    start, stride = made.shared[op.shared].offset, op.shared.type.bytes
    fill = Fill(made.places.barriers[op.barriers], op.state, start=start, stride=stride)
    made.emit(op, "multicast " * (op.ctas > 1) + ASK, fill=fill)
