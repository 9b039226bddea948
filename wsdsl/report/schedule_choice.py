"""Explain a schedule: its prediction by the cost model, and that of the alternatives."""

import dataclasses
import math
from collections.abc import Iterator, Mapping
from itertools import islice, takewhile
from typing import Any

from wsdsl.diagnostics import counted
from wsdsl.ir.analysis.tile_widths import narrowings
from wsdsl.ir.hardware.packed_layout import block_bytes
from wsdsl.ir.op import Kernel
from wsdsl.ir.plan import Plan
from wsdsl.ir.types import Tensor
from wsdsl.lowering import footprint
from wsdsl.lowering.axes import whole_axes
from wsdsl.lowering.cooperation import cluster_size
from wsdsl.lowering.cost_model.memory_bound import MEMORY, PlainCost
from wsdsl.lowering.cost_model.predict import Prediction, predict
from wsdsl.lowering.cost_model.sized_kernel import UNKNOWN_SIZE
from wsdsl.lowering.cost_model.speeds import at_launch, l2_bytes
from wsdsl.lowering.cost_model.workload import Work
from wsdsl.lowering.heuristics.ranked import ranked, weight
from wsdsl.lowering.heuristics.split_k_options import MARGIN
from wsdsl.lowering.heuristics.tile_sizes import with_fixed_tiles
from wsdsl.lowering.packed_operands import packable_tensors
from wsdsl.lowering.passes.choose_schedule import MOST_TRIES, completed
from wsdsl.lowering.pipeline import scheduled_tile
from wsdsl.report.bottleneck import bottleneck_line, unit_fractions
from wsdsl.report.explanation import Explanation
from wsdsl.report.ragged import ragged_lines, rows_by_axis
from wsdsl.schedule import Schedule

SHOWN, LISTED = 4, 16
ONE = "wgmma reads only its A operand, of 16 bits, from registers"
Candidate = tuple[Schedule, Prediction]


def explain_choice(
    kernel: Kernel,
    plan: Plan,
    given: Schedule | None,
    sizes: Mapping[str, int],
    rows: int | None = None,
    bounds: Mapping[str, Any] = {},
) -> Explanation:
    """`kernel`: at TILE, with its complete schedule; `given`: the user's fields of it; `sizes` by
    dimension; `rows` per trip of ragged loops, or their `bounds` by tensor.
    """
    chosen = scheduled_tile(kernel)
    schedule = chosen.schedule
    assert schedule is not None
    ragged = rows_by_axis(chosen, rows, bounds)
    work = Work(chosen, sizes, ragged=ragged)
    told = ", ".join(f"{dim} = {size}" for dim, size in sizes.items()) or "sizes unknown"
    told += "" if work.sized else f" (unknown sizes: {UNKNOWN_SIZE} is assumed)"
    own = predict(work, schedule, footprint.axis_sizes(chosen, schedule))
    units = unit_fractions(own, schedule)
    lines = [f"{kernel.name} for {told}: {schedule!r}"]
    lines.append(f"  predicted: {_time(own)}, {own.cycles:.3g} cycles at {own.tile.clock:.2g} GHz")
    lines.append(f"  {bottleneck_line(units)}")
    if own.plain:
        lines += plain_reasons(own.plain, schedule)
    else:
        registers = footprint.accumulator_registers(chosen, schedule)
        registers += footprint.promoted_registers(chosen, schedule)
        compute = (schedule.registers or {}).get("compute", chosen.target.max_registers)
        lines += [*_reasons(own), *_loading(own, schedule)]
        lines.append(f"  accumulators: {registers} registers per thread of {compute}")
        lines.append(f"  SMEM: {plan.smem_bytes} of {plan.target.smem_bytes} bytes")
    lines += [*ragged_lines(chosen, ragged, work.walked), *_width(chosen, schedule, work)]
    if schedule.mma_m:
        steps = "its tiles are multiples of 64, those along N of 8"
        lines.append(f"  `{schedule.mma_m}` is the M axis of wgmma: {steps}")
    places = schedule.operand_transform
    if isinstance(places, Mapping) and (given is None or given.operand_transform is None):
        names = ", ".join(places)
        lines.append(f"  a transform warpgroup computes the operand from {names} in SMEM: {ONE}")
    lines += _unpacked(kernel)
    given = dataclasses.replace(given or Schedule(), mma_m=schedule.mma_m)
    shown: list[Candidate] = []
    ways = {_way(schedule)}
    for candidate in _others(chosen, given, sizes):
        way = _way(candidate[0])
        # Faster ones were tried before, and spilled.
        quicker = weight(candidate[1]) < weight(own)
        if quicker or (len(shown) >= SHOWN and way in ways):
            continue
        if not completed(chosen, candidate[0], sizes)[1]:
            shown.append(candidate)
            ways.add(way)
    if ragged:
        shown = [(s, predict(work, s, footprint.axis_sizes(chosen, s))) for s, _ in shown]
    shown[:SHOWN] = sorted(shown[:SHOWN], key=lambda candidate: candidate[1].cycles)
    lines += _listed("alternatives, predicted time versus this schedule:", shown[:SHOWN], own)
    lines += _tried_before(chosen, given, sizes)
    gain = round(100 * (MARGIN - 1))
    heading = f"other tile schedulers (splitting tiles has to save {gain} % of the time):"
    lines += _listed(heading, shown[SHOWN:], own)
    others = [(option, p.microseconds) for option, p in shown]
    return Explanation("\n".join(lines), schedule, own.microseconds, units, others)


