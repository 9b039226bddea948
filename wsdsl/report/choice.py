"""Why a schedule is chosen for given sizes: what the model predicts of it, of the next best, and of
other ways to share out the work.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from itertools import islice, takewhile

from wsdsl.diagnostics import counted
from wsdsl.ir.narrowing import narrowings
from wsdsl.ir.op import Kernel
from wsdsl.ir.packing import block_bytes
from wsdsl.ir.types import Tensor
from wsdsl.lowering import footprint
from wsdsl.lowering.axes import whole_axes
from wsdsl.lowering.choice.ranked import ranked, weight
from wsdsl.lowering.choice.split_k_options import MARGIN
from wsdsl.lowering.choice.tile_sizes import with_fixed_tiles
from wsdsl.lowering.cooperation import cluster_size, num_cooperating
from wsdsl.lowering.model.predict import Prediction, predict
from wsdsl.lowering.model.speeds import at_launch, issuing, l2_bytes, pace_of, power
from wsdsl.lowering.model.workload import UNKNOWN_SIZE, Step, Work
from wsdsl.lowering.packed_operands import packable_tensors
from wsdsl.lowering.passes.choose_schedule import MOST_TRIES, completed
from wsdsl.lowering.pipeline import scheduled_tile
from wsdsl.report.explanation import Explanation
from wsdsl.report.plain_choice import plain_reasons
from wsdsl.schedule import Schedule

SHOWN, LISTED = 4, 16
ONE = "the tensor cores take one operand from registers, of 16 bits, as the rows of a tile"
LEAST = 0.05
"""Of the time, that is worth telling."""
Candidate = tuple[Schedule, Prediction]


def explain_choice(kernel: Kernel, given: Schedule | None, sizes: Mapping[str, int]) -> Explanation:
    """`kernel` at the level TILE with the whole schedule that is taken; `given`: what the user said
    of it; `sizes` by dimension.
    """
    chosen = scheduled_tile(kernel)
    schedule = chosen.schedule
    assert schedule is not None
    work = Work(chosen, sizes)
    told = ", ".join(f"{dim} = {size}" for dim, size in sizes.items()) or "sizes unknown"
    told += "" if work.sized else f" ({UNKNOWN_SIZE} is assumed)"
    own = predict(work, schedule, footprint.axis_sizes(chosen, schedule))
    lines = [f"chosen for {told}: {schedule!r}"]
    if own.plain:
        lines += plain_reasons(own.plain, schedule)
    else:
        registers = footprint.accumulator_registers(
            chosen, schedule
        ) + footprint.promoted_registers(chosen, schedule)
        compute = (schedule.registers or {}).get("compute", chosen.target.max_registers)
        lines += _reasons(own, schedule)
        lines.append(f"  sums take {registers} of {compute} registers a thread")
        lines.append(f"  SMEM {_smem(chosen, schedule)} bytes")
    lines += _width(chosen, schedule, work)
    if schedule.mma_m:
        steps = "its tiles come in steps of 64, the other side's in steps of 8"
        lines.append(f"  `{schedule.mma_m}` rides wgmma's M: {steps}")
    places = schedule.operand_transform
    if isinstance(places, Mapping) and (given is None or given.operand_transform is None):
        names = ", ".join(places)
        lines.append(
            f"  what is loaded from {names} is computed in SMEM, by a warpgroup of its own: {ONE}"
        )
    lines += _unpacked(kernel)
    given = dataclasses.replace(given or Schedule(), mma_m=schedule.mma_m)
    shown: list[Candidate] = []
    ways = {_way(schedule)}
    for candidate in _others(chosen, given, sizes):
        way = _way(candidate[0])
        # Quicker ones were tried before, and spilled.
        quicker = weight(candidate[1]) < weight(own)
        if quicker or (len(shown) >= SHOWN and way in ways):
            continue
        if not completed(chosen, candidate[0], sizes)[1]:
            shown.append(candidate)
            ways.add(way)
    shown[:SHOWN] = sorted(shown[:SHOWN], key=lambda candidate: candidate[1].cycles)
    lines += _listed("the next best:", shown[:SHOWN], own)
    lines += _tried_before(chosen, given, sizes)
    heading = f"other ways (to cut tiles has to gain {round(100 * (MARGIN - 1))} %):"
    lines += _listed(heading, shown[SHOWN:], own)
    others = [(option, p.microseconds) for option, p in shown]
    return Explanation("\n".join(lines), schedule, own.microseconds, _units(own, schedule), others)


def _units(own: Prediction, schedule: Schedule) -> Mapping[str, float]:
    """Fraction of the predicted time per hardware unit."""
    if own.plain:
        return {name: cycles / own.plain.cycles for name, cycles in own.plain.units.items()}
    return _taken(own, schedule)


def _width(chosen: Kernel, schedule: Schedule, work: Work) -> Iterator[str]:
    """Which width launches of these sizes have, where they differ."""
    widest = footprint.axis_sizes(chosen, schedule)
    for name, size in at_launch(work, schedule, widest).items() if schedule.tile_n_variants else ():
        if (work.roles[name], name in whole_axes(chosen)) == ("columns", False):
            least = widest[name] - narrowings(schedule.tile_n_variants or 1)[-1]
            among = f"of {schedule.tile_n_variants} extents from {least} to {widest[name]}"
            told = f"{among}, the one by which SMs are done first"
            yield f"  launches of these sizes have tiles of {size} along {name}: {told}"


def _unpacked(kernel: Kernel) -> Iterator[str]:
    """Tensors that threads would read by fewer loads if they were packed: by 16 bytes of their own
    in place of two neighbours of 8 bits, or of a vector of 4 bits that four of them share.
    """
    for value in packable_tensors(kernel):
        kind = value.type
        if isinstance(kind, Tensor) and not kind.packed and kind.dtype.bits <= 8:
            vectors = block_bytes(kind.dtype) // 128 // 16
            num, how = (4, "eight") if kind.dtype.bits == 4 else (8, "two")
            yield (
                f"  threads read {value.name} {how} elements at a time, {num * vectors} loads for "
                f"64 x 64; packed ahead of time they take {vectors}: {kernel.name}.pack"
            )


def _smem(chosen: Kernel, schedule: Schedule) -> int:
    """With as many buffers for stores as there is room for."""
    stages = schedule.stages or 1
    buffers = footprint.STAGING_BUFFERS if footprint.fits_smem(chosen, schedule, stages) else 1
    return footprint.smem_bytes(chosen, schedule, stages, buffers)


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
    heading = f"tried before it, {counted(len(found), 'candidate')}:"
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
        behind = 100 * (p.cycles / own.cycles - 1)
        lines.append(f"  {_shape(option)}: {behind:+.1f} %, {_time(p)}, {_waves(p)}")
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
        return f"pairs ({sides}) that multiply together"
    return f"clusters of {sides}" + (" without multicast" if option.multicast is False else "")


def _time(p: Prediction) -> str:
    digits = 1 if p.microseconds < 100 else 0
    return f"{p.microseconds:.{digits}f} µs"


def _waves(p: Prediction) -> str:
    tiles, waves = counted(p.tile.tiles // p.sharing, "tile"), counted(math.ceil(p.rounds), "wave")
    cut = f" ({p.work.cut} cut into {p.work.pieces} pieces)" if p.work.cut else ""
    if p.sharing > 1:
        cut = f", {p.sharing} CTAs for the sums of each,"
    return f"{tiles}{cut} in {waves}, {100 * p.busy:.0f} % of {p.tile.target.num_sms} SMs"


def _taken(own: Prediction, schedule: Schedule) -> dict[str, float]:
    """What each resource takes of the time, from 0 to 1, the busiest first: what is near 1 is the
    limit. What is beside tiles' loops is "results".
    """
    asked, rates = own.tile, own.tile.rates
    lanes, pace = issuing(rates, num_cooperating(schedule)), pace_of(asked, own.busy)

    def total(of: Callable[[Step], float]) -> float:
        return own.rounds * sum(step.times * of(step) for step in asked.steps if step.in_loop)

    found = {
        "tensor cores": total(lambda step: step.tensor)
        * power(rates, asked.bytes_per_cycle)
        * pace,
        "SMEM, read by products": total(lambda step: step.read) / rates.tensor_smem_bytes,
        "L2": total(lambda step: step.loaded) / (l2_bytes(rates, own.busy) * own.gain),
        "instructions": total(lambda step: step.instructions) / lanes * pace,
        "results": own.work.finished * own.epilogue,
    }
    shares = {name: cycles * own.stretch / own.cycles for name, cycles in found.items()}
    shares["memory"] = own.memory / own.cycles
    shares["handing on sums"] = own.handing / own.cycles
    shares["start"] = own.tile.start / own.cycles
    return dict(sorted(shares.items(), key=lambda item: -item[1]))


def _limits(p: Prediction, schedule: Schedule) -> str:
    """What the time goes by, in order; what takes next to nothing is left out."""
    first, *others = _taken(p, schedule).items()
    told = ", ".join(f"{name} {100 * share:.0f} %" for name, share in others if share > LEAST)
    name, share = first
    beside = f"; {told}" if told else ""
    return f"limited by {name}, {100 * share:.0f} % of the time{beside}"


def _reasons(p: Prediction, schedule: Schedule) -> list[str]:
    what = "a CTA's part" if p.sharing > 1 else "a tile"
    per_operation = p.tile.operand_bytes / max(1, p.tile.in_all("operations"))
    from_l2 = l2_bytes(p.tile.rates, p.busy) * p.gain
    handing = f"; {p.handing:.0f} to hand on sums" if p.handing else ""
    return [
        f"  {_waves(p)}",
        f"  {_limits(p, schedule)}",
        f"  {_time(p)} at {p.tile.clock:.2g} GHz, {p.cycles:.3g} cycles: of {what} "
        f"{p.mainloop:.0f} for products, {p.epilogue:.0f} for results{handing}",
        f"  operands: {p.tile.bytes_per_cycle:.0f} bytes a cycle and SM (L2 has {from_l2:.0f}), "
        f"{1000 * per_operation:.2f} bytes per 1000 operations",
        *_loading(p, schedule),
    ]


def _loading(p: Prediction, schedule: Schedule) -> Iterator[str]:
    size = cluster_size(schedule)
    if size > 1 and p.sharing == 1:
        alone = schedule.multicast is False and schedule.cta_group != 2
        what = "comes once to the GPC that they lie in" if alone else "each loads a part of"
        yield (
            f"  {_cluster(schedule)}: what several of them want {what}; "
            f"{p.tile.target.cluster_room(size)} run at the same time"
        )
