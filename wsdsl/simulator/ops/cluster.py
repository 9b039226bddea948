"""Fragments that CTAs of a cluster send each other (DSMEM)."""

from dataclasses import dataclass

import numpy as np

from wsdsl.ir.op import Value
from wsdsl.ir.ops import BLOCK_COLUMNS, HELD_BYTES, ReceiveFragment, SendFragment
from wsdsl.simulator.ops.smem import read_shared
from wsdsl.simulator.reference.arithmetic import Array, numpy_dtype
from wsdsl.simulator.state.smem_bytes import span
from wsdsl.simulator.state.smem_races import CopyIn
from wsdsl.simulator.state.transfers import Transfer
from wsdsl.simulator.state.vector_clocks import Clocks
from wsdsl.simulator.warpgroup import Warpgroup


@dataclass(eq=False)
class SentIn(CopyIn):
    """It is for `receive_fragment`, in the generic proxy."""

    def hidden_from_async(self, clocks: Clocks, actors: slice) -> str:
        return "no fence shows data of another CTA to the async proxy"


@dataclass(eq=False)
class SendInFlight(Transfer):
    """A store to the SMEM of a CTA of the cluster."""

    bytes: Array
    access_type = SentIn

    def data(self) -> Array:
        return self.bytes


def send_fragment(wg: Warpgroup, op: SendFragment) -> None:
    value: Array = wg.get(op.value, op)
    held = np.ascontiguousarray(_in_order_of_threads(value)).view(np.uint8).reshape(-1)
    start, item = wg.place(op, held.size, op.offset + _shift(wg, op, op.shift))
    _aligned(wg, op, start)
    cta = wg.of_rank(op, op.cta)
    barrier = wg.barrier(op, op.barriers, wg.values[op.state.name], cta)
    phases, region = wg.cta.clocks.phases_seen(wg.everyone), span(start, held.size)
    sent = SendInFlight(wg, op, cta, region, barrier, wg.everyone, phases, held)
    sent.start(item, asynchronous=False)


def receive_fragment(wg: Warpgroup, op: ReceiveFragment) -> None:
    kind = op.result.as_fragment
    size = kind.rows * kind.columns * kind.dtype.bytes
    start, item = wg.place(op, size, op.offset + _shift(wg, op, op.shift))
    _aligned(wg, op, start)
    reader = wg.index, "received"
    held = read_shared(wg, op, span(start, size), wg.everyone, f"it reads {item}", reader)
    blocks = held.view(numpy_dtype(kind.dtype)).reshape(
        kind.columns // BLOCK_COLUMNS, 4, 8, 4, 2, 2
    )
    rows = blocks.transpose(1, 4, 2, 0, 3, 5)
    wg.values[op.result.name] = rows.reshape(kind.rows, kind.columns).copy()


def _in_order_of_threads(value: Array) -> Array:
    """Block by block, thread by thread: lane l of warp w has rows 16 w + l / 4 and 8 more, in each
    the columns 2 (l % 4) and the one after.
    """
    rows, columns = value.shape
    warps = value.reshape(rows // 16, 2, 8, columns // BLOCK_COLUMNS, 4, 2)
    return warps.transpose(3, 0, 2, 4, 1, 5)


def _shift(wg: Warpgroup, op: SendFragment | ReceiveFragment, value: Value | None) -> int:
    return 0 if value is None else int(wg.get(value, op))


def _aligned(wg: Warpgroup, op: SendFragment | ReceiveFragment, address: int) -> None:
    if address % HELD_BYTES:
        wg.fail(op, f"SMEM address {address} is not a multiple of {HELD_BYTES} bytes")