def _width(chosen: Kernel, schedule: Schedule, work: Work) -> Iterator[str]:
    """Which width launches of these sizes have, where they differ."""
    widest = footprint.axis_sizes(chosen, schedule)
    for name, size in at_launch(work, schedule, widest).items() if schedule.tile_n_variants else ():
        if (work.roles[name], name in whole_axes(chosen)) == ("columns", False):
            least = widest[name] - narrowings(schedule.tile_n_variants or 1)[-1]
            among = f"of {schedule.tile_n_variants} extents from {least} to {widest[name]}"
            yield f"  tile extent along {name} for these sizes: {size}, the fastest {among}"


def _unpacked(kernel: Kernel) -> Iterator[str]:
    """Hints for tensors that threads would read by fewer loads if packed: 16 separate bytes per
    thread instead of two adjacent 8-bit elements, or of a 4-bit vector that four threads share.
    """
    for value in packable_tensors(kernel):
        kind = value.type
        if isinstance(kind, Tensor) and not kind.packed and kind.dtype.bits <= 8:
            vectors = block_bytes(kind.dtype) // 128 // 16
            num, how = (4, "eight") if kind.dtype.bits == 4 else (8, "two")
            yield (
                f"  threads load {value.name} by {how} elements, {num * vectors} loads per 64 x 64 "
                f"block. hint: pack it ahead of time ({kernel.name}.pack): {vectors} loads"
            )


def _others(chosen: Kernel, given: Schedule, sizes: Mapping[str, int]) -> Iterator[Candidate]:
    assert chosen.schedule is not None
    for candidate in ranked(chosen, with_fixed_tiles(chosen, given)[0], sizes):
        if _choice(candidate[0]) != _choice(chosen.schedule):
            yield candidate


def _tried_before(chosen: Kernel, given: Schedule, sizes: Mapping[str, int]) -> list[str]:
    """Why each candidate does not fit that is ranked before the first that does."""
    options = islice(ranked(chosen, with_fixed_tiles(chosen, given)[0], sizes), MOST_TRIES)
    tried = ((option, completed(chosen, option, sizes)[1]) for option, _ in options)
    unfit = takewhile(lambda each: each[1], tried)
    found = dict.fromkeys(f"  {_shape(option)}: {why[0].message}" for option, why in unfit)
    heading = f"faster in prediction, but rejected ({counted(len(found), 'candidate')}):"
    return [heading, *list(found)[:LISTED]] if found else []


def _choice(schedule: Schedule) -> tuple[object, ...]:
    shared = schedule.mode, schedule.consumers, dict(schedule.tile or {})
    return *shared, *_way(schedule), schedule.splits, schedule.cluster


def _way(schedule: Schedule) -> tuple[str, str]:
    """To share out the work."""
    if schedule.cuts_tiles:
        return schedule.scheduler or "", schedule.reduction or "serial"
    return "whole tiles", ""


