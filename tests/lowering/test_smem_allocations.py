"""The Plan has the SMEM, mbarriers and TMEM of the SCHEDULED kernel."""

from dataclasses import asdict

import pytest

from tests.corpus import Entry, corpus
from tests.corpus.compile_text import _kernel, lowered
from tests.corpus.worker import schedule_of
from tools.compare_ptx import sample
from wsdsl.diagnostics import WsdslError
from wsdsl.ir.plan import MBARRIER
from wsdsl.ir.types import Barriers, TensorMemory

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
