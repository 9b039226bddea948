"""Clusters whose CTAs have little in common with each other, and much with those of others."""

import pytest

from tests.kernels import CASES
from wsdsl import Schedule
from wsdsl.lowering.cost_model.speeds import are_scattered
from wsdsl.lowering.cost_model.workload import Work
from wsdsl.lowering.pipeline import scheduled_tile
from wsdsl.lowering.shape_buckets import predicted_cycles

GEMM = CASES["gemm"].kernel


@pytest.mark.parametrize(
    ("rows", "cluster", "scattered"),
    [
        (75, dict(n=4), True),  # Weights are wanted by two tiles of rows, of two clusters.
        (75, dict(m=2, n=4), False),
        (75, dict(m=2), False),
        (40, dict(n=4), False),
        (75, {}, False),
        (4000, dict(m=2), False),  # Most comes of the other operand, for 32 clusters.
    ],
    ids=str,
)
def test_who_is_in_several_clusters(rows: int, cluster: dict[str, int], scattered: bool) -> None:
    work = Work.of(GEMM.tile_ir, dict(M=rows, N=2048, K=4096))
    assert are_scattered(work, dict(m=40, n=64, k=128), cluster) is scattered


def cycles(rows: int, cluster: dict[str, int]) -> float:
    sizes = dict(M=rows, N=2048, K=10944)
    given = Schedule(
        tile=dict(m=40, n=64, k=128), stages=8, consumers=1, scheduler="persistent", mma_m="n",
        cluster=cluster,
    )  # fmt: skip
    return predicted_cycles(GEMM.tile_ir, GEMM.schedule(given, **sizes), sizes)


def test_a_cluster_along_weights_takes_longer_then() -> None:
    assert cycles(75, dict(n=4)) > 1.1 * cycles(75, dict(m=2))
    assert cycles(40, dict(n=4)) <= cycles(40, dict(n=1))


@pytest.mark.parametrize(("columns", "less"), [(144, True), (152, False)])
def test_halves_that_are_not_whole_groups_of_lines_are_not_loaded_for_each_other(
    columns: int, less: bool
) -> None:
    """Rows of 1528 elements begin amid lines, where bytes that another CTA brings save time."""
    kernel = scheduled_tile(GEMM.tile_ir, sizes := dict(M=4096, N=1064, K=1528))
    work, tile = Work.of(kernel, sizes), dict(m=128, n=columns, k=64)
    alone, both = work.under(tile), work.under(tile, Schedule(cluster={"m": 2}))
    assert (both.operand_bytes < alone.operand_bytes) is less
