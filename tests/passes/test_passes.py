"""Each pass of the pipeline on small kernels, as text (see pass_files.py)."""

from __future__ import annotations

import difflib
from pathlib import Path

import pytest

from tests.passes.pass_files import FOLDER, read, write
from wsdsl.lowering.passes.add_in_place import add_in_place
from wsdsl.lowering.passes.allocate_shared import allocate_shared
from wsdsl.lowering.passes.assign_decode_axes import assign_decode_axes
from wsdsl.lowering.passes.assign_multicast import assign_multicast
from wsdsl.lowering.passes.assign_states import assign_states
from wsdsl.lowering.passes.assign_tile_sizes import assign_tile_sizes
from wsdsl.lowering.passes.bound_ranges import bound_ranges
from wsdsl.lowering.passes.choose_schedule import choose_schedule
from wsdsl.lowering.passes.claim_tiles import claim_tiles
from wsdsl.lowering.passes.defer_sums import defer_sums
from wsdsl.lowering.passes.drop_unused import drop_unused
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
from wsdsl.lowering.passes.relax_functions import relax_functions
from wsdsl.lowering.passes.scale_products import scale_products
from wsdsl.lowering.passes.schedule_products import schedule_products
from wsdsl.lowering.passes.simplify import simplify
from wsdsl.lowering.passes.split_contractions import split_contractions
from wsdsl.lowering.passes.spread_rows import spread_rows
from wsdsl.lowering.passes.take_sums_apart import take_sums_apart
from wsdsl.lowering.passes.use_sigmoid import use_sigmoid
from wsdsl.lowering.passes.verify_lowerable import verify_lowerable
from wsdsl.lowering.passes.verify_sums import verify_sums
from wsdsl.lowering.passes.walk_reduced_rows import walk_reduced_rows
from wsdsl.lowering.pipeline import PASSES

STEPS = (
    drop_unused, hold_tables, join_bytes, use_sigmoid, relax_functions, scale_products,
    move_factors, place_operands, walk_reduced_rows, add_in_place, verify_lowerable, expand_top_k,
    fuse_accumulators, take_sums_apart, hoist_loads, hoist_indices, verify_sums, choose_schedule,
    assign_tile_sizes, hold_rows, spread_rows, join_exchanges, fit_last_tiles, bound_ranges,
    make_plan,
    partition_loads, split_contractions, assign_decode_axes, assign_multicast, lower_loops,
    lower_split_k, defer_sums, schedule_products, assign_states, lower_rings, lower_tiles,
    load_rows_ahead, load_tiles_ahead, load_before_waits, hoist_operands, hoist_scalars,
    prefetch_copies, claim_tiles, insert_prologue, allocate_shared, simplify,
)  # fmt: skip
NAMES = [step.__name__ for step in STEPS]
FILES = sorted(FOLDER.glob("*/*.diff"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_pass_output(path: Path, request: pytest.FixtureRequest) -> None:
    file = read(path)
    output = file.run(STEPS[NAMES.index(path.parent.name)])
    if request.config.getoption("--update-golden"):
        write(path, file, output)
        return
    old, new = file.expected.splitlines(), output.splitlines()
    lines = difflib.unified_diff(old, new, "expected", "now", lineterm="")
    assert old == new, "\n".join(
        [*lines, "if this is intended: pytest tests/passes --update-golden"]
    )


def test_steps_are_the_pipeline() -> None:
    assert tuple(step for step, _ in PASSES) == STEPS


@pytest.mark.parametrize("name", NAMES)
def test_pass_has_files(name: str) -> None:
    files = [read(path) for path in FILES if path.parent.name == name]
    assert len(files) > 1 and any(file.source != file.expected for file in files)
