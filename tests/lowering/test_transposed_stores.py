"""Results that are transposed on their way: four warps write one panel, and meet around it."""

import re

import pytest

from tests.kernels import CASES, simulated
from wsdsl import Schedule
from wsdsl.diagnostics import ProofError
from wsdsl.lowering.partition_context import PartitionContext
from wsdsl.schedule import Mode


def stores(width: int) -> list[str]:
    """Of a tile that is so wide: what is written, and copied."""
    given = Schedule(tile=dict(m=width, n=64), consumers=1, mma_m="n")
    text = str(CASES["gemm"].kernel.compile(given, M=2 * width, N=64, K=64).scheduled)
    return re.findall(r"(?<= )(?:store_shared|tma_store|named_barrier_sync)\(.*", text)


def test_what_four_warps_can_not_share_is_stored_by_each() -> None:
    """Of 88 columns 64 are; 24 are no multiple of four times the 8 lines of a swizzle."""
    assert ["joined" in op for op in stores(88) if op.startswith("store")] == [True, False]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("tile", [dict(m=88, n=64), dict(m=96, n=128), dict(m=32, n=256)])
@pytest.mark.parametrize("mode", ["cooperative", "pingpong"])
def test_results(tile: dict[str, int], mode: Mode) -> None:
    case = CASES["gemm"]
    alone = mode == "cooperative" and tile["n"] == 64
    given = Schedule(tile=tile, mode=mode, consumers=1 if alone else 2, mma_m="n")
    case.kernel.compile(given, M=150, N=264, K=136).prove()
    for seed in range(3):
        simulated(case, given, seed)


@pytest.mark.parametrize("dropped", [0, 1])
def test_both_meetings_are_needed(dropped: int, monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = PartitionContext.sync, list[bool]()

    def sync(self: PartitionContext, loc: None, wide: bool = True) -> None:
        calls.extend([wide] if wide else [])
        real(self, loc, wide and len(calls) % 2 != 1 - dropped)

    monkeypatch.setattr(PartitionContext, "sync", sync)
    given = Schedule(tile=dict(m=160, n=64), consumers=1, mma_m="n")
    with pytest.raises(ProofError):
        CASES["gemm"].kernel.compile(given, M=640, N=64, K=128).prove()
