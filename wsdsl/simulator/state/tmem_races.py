"""Accesses to TMEM: races between those that effects state, and the cells that ops move."""

from wsdsl.ir.effects import Access as Stated
from wsdsl.ir.effects import whole
from wsdsl.ir.hardware.tcgen05_shapes import COLUMNS
from wsdsl.ir.op import Op
from wsdsl.simulator.recorded_effects import Kind
from wsdsl.simulator.state import tmem_cells as tm
from wsdsl.simulator.state.smem_races import Access
from wsdsl.simulator.warpgroup import Warpgroup


def begin_columns(wg: Warpgroup, op: Op) -> None:
    """Check the accesses to TMEM that effects state. The op reports missing memory or columns."""
    first = wg.cta.rank // 2 * 2
    for stated in wg.cta.residents.stated(op, "tmem"):
        if stated.of is not None or not wg.index:
            access = _access(wg, op, stated)
            for cta in wg.cta.cluster.ctas[first : first + 2] if stated.pair else [wg.cta]:
                if cta.tensor_memory is not None:
                    _begin(wg, stated, access, cta.tensor_memory, cta.suffix)


def _access(wg: Warpgroup, op: Op, stated: Stated) -> Access:
    if stated.of is None:
        return tm.Untouched(wg.told, op)
    if wg.elected:
        return tm.PipeAccess(wg.told, op, wg.tensor_pipe, wg.tensor_pipe.count, in_order=True)
    wg.cell_accesses.append(tm.CellAccess(wg.told, op, wg.everyone, stated.kind))
    return wg.cell_accesses[-1]


def _begin(
    wg: Warpgroup, stated: Stated, access: Access, memory: tm.TensorMemory, suffix: str
) -> None:
    verb, spans = f"{stated.kind}s", stated.spans
    items, item = tm.ColumnItems("", 0, memory.columns, 1), 0
    if stated.of is None:
        verb, spans = "frees", whole(0, memory.columns)
    elif stated.item is not None:
        items, item = wg.values[stated.of.name], wg.values[stated.item.name].stage
    for span in (span for warp in spans for span in warp):
        start, end = (items.first + item * items.columns + at for at in wg.range_of(span))
        if 0 <= item < items.num and end <= items.first + (item + 1) * items.columns:
            halves = (0, 1) if span.half is None else (span.half,)
            ranges = [(half * COLUMNS + start, half * COLUMNS + end) for half in halves]
            by = stated.kind, ranges, access, wg.actors, (wg.index, type(access.op))
            found = memory.accesses.begin(*by, asynchronous=False)
            wg.settle(access.op, f"it {verb} columns {start} to {end}{suffix}", found)


def moves(wg: Warpgroup, op: Op, kind: Kind, memory: tm.TensorMemory, cells: tm.Cells) -> bool:
    """Record a read or write of cells; return whether ops had written all of them before."""
    wg.effect(op, kind, "tensor", wg.actors, cells, owner=memory.cta)
    written = bool(memory.written[cells].all())
    memory.written[cells] |= kind == "write"
    return written
