"""What threads copy is asked for some slots ahead: each tile but the first of a CTA, once."""

import dataclasses
from collections import Counter
from typing import Any

import pytest

from tests.kernels import CASES, simulated
from wsdsl import Schedule
from wsdsl.ir.op import Kernel
from wsdsl.ir.ops import PrefetchTile, ThreadLoad
from wsdsl.lowering.passes import prefetch_copies
from wsdsl.lowering.pipeline import lower
from wsdsl.simulator.warpgroup_steps import VISIBLE_OPS

SMALL = Schedule(tile=dict(m=64, n=32, k=32), consumers=1, stages=2)
SIZES = {"M": 130, "N": 33, "K": 203}


def scheduled(schedule: Schedule, unaligned: tuple[str, ...]) -> Kernel:
    kernel = CASES["gemm"].kernel.tile_ir
    return lower(dataclasses.replace(kernel, schedule=schedule, unaligned=unaligned))


@pytest.mark.parametrize("slots", [1, 3, 16])
@pytest.mark.parametrize("cut", [{}, dict(scheduler="split_k", splits=2)], ids=str)
def test_each_tile_once(cut: Any, slots: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefetch_copies, "MOST_SLOTS", slots)
    asked, copied = list[Any](), list[Any]()

    def told(seen: list[Any], run: Any) -> Any:
        def recorded(wg: Any, op: Any) -> Any:
            row, k = (int(wg.get(v, op)) for v in op.coordinates)
            seen.append((wg.cta.index, op.tensor.name, row, k))
            return run(wg, op)

        return recorded

    for op, seen in ((PrefetchTile, asked), (ThreadLoad, copied)):
        monkeypatch.setitem(VISIBLE_OPS, op, told(seen, VISIBLE_OPS[op]))
    kernel = scheduled(dataclasses.replace(SMALL, **cut), ("A", "B", "C"))
    simulated(CASES["gemm"], kernel, **SIZES)
    firsts = {at[:2]: at for at in reversed(copied)}
    assert Counter(asked) == Counter(copied) - Counter(firsts.values())
