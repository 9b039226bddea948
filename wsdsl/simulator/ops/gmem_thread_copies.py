"""Copies of tiles between GMEM and SMEM by threads."""

from wsdsl.ir import ops
from wsdsl.simulator.ops.gmem import access_global, check_repeated
from wsdsl.simulator.ops.smem import aligned, read_shared, write_shared
from wsdsl.simulator.ops.tma import boxes_of, coordinates_of
from wsdsl.simulator.state.smem_bytes import tile
from wsdsl.simulator.state.tensor_maps import TensorMapValue
from wsdsl.simulator.warpgroup import Warpgroup


def forward(wg: Warpgroup, op: ops.ThreadLoad | ops.ThreadStore) -> tuple[int, ...]:
    """The coordinates of a copy by threads, which begins within the tensor."""
    at = coordinates_of(wg, op, op.coordinates)
    if at[-1] < 0 or (op.row_dim >= 0 and at[op.row_dim] < 0):
        wg.outside(op, f"the row or column of coordinates {at} is negative")
    return at


def thread_store(wg: Warpgroup, op: ops.ThreadStore) -> None:
    tensor = wg.cta.arguments.tensors[op.tensor.name]
    panel = TensorMapValue(tensor, op.box, op.swizzle)
    for i, region, box, what in boxes_of(wg, op, panel, forward(wg, op)):
        warp, inside = wg.warp(i), panel.inside(box)
        lines = read_shared(wg, op, region, warp, what, (wg.index, "threads", i))
        access_global(wg, op, "add" if op.accumulate else "write", tensor.name, inside, warp)
        before = tensor.array[inside].copy()
        panel.write(box, lines, op.accumulate, whole_units=False)
        if not op.accumulate:
            check_repeated(wg, op, tensor, inside, before)


def thread_load(wg: Warpgroup, op: ops.ThreadLoad) -> None:
    tensor = wg.cta.arguments.tensors[op.tensor.name]
    start, item = wg.place(op, tensor.dtype.size(op.rows * op.columns), op.offset)
    aligned(wg, op, start, op.swizzle)
    box = [1] * tensor.array.ndim
    box[-1] = op.columns
    if op.row_dim >= 0:
        box[op.row_dim] = op.rows
    panels, at = TensorMapValue(tensor, tuple(box), op.swizzle), forward(wg, op)
    lines, what = panels.read(at), f"it overwrites {item}"
    region = tile(start, len(lines), lines.shape[1], op.swizzle)
    write_shared(wg, op, region, wg.everyone, what, lines)
    access_global(wg, op, "read", tensor.name, panels.inside(at), wg.everyone)
