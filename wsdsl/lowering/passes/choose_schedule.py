"""Fill in what the user left out of the schedule, and reject what does not fit.

Before: `schedule=Schedule(tile=dict(n=128))`, or none
After: `schedule=Schedule(tile=dict(m=128, n=128, k=64), stages=6, consumers=2, ...)`

Fields that are not given are tried: the axis along the MMA's M (`orientation`; it decides the axes'
roles), both modes, tiles of 64 and 128 rows, all widths, and splits (`split_k_options`). Of the
schedules that fit, the pass takes the one for which `predict` gives the fewest cycles.

Why here: nothing in front depends on roles or sizes; everything later reads roles and sizes from
the axes, and depths from the ops.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TypeVar

from wsdsl.diagnostics import Finding, ScheduleError, WsdslError
from wsdsl.ir.hardware.target import Target
from wsdsl.ir.op import Kernel, Op, once, with_fields
from wsdsl.ir.ops import Contract, ForEach, ForTiles
from wsdsl.ir.rewriter import rewrite
from wsdsl.ir.types import Sizes
from wsdsl.lowering.assign_roles import assign_roles
from wsdsl.lowering.axes import axes_of, loop_variable, output_nest, ragged_loop, whole_axes
from wsdsl.lowering.batch_coarsening import taken_in_turns
from wsdsl.lowering.check_schedule import faults, located, tile_faults
from wsdsl.lowering.cost_model.predict import predict
from wsdsl.lowering.cost_model.workload import Work
from wsdsl.lowering.cta_pairs import with_pair
from wsdsl.lowering.decode import num_decoders, unfit_decoding
from wsdsl.lowering.early_loads import num_load_warpgroups, unfit_constants
from wsdsl.lowering.footprint import MOST_REGISTERS, axis_sizes
from wsdsl.lowering.held_rows import ctas_per_sm
from wsdsl.lowering.heuristics.launches import with_dealt_tiles, with_overlap
from wsdsl.lowering.heuristics.orientation import other_orientation
from wsdsl.lowering.heuristics.ranked import MOST_NARROW, ranked, weight
from wsdsl.lowering.heuristics.register_room import wants_registers
from wsdsl.lowering.heuristics.ring_depth import ring_depth
from wsdsl.lowering.heuristics.tile_order import with_tile_order
from wsdsl.lowering.heuristics.tile_sizes import with_fixed_tiles
from wsdsl.lowering.precision import choose_precision
from wsdsl.lowering.product_operands import copied_operands
from wsdsl.lowering.register_layout import holds_vectors
from wsdsl.lowering.tmem_scales import with_scale_path
from wsdsl.schedule import Schedule, changed

T = TypeVar("T")
MANY_PARTS = 4
"""Parts for each SM. On an H200 attention of 64 sequences of 256 by 16 heads (8) takes 0.78 of
the time with parts of CTAs, a grouped matmul of 512 groups (4) 1.13
(benchmarks/results/default_schedules.md)."""
MOST_TRIES = 512
"""Most candidates that do not fit, the best first, of each orientation."""


def choose_schedule(kernel: Kernel, sizes: Sizes | None = None, narrow: int = 0) -> Kernel:
    """`sizes` (dimensions at launch), where known, let tiles divide the waves.

    Raises ScheduleError for a choice that is not lowered yet or does not fit the kernel.
    """
    known = at_least_one(sizes or {})
    kernel = _with_parts_of_ctas(kernel, known)
    ways, factor = _ways(kernel, known)
    best, limit, failed = None, math.inf, list[WsdslError]()
    for way in ways:
        try:
            schedule, cycles = next(_choices(way, known, limit, narrow))
        except WsdslError as error:
            # The axes can not be laid out so, or nothing is within the limit.
            failed.append(error)
            continue
        if cycles < limit:
            best = dataclasses.replace(_with_roles(way), schedule=schedule)
            limit = cycles / max(1.0, factor)
        if not factor:
            break
    if best is None:
        error = failed[0 if ways[0] is kernel else -1]
        return _alone(kernel, error, lambda own: choose_schedule(own, sizes, MOST_NARROW))
    return best


def nearly_best(
    kernel: Kernel, sizes: Sizes, near: float, most: int, narrow: int = 0
) -> list[tuple[Kernel, Schedule]]:
    """Whole schedules for `sizes`, `most` of each orientation, that take no more than `near` times
    as long as the best, and the kernel with the roles that they go with, the same for all sizes.
    """
    known = at_least_one(sizes)
    kernel = _with_parts_of_ctas(kernel, known)
    ways, factor = _ways(kernel, known)
    limit, found, failed = math.inf, list[tuple[float, Kernel, Schedule]](), list[WsdslError]()
    for way in ways:
        try:
            for schedule, cycles in islice(_choices(way, known, limit, narrow), most):
                limit = min(limit, cycles * near)
                found.append((cycles, _with_roles(way), schedule))
        except WsdslError as error:
            failed.append(error)
        if found and not factor:
            break
    if not found:
        error, how = failed[0 if ways[0] is kernel else -1], (sizes, near, most, MOST_NARROW)
        return _alone(kernel, error, lambda own: nearly_best(own, *how))
    return [(way, schedule) for cycles, way, schedule in found if cycles <= limit]


def _with_parts_of_ctas(kernel: Kernel, sizes: Sizes) -> Kernel:
    """Leave each part that a ragged loop walks to one CTA where there are many of them: all CTAs
    would compute the bounds of all groups, and causal tiles of equal groups are dealt unevenly.
    """
    if (ragged := ragged_loop(kernel)) is None:
        return kernel
    nest = list(output_nest(kernel)[0])
    known = dict(kernel.sizes) | dict(sizes)
    parts = math.prod(known.get(loop.dim, 1) for loop in nest[: nest.index(ragged)])
    if parts < MANY_PARTS * kernel.target.num_sms:
        return kernel

    def marked(op: Op) -> tuple[Op, ...]:
        own = isinstance(op, ForTiles) and op.index == ragged.index
        return (with_fields(op, one_cta=True),) if own else (op,)

    return kernel.with_body(rewrite(kernel.body, marked))


def _alone(kernel: Kernel, failed: WsdslError, choose: Callable[[Kernel], T]) -> T:
    """Choose for one consumer, whose rows take the least SMEM, and which has the most registers,
    where all else `failed`.
    """
    given = kernel.schedule or Schedule()
    split = given.consumers or given.consumer_split
    if split or given.mode == "pingpong" or not kernel.of(Contract):
        raise failed
    try:
        return choose(dataclasses.replace(kernel, schedule=changed(given, consumers=1)))
    except WsdslError:
        raise failed from None


def _ways(kernel: Kernel, sizes: Sizes) -> tuple[list[Kernel], float]:
    """The kernel by every orientation that is to be tried, in order, and by what factor the cycles
    of another than the first count; 0 where the first that can be laid out is taken.
    """
    other = other_orientation(kernel, sizes)
    if other is None:
        return [kernel], 0.0
    variable, factor = other
    kept: dict[str, Kernel] = kernel.__dict__.setdefault("_swapped", {})
    if variable not in kept:
        asked = dataclasses.replace(kernel.schedule or Schedule(), mma_m=variable)
        kept[variable] = dataclasses.replace(kernel, schedule=asked)
    swapped = kept[variable]
    return ([kernel, swapped] if factor else [swapped, kernel]), factor


def at_least_one(sizes: Sizes) -> dict[str, int]:
    """Where there is nothing to do, the choice is that of the least work."""
    return {dim: max(1, size) for dim, size in sizes.items()}


@once
def _with_roles(kernel: Kernel) -> Kernel:
    return assign_roles(kernel)


def _with_scale_path(kernel: Kernel, sizes: Sizes) -> Kernel:
    """Which slots there are depends on it."""
    given = kernel.schedule or Schedule()
    made = with_scale_path(kernel, given, sizes)
    return kernel if made == given else dataclasses.replace(kernel, schedule=made)


def _choices(
    kernel: Kernel, sizes: Sizes, limit: float = math.inf, narrow: int = 0
) -> Iterator[tuple[Schedule, float]]:
    """Whole schedules that leave the orientation as it is, and their cycles, the best first; an
    error where none can take fewer than `limit`.
    """
    kernel = _with_scale_path(_with_roles(kernel), sizes)
    given, findings = with_fixed_tiles(kernel, with_pair(kernel, kernel.schedule or Schedule()))
    findings += _unknown_variables(kernel, given)
    findings += [*unfit_constants(kernel, given), *unfit_decoding(kernel, given)]
    # Nothing is reckoned with tiles that are none.
    findings = findings or [*tile_faults(kernel, given)]
    if findings:
        raise ScheduleError(located(findings, kernel))
    fitting: list[Schedule] = []
    for tried, (option, _) in enumerate(ranked(kernel, given, sizes, limit, narrow=narrow)):
        if tried == MOST_TRIES and not fitting:
            break
        for promised in _promises(kernel, given, option):
            chosen, faulty = completed(kernel, promised, sizes)
            if not faulty:
                fitting.append(chosen)
                own = predict(Work.of(kernel, sizes), chosen, axis_sizes(kernel, chosen))
                yield chosen, weight(own)
                break
            as_asked = option.scheduler == given.scheduler and option.cluster == given.cluster
            if not findings or as_asked:
                # Findings against splits and clusters that the user did not give are no help.
                findings = faulty
    if not fitting:
        none = Finding(f"WS0439 no tile fits {given!r}", hint="leave fields of the schedule out")
        raise ScheduleError(located(findings or [none], kernel))


def _promises(kernel: Kernel, given: Schedule, option: Schedule) -> Iterator[Schedule]:
    """The option with its constant tensors, and without: where threads copy operands, to load some
    early takes a warpgroup, and what wide tiles lose by its registers is more than what is won at
    the start. Given consumers or registers that do not fit are findings.
    """
    is_open = given.consumers is None and given.registers is None
    apart = is_open and num_load_warpgroups(kernel, option) > 1
    if not (apart and wants_registers(kernel, option)):
        yield option
    if apart:
        yield changed(option, pdl_independent=None)


def _unknown_variables(kernel: Kernel, given: Schedule) -> Iterator[Finding]:
    axes, whole = axes_of(kernel), whole_axes(kernel)
    known = {v for name in axes if name not in whole for v in (name, loop_variable(name))}
    one_by_one = {op.index.name for op in kernel.of(ForEach)}
    known |= {loop.index.name for loop in (taken_in_turns(kernel),) if loop}
    for name in given.tile or {}:
        if name not in known:
            told = "whose indices are not tiles" if name in one_by_one else "which is not a loop"
            hint = f"choose from the loop variables: {', '.join(sorted(known))}"
            yield Finding(f"WS0440 Schedule.tile names `{name}`, {told}", hint=hint)


def completed(kernel: Kernel, option: Schedule, sizes: Sizes) -> tuple[Schedule, list[Finding]]:
    """With depths, registers, the order of tiles, the next kernel's start and precision, and what
    is wrong with that.
    """
    work, tile = Work.of(kernel, sizes), axis_sizes(kernel, option)
    chosen = _sized(kernel, option, work, tile)
    chosen = with_tile_order(chosen, work, tile)
    if holds_vectors(kernel) and option.scheduler in (None, "auto"):
        chosen = changed(chosen, scheduler="grid")
    elif work.sized:
        own = predict(work, chosen, tile)
        if option.scheduler in (None, "auto"):
            chosen = with_dealt_tiles(kernel, chosen, own)
        chosen = with_overlap(chosen, own)
    every, findings = choose_precision(kernel, chosen)
    chosen = changed(chosen, mma_promotion_interval=every)
    return chosen, [*findings, *faults(kernel, chosen)]


def _sized(kernel: Kernel, option: Schedule, work: Work, tile: Sizes) -> Schedule:
    """With depths and registers."""
    products = kernel.of(Contract)
    order = dict.fromkeys(v for name in axes_of(kernel) for v in (name, loop_variable(name)))
    order |= {loop.index.name: None for loop in (taken_in_turns(kernel),) if loop}
    sized, scheduler = option.tile or {}, option.scheduler
    chosen = changed(
        option,
        tile={v: sized[v] for v in order if v in sized},
        scheduler="persistent" if scheduler in (None, "auto") else scheduler,
    )
    if chosen.ctas_per_sm is None:
        chosen = changed(chosen, ctas_per_sm=ctas_per_sm(kernel, chosen, tile))
    if chosen.stages is None:
        depth = ring_depth(kernel, chosen, work, tile) if products else 1
        chosen = changed(chosen, stages=depth)
    if chosen.registers is None and products and not kernel.target.has_tensor_memory:
        loads = num_load_warpgroups(kernel, chosen)
        heavy, copies = wants_registers(kernel, chosen), bool(copied_operands(kernel))
        own = _registers(chosen.consumers or 1, loads, heavy, copies)
        if num_decoders(kernel):
            own = _beside_decoding(kernel.target, chosen.consumers or 1, loads)
        chosen = changed(chosen, registers=own)
    return chosen


def _registers(consumers: int, loads: int, heavy: bool, copies: bool) -> dict[str, int]:
    """setmaxnreg conserves the pool: (loads * load + consumers * compute) is what the launch gave
    out. Threads that copy operands ask for as much at once as they have registers for.
    """
    if loads == 2 and consumers > 1:
        return dict(load=24, compute={2: 232, 3: 144, 4: 104}[consumers])
    if consumers == 2 and heavy:
        return dict(load=24, compute=MOST_REGISTERS)
    if consumers == 2:
        return dict(load=56, compute=224) if copies else dict(load=40, compute=232)
    if consumers == 3:
        return dict(load=32, compute=160)
    if consumers == 4:
        return dict(load=32, compute=112)
    return dict(load=88 if copies else 56, compute=232)


def _beside_decoding(target: Target, consumers: int, loads: int) -> dict[str, int]:
    """The same with a warpgroup that decodes: consumers are given what it leaves of the pool."""
    groups = loads + consumers + 1
    load, decode = 24, min(120, target.entry_registers(groups) // 8 * 8)
    left = target.entry_registers(groups) * groups - loads * load - decode
    return dict(load=load, decode=decode, compute=min(240, left // consumers // 8 * 8))
