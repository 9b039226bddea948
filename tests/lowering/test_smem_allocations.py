"""The Plan has the SMEM, mbarriers and TMEM of the SCHEDULED kernel, as the search counts them."""

from dataclasses import asdict

import pytest

from tests.corpus import Entry, corpus
from tests.corpus.compile_text import _kernel, lowered
from tests.corpus.worker import schedule_of
from tools.compare_ptx import sample
from wsdsl.diagnostics import WsdslError
from wsdsl.ir.analysis.intervals import walks_a_part
from wsdsl.ir.ops import Contract
from wsdsl.ir.plan import MBARRIER, smem_end
from wsdsl.ir.types import Barriers, TensorMemory
from wsdsl.lowering.pipeline import scheduled_tile
from wsdsl.lowering.smem_allocations import allocations, smem_depths

ENTRIES = sample([asdict(e) for e in corpus() if not e.rejected], 200)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("entry", [Entry(**e) for e in ENTRIES], ids=lambda e: e.name)
def test_plan_has_resources_of_scheduled_kernel(entry: Entry) -> None:
    given = schedule_of(entry.schedule), entry.sizes, entry.threads, entry.padded, entry.packed
    try:
        compiled = lowered(entry.text, *given)
    except WsdslError:
        pytest.skip("the schedule is rejected")
    finally:
        _kernel.cache_clear()  # Other tests dump the passes of these entries.
    plan, kernel = compiled.plan, compiled.scheduled
    assert plan.smem_bytes == compiled.signature.smem_bytes
    num = sum(each.bytes // MBARRIER for each in plan.smem if each.align == MBARRIER)
    assert num == sum(op.result.type.num for op in kernel.making(Barriers))
    columns = [op.result.type.columns for op in kernel.making(TensorMemory)]
    assert plan.tmem_columns == sum(columns)
    chosen = scheduled_tile(compiled.source)
    schedule = chosen.schedule
    assert schedule is not None
    depths = schedule.stages or 1, *smem_depths(chosen, schedule)
    counted = smem_end(allocations(chosen, schedule, *depths))
    if chosen.of(Contract) and not any(walks_a_part(op) for op in chosen.ops):
        assert counted == plan.smem_bytes
    elif chosen.of(Contract):
        assert counted >= plan.smem_bytes
    else:
        assert counted <= plan.smem_bytes
