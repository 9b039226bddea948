"""All of lowering, as one list. Each pass says in its docstring why it stands where it does."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Protocol

from wsdsl import config
from wsdsl.diagnostics import CompileError
from wsdsl.gc_pause import held_back
from wsdsl.ir.op import Kernel, Level
from wsdsl.ir.types import Sizes
from wsdsl.ir.verify.verifier import verify
from wsdsl.lowering.heuristics.ranked import MOST_NARROW, ranked
from wsdsl.lowering.heuristics.register_room import with_fewer_sums
from wsdsl.lowering.heuristics.tile_sizes import with_fixed_tiles
from wsdsl.lowering.passes.add_in_place import add_in_place
from wsdsl.lowering.passes.allocate_shared import allocate_shared
from wsdsl.lowering.passes.approximate_math import approximate_math
from wsdsl.lowering.passes.assign_decode_axes import assign_decode_axes
from wsdsl.lowering.passes.assign_multicast import assign_multicast
from wsdsl.lowering.passes.assign_states import assign_states
from wsdsl.lowering.passes.assign_tile_sizes import assign_tile_sizes
from wsdsl.lowering.passes.bound_ranges import bound_ranges
from wsdsl.lowering.passes.choose_schedule import at_least_one, choose_schedule, completed
from wsdsl.lowering.passes.claim_tiles import claim_tiles
from wsdsl.lowering.passes.cse import cse
from wsdsl.lowering.passes.dce import dce
from wsdsl.lowering.passes.defer_sums import defer_sums
from wsdsl.lowering.passes.expand_top_k import expand_top_k
from wsdsl.lowering.passes.fit_last_tiles import fit_last_tiles
from wsdsl.lowering.passes.fuse_accumulators import fuse_accumulators
from wsdsl.lowering.passes.hoist_indices import hoist_indices
from wsdsl.lowering.passes.hoist_loads import hoist_loads
from wsdsl.lowering.passes.hoist_operands import hoist_operands
from wsdsl.lowering.passes.hoist_scalars import hoist_scalars
from wsdsl.lowering.passes.hold_rows import hold_rows
from wsdsl.lowering.passes.hold_tables import hold_tables
from wsdsl.lowering.passes.insert_prologue import insert_prologue
from wsdsl.lowering.passes.join_bytes import join_bytes
from wsdsl.lowering.passes.join_exchanges import join_exchanges
from wsdsl.lowering.passes.load_before_waits import load_before_waits
from wsdsl.lowering.passes.load_rows_ahead import load_rows_ahead
from wsdsl.lowering.passes.load_tiles_ahead import load_tiles_ahead
from wsdsl.lowering.passes.lower_loops import lower_loops
from wsdsl.lowering.passes.lower_rings import lower_rings
from wsdsl.lowering.passes.lower_split_k import lower_split_k
from wsdsl.lowering.passes.lower_tiles import lower_tiles
from wsdsl.lowering.passes.make_plan import make_plan
from wsdsl.lowering.passes.move_factors import move_factors
from wsdsl.lowering.passes.partition_loads import partition_loads
from wsdsl.lowering.passes.place_operands import place_operands
from wsdsl.lowering.passes.prefetch_copies import prefetch_copies
from wsdsl.lowering.passes.scale_products import scale_products
from wsdsl.lowering.passes.schedule_products import schedule_products
from wsdsl.lowering.passes.share_variables import share_variables
from wsdsl.lowering.passes.split_accumulate import split_accumulate
from wsdsl.lowering.passes.split_contractions import split_contractions
from wsdsl.lowering.passes.spread_rows import spread_rows
from wsdsl.lowering.passes.use_sigmoid import use_sigmoid
from wsdsl.lowering.passes.verify_lowerable import verify_lowerable
from wsdsl.lowering.passes.verify_sums import verify_sums
from wsdsl.lowering.passes.walk_reduced_rows import walk_reduced_rows
from wsdsl.schedule import Schedule, changed

Pass = Callable[[Kernel], Kernel]

PASSES: tuple[tuple[Pass, Level], ...] = (
    (dce, "tile"),
    (hold_tables, "tile"),
    (join_bytes, "tile"),
    (use_sigmoid, "tile"),
    (approximate_math, "tile"),
    (scale_products, "tile"),
    (move_factors, "tile"),
    (place_operands, "tile"),
    (walk_reduced_rows, "tile"),
    (add_in_place, "tile"),
    (share_variables, "tile"),
    (verify_lowerable, "tile"),
    (expand_top_k, "tile"),
    (fuse_accumulators, "tile"),
    (split_accumulate, "tile"),
    (hoist_loads, "tile"),
    (hoist_indices, "tile"),
    (verify_sums, "tile"),
    (choose_schedule, "tile"),
    (assign_tile_sizes, "tile"),
    (hold_rows, "tile"),
    (spread_rows, "tile"),
    (join_exchanges, "tile"),
    (fit_last_tiles, "tile"),
    (bound_ranges, "tile"),
    (make_plan, "tile"),
    (partition_loads, "partitioned"),
    (split_contractions, "partitioned"),
    (assign_decode_axes, "partitioned"),
    (assign_multicast, "partitioned"),
    # From here to `allocate_shared` a kernel has ops of both levels.
    (lower_loops, "partitioned"),
    (lower_split_k, "partitioned"),
    (defer_sums, "partitioned"),
    (schedule_products, "partitioned"),
    (assign_states, "partitioned"),
    (lower_rings, "partitioned"),
    (lower_tiles, "partitioned"),
    (load_rows_ahead, "partitioned"),
    (load_tiles_ahead, "partitioned"),
    (load_before_waits, "partitioned"),
    (hoist_operands, "partitioned"),
    (hoist_scalars, "partitioned"),
    (prefetch_copies, "partitioned"),
    (claim_tiles, "partitioned"),
    (insert_prologue, "partitioned"),
    (allocate_shared, "scheduled"),
    (cse, "scheduled"),
)
"""(pass, level of the kernel that it returns), in order."""


class Listener(Protocol):
    """Called after each pass: for dumps, timing, diffs."""

    def __call__(self, name: str, before: Kernel, after: Kernel) -> None: ...


def lower(
    kernel: Kernel,
    until: Level = "scheduled",
    sizes: Sizes | None = None,
    listeners: Sequence[Listener] = (),
    *,
    is_chosen: bool = False,
) -> Kernel:
    """Lower to a level. A result of `scheduled_tile` (`is_chosen`) continues after the choice, a
    kernel of the level PARTITIONED from `lower_loops`; `sizes`, where known, guide the choice. The
    verifier checks the kernel and the result; with `WSDSL_VERIFY` also after every pass.
    """
    verify(kernel)
    begin = assign_tile_sizes if is_chosen else PASSES[0][0]
    first = {"tile": begin, "partitioned": lower_loops, "scheduled": None}[kernel.level]
    last = {"tile": verify_lowerable, "partitioned": assign_multicast, "scheduled": cse}[until]
    if first is None:
        return kernel
    kernel = _through(kernel, first, last, sizes, listeners)
    verify(kernel)
    return kernel


def scheduled_tile(
    kernel: Kernel, sizes: Sizes | None = None, listeners: Sequence[Listener] = ()
) -> Kernel:
    """The TILE kernel with roles and its whole schedule for `sizes`."""
    return _through(kernel, PASSES[0][0], choose_schedule, sizes, listeners)


def before_choice(kernel: Kernel) -> Kernel:
    """Return the TILE kernel before the choice of a schedule, which sizes do not change."""
    return _through(kernel, PASSES[0][0], verify_sums, None, ())


def schedule_with_fewer_sums(
    kernel: Kernel, failed: Schedule, spilled: int, sizes: Sizes
) -> Schedule | None:
    """Return a schedule of the TILE kernel to try after one that needs too many registers."""
    chosen = scheduled_tile(kernel, sizes)
    assert chosen.schedule is not None
    asked = dataclasses.replace(kernel.schedule or Schedule(), mma_m=chosen.schedule.mma_m)
    given, _ = with_fixed_tiles(chosen, asked)
    known = at_least_one(sizes)
    alone = changed(given, consumers=given.consumers or 1)
    ways = (ranked(chosen, way, known, narrow=MOST_NARROW) for way in (given, alone))
    options = (option for way in ways for option, _ in way)
    fewer = with_fewer_sums(chosen, options, failed, spilled)
    return next((option for option in fewer if not completed(chosen, option, known)[1]), None)


@held_back()
def _through(
    kernel: Kernel, first: Pass, last: Pass, sizes: Sizes | None, listeners: Sequence[Listener]
) -> Kernel:
    """Through the passes from `first` to `last`; nothing where these stand the other way round."""
    names = [step for step, _ in PASSES]
    verifies = config.VERIFY.get()
    for step in names[names.index(first) : names.index(last) + 1]:
        before = kernel
        try:
            kernel = choose_schedule(kernel, sizes) if step is choose_schedule else step(kernel)
        except RecursionError:
            message = "WS0333 the kernel has too long a chain of dependent operations"
            raise CompileError(message, kernel.loc, "split it into two kernels") from None
        if verifies and kernel != before:
            verify(kernel)
        for listener in listeners:
            listener(step.__name__, before, kernel)
    return kernel
