"""Ops that ask for what is loaded later: nobody waits, and nobody sees what they do."""

from __future__ import annotations

from wsdsl.ir.barrier_ops import SCHEDULED
from wsdsl.ir.op import Op, Value, op_class


@op_class(SCHEDULED, "one")
class PrefetchTensorMap(Op):
    """Bring a tensor map to the descriptor cache; run by one thread."""

    map: Value


@op_class(SCHEDULED, "one")
class PrefetchBox(Op):
    """Ask for the box that `tma_load` would copy from `coordinates` to come to L2; run by one
    thread, which does not wait. It accesses nothing: what others write to the box meanwhile is seen
    by whoever loads it, since all of the card read GMEM through L2. So it may stand in front of
    `wait_predecessor`."""

    map: Value
    coordinates: tuple[Value, ...]


@op_class(SCHEDULED, "warpgroup")
class PrefetchTile(Op):
    """All 128 threads of the warpgroup ask for what `thread_load` would copy to come to L2: for the
    lines of L2 that hold every 128th byte of a row, but beyond the tensor's end. None waits."""

    tensor: Value
    coordinates: tuple[Value, ...]
    row_dim: int
    rows: int
    columns: int