def _listed(heading: str, candidates: list[Candidate], own: Prediction) -> list[str]:
    lines = [heading] if candidates else []
    for option, p in candidates:
        more = 100 * (p.cycles / own.cycles - 1)
        lines.append(f"  {more:+.1f} %, {_time(p)}: {_shape(option)}; {_waves(p)}")
    return lines


def _shape(option: Schedule) -> str:
    tile = " ".join(f"{name}={size}" for name, size in (option.tile or {}).items())
    own = [f"{option.mode}", counted(option.consumers or 1, "consumer")]
    if cluster_size(option) > 1:
        own.append(_cluster(option))
    if option.scheduler == "stream_k":
        own.append("stream-K")
    elif option.scheduler == "split_k":
        own.append(f"split-K by {option.splits}, {option.reduction or 'serial'}")
    return f"{', '.join(own)}, {tile}"


def _cluster(option: Schedule) -> str:
    sides = ", ".join(f"{num} along {name}" for name, num in (option.cluster or {}).items())
    if option.cta_group == 2:
        return f"CTA pairs ({sides})"
    return f"clusters of {sides}"


def _time(p: Prediction) -> str:
    digits = 1 if p.microseconds < 100 else 0
    return f"{p.microseconds:.{digits}f} µs"


def _waves(p: Prediction) -> str:
    tiles, waves = counted(p.tile.tiles // p.sharing, "tile"), counted(math.ceil(p.rounds), "wave")
    cut = f" ({p.work.cut} split into {p.work.pieces} work units)" if p.work.cut else ""
    if p.sharing > 1:
        cut = f", each split along K over a cluster of {p.sharing} CTAs,"
    sms = f"{100 * p.busy:.0f} % of {p.tile.target.num_sms} SMs busy in the mainloop"
    return f"{tiles}{cut} in {waves}; {sms}"


def _reasons(p: Prediction) -> list[str]:
    per_flop = p.tile.operand_bytes / max(1, p.tile.in_all("operations"))
    from_l2 = l2_bytes(p.tile.rates, p.busy) * p.gain
    fixup = f", {p.handing:.0f} in the split-K fixup" if p.handing else ""
    unit = "CTA's share of a tile" if p.sharing > 1 else "tile"
    return [
        f"  work: {_waves(p)}",
        f"  cycles per {unit}: {p.mainloop:.0f} in the mainloop, {p.epilogue:.0f} in the epilogue"
        f"{fixup}",
        f"  operands: {p.tile.bytes_per_cycle:.0f} bytes per cycle and SM (L2 delivers up to "
        f"{from_l2:.0f}), {1000 * per_flop:.2f} bytes per 1000 FLOP",
    ]


def _loading(p: Prediction, schedule: Schedule) -> Iterator[str]:
    size = cluster_size(schedule)
    if size > 1 and p.sharing == 1:
        alone = schedule.multicast is False and schedule.cta_group != 2
        what = "no multicast" if alone else "each CTA loads and multicasts a part"
        room = p.tile.target.cluster_room(size)
        yield f"  {_cluster(schedule)}: {what}; {room} of them are resident at the same time"


def plain_reasons(cost: PlainCost, schedule: Schedule) -> Iterator[str]:
    tile, size, clock = cost.tile, cluster_size(schedule), cost.tile.clock
    each = f", each by a CTA of a cluster of {size}" if size > 1 else ""
    ctas = counted(cost.ctas_per_sm, "CTA")
    yield f"  work: {counted(tile.tiles, 'tile')}{each}; {ctas} per SM on {tile.target.num_sms} SMs"
    if memory := cost.units[MEMORY] / clock / 1000:
        rate = (cost.read_bytes + cost.written_bytes) / memory / 1e6
        part = 100 * cost.units[MEMORY] / cost.cycles
        yield (
            f"  DRAM: {_bytes(cost.read_bytes)} read, {_bytes(cost.written_bytes)} written; "
            f"{memory:.1f} µs at {rate:.2f} TB/s, {part:.0f} % of the predicted time"
        )
    fill = (tile.start + cost.first) / clock / 1000
    yield f"  launch, first loads and last stores: {fill:.1f} µs"
    if cost.is_held:
        yield "  rows stay in registers: each element is loaded once"
    elif (schedule.stages or 1) > 1:
        yield f"  threads load {schedule.stages} tiles at a time, one of them ahead"


def _bytes(number: float) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number:.0f} bytes"
