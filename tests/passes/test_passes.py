"""Each pass of the pipeline on small kernels, as text (see pass_files.py)."""

from __future__ import annotations

import difflib
from pathlib import Path

import pytest

from tests.passes.pass_files import FOLDER, read, write
from wsdsl.lowering.passes.allocate_shared import allocate_shared
from wsdsl.lowering.passes.assign_decode_axes import assign_decode_axes
from wsdsl.lowering.passes.assign_multicast import assign_multicast
from wsdsl.lowering.passes.assign_states import assign_states
from wsdsl.lowering.passes.claim_tiles import claim_tiles
from wsdsl.lowering.passes.defer_sums import defer_sums
from wsdsl.lowering.passes.hoist_operands import hoist_operands
from wsdsl.lowering.passes.hoist_scalars import hoist_scalars
from wsdsl.lowering.passes.insert_prologue import insert_prologue
from wsdsl.lowering.passes.load_before_waits import load_before_waits
from wsdsl.lowering.passes.load_rows_ahead import load_rows_ahead
from wsdsl.lowering.passes.load_tiles_ahead import load_tiles_ahead
from wsdsl.lowering.passes.lower_loops import lower_loops
from wsdsl.lowering.passes.lower_rings import lower_rings
from wsdsl.lowering.passes.lower_split_k import lower_split_k
from wsdsl.lowering.passes.lower_tiles import lower_tiles
from wsdsl.lowering.passes.partition_loads import partition_loads
from wsdsl.lowering.passes.prefetch_copies import prefetch_copies
from wsdsl.lowering.passes.schedule_products import schedule_products
from wsdsl.lowering.passes.simplify import simplify
from wsdsl.lowering.passes.split_contractions import split_contractions
from wsdsl.lowering.pipeline import PASSES

LATE_PASSES = (
    partition_loads, split_contractions, assign_decode_axes, assign_multicast, lower_loops,
    lower_split_k, defer_sums, schedule_products, assign_states, lower_rings, lower_tiles,
    load_rows_ahead, load_tiles_ahead, load_before_waits, hoist_operands, hoist_scalars,
    prefetch_copies, claim_tiles, insert_prologue, allocate_shared, simplify,
)  # fmt: skip
STEPS = {step.__name__: step for step in (*(step for step, _ in PASSES), *LATE_PASSES)}
FILES = sorted(FOLDER.glob("*/*.diff"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_pass_output(path: Path, request: pytest.FixtureRequest) -> None:
    file = read(path)
    output = file.run(STEPS[path.parent.name])
    if request.config.getoption("--update-golden"):
        write(path, file, output)
        return
    old, new = file.expected.splitlines(), output.splitlines()
    lines = difflib.unified_diff(old, new, "expected", "now", lineterm="")
    assert old == new, "\n".join(
        [*lines, "if this is intended: pytest tests/passes --update-golden"]
    )
