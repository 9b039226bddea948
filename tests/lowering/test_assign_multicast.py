"""Which tiles CTAs load for each other, where a ring has slots of several kinds."""

import pytest

from tests.kernels import CASES, check, expected, inputs
from wsdsl import Schedule
from wsdsl.ir.memory_ops import TmaLoad
from wsdsl.prover.prove import prove


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
    compiled = case.kernel.compile(schedule, "sm_90a", **case.sizes)
    prove(compiled.scheduled)
    loads = [op for op in compiled.scheduled.ops if isinstance(op, TmaLoad)]
    assert {op.map.name for op in loads if op.multicast} == {*shared.split()}
    arrays = inputs(case)
    wanted = expected(case, arrays)
    compiled.simulate(*arrays.values(), seed=0)
    check(case, arrays, wanted)
