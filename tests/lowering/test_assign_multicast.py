"""Which tiles CTAs load for each other, where a ring has slots of several kinds."""

import pytest

from tests.case_data import right_and_proved
from tests.kernels import CASES
from wsdsl import Schedule
from wsdsl.diagnostics import ScheduleError
from wsdsl.ir.ops import SyncCluster, SyncCta, TmaLoad


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("cluster", "depth", "shared"),
    [
        (dict(n=4), 32, "a_map d_map"),
        (dict(n=4), 16, ""),
        (dict(m=2, n=4), 32, "a_map b_map d_map e_map"),
        (dict(m=2, n=4), 16, "b_map e_map"),
    ],
    ids=repr,
)
def test_every_slot_is_shared_by_the_same(cluster: dict[str, int], depth: int, shared: str) -> None:
    """16 lines of D are no 8 for each of 4, so none of a ring's slots is shared along n."""
    tile = dict(m=64, n=64, k=depth, l=depth)
    case, schedule = CASES["two_loops"], Schedule(tile=tile, consumers=1, stages=2, cluster=cluster)
    compiled = right_and_proved(case, schedule, **case.sizes)
    loads = [op for op in compiled.scheduled.ops if isinstance(op, TmaLoad)]
    assert {op.map.name for op in loads if op.multicast} == {*shared.split()}


def test_neighbours_may_load_for_themselves() -> None:
    """Then nobody reaches for another's SMEM, and they need not meet."""
    case = CASES["gemm"]
    given = Schedule(tile=dict(m=64, n=64), consumers=1, cluster=dict(m=2, n=2), multicast=False)
    compiled = right_and_proved(case, given, **case.sizes)
    assert not any(isinstance(op, TmaLoad) and op.multicast for op in compiled.scheduled.ops)
    met = [type(op) for op in compiled.scheduled.body if isinstance(op, (SyncCluster, SyncCta))]
    assert met == [SyncCta]
    assert "reqnctapercluster 4" in compiled.ptx and "barrier.cluster" not in compiled.ptx


@pytest.mark.sampled(2)
@pytest.mark.parametrize("cluster", [None, dict(k=2), dict(m=1)], ids=repr)
def test_multicast_without_a_cluster_is_refused(cluster: dict[str, int] | None) -> None:
    given = Schedule(multicast=True, cluster=cluster)
    with pytest.raises(ScheduleError) as refused:
        CASES["gemm"].kernel.schedule(given, M=1024, N=576, K=4096)
    assert "Schedule.multicast is True, and no CTAs" in str(refused.value)
    assert "m, n: cluster=dict(n=2)" in str(refused.value)
