"""What CTAs of a cluster have each found out of a row, as pieces."""

from __future__ import annotations

from collections.abc import Callable

from wsdsl.ir.op import Value
from wsdsl.ir.pipeline_ops import ExchangeRows
from wsdsl.lowering.partition_context import PartitionContext
from wsdsl.lowering.register_tiles import RegisterTile


def exchanged(
    op: ExchangeRows, context: PartitionContext, pieces: Callable[[Value], RegisterTile]
) -> dict[Value, RegisterTile]:
    """By result. All of them are there once one is asked for."""
    shape = context.shapes.of(op.x[0].as_tile.axes)
    known: dict[int, list[list[Value]]] = {}

    def of_block(i: int) -> list[list[Value]]:
        if i not in known:
            own = [pieces(x).get(i, 0) for x in op.x]
            how = context.shapes.lanes, op.ctas, op.loc
            known[i] = context.shared_rows.exchange(own, *how)
        return known[i]

    def tile(n: int, rank: int) -> RegisterTile:
        return RegisterTile(shape, lambda i, j: of_block(i)[n][rank])

    places = ((n, rank) for n in range(len(op.x)) for rank in range(op.ctas))
    return {v: tile(*place) for v, place in zip(op.result, places, strict=True)}
