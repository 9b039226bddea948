"""Prefetches of later loads: no thread waits for them, and they change no memory."""

from __future__ import annotations

from wsdsl.ir.op import Op, Value, op_class
from wsdsl.ir.ops.mbarrier import SCHEDULED


@op_class(SCHEDULED, "one")
class PrefetchTensorMap(Op):
    """Bring a tensor map to the descriptor cache; run by one thread."""

    map: Value


@op_class(SCHEDULED, "one")
class PrefetchBox(Op):
    """Prefetch the box that `tma_load` would copy from `coordinates` to L2; run by one thread,
    which does not wait. It is not an access: a later load sees writes to the box in between, since
    all SMs read GMEM through L2. So it may precede `wait_predecessor`."""

    map: Value
    coordinates: tuple[Value, ...]


@op_class(SCHEDULED, "warpgroup")
class PrefetchTile(Op):
    """All 128 threads of the warpgroup prefetch the tile that `thread_load` would copy to L2: the
    lines of L2 with every 128th byte of a row, but beyond the tensor's end. No thread waits."""

    tensor: Value
    coordinates: tuple[Value, ...]
    row_dim: int
    rows: int
    columns: int
