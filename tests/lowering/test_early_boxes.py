"""What a load partition asks of L2 before the kernel in front is over."""

import dataclasses
from typing import Any

import pytest

from tests.kernels import CASES, simulated
from wsdsl import Schedule
from wsdsl.ir.op import Kernel
from wsdsl.ir.ops import PrefetchBox, TmaLoad
from wsdsl.ir.rewriter import walk
from wsdsl.lowering.pipeline import lower
from wsdsl.prover.prove import prove
from wsdsl.simulator.warpgroup_steps import VISIBLE_OPS

SMALL = Schedule(tile=dict(m=64, n=32), consumers=1, stages=3)
SIZES = dict(M=130, N=72, K=512)
EARLY = [
    {},
    dict(scheduler="split_k", splits=2),
    dict(scheduler="stream_k"),
    dict(cluster=dict(m=2)),
    dict(cluster=dict(k=2)),
]


def scheduled(name: str = "widened", **more: Any) -> Kernel:
    schedule = dataclasses.replace(SMALL, **more)
    return lower(CASES[name].with_schedule(schedule))


def asked(kernel: Kernel) -> list[PrefetchBox]:
    return [op for op in walk(kernel.body) if isinstance(op, PrefetchBox)]


@pytest.mark.parametrize("more", EARLY, ids=str)
def test_each_cta_asks_for_what_it_loads_first(
    more: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[type, list[Any]] = {PrefetchBox: [], TmaLoad: []}

    def told(kind: type, run: Any) -> Any:
        def recorded(wg: Any, op: Any) -> Any:
            at = tuple(int(wg.get(v, op)) for v in op.coordinates)
            seen[kind].append((wg.cta.index, op.map.name, *at))
            return run(wg, op)

        return recorded

    for kind in seen:
        monkeypatch.setitem(VISIBLE_OPS, kind, told(kind, VISIBLE_OPS[kind]))
    kernel = scheduled(**more)
    prove(kernel)
    simulated(CASES["widened"], kernel, **SIZES)
    ctas = {at[0] for at in seen[TmaLoad]}
    for cta in ctas:
        early, loaded = ([at for at in seen[kind] if at[0] == cta] for kind in seen)
        own = [at for at in loaded if at[1] == "w_map"]  # all CTAs of a column load the same X
        assert early and set(early) <= set(own[: 2 * len(early)])


@pytest.mark.parametrize(
    ("name", "more"),
    [("gemm", {}), ("widened", dict(launch_pdl=False)), ("widened", dict(pdl_independent=("W",)))],
    ids=str,
)
def test_nothing_is_asked_for(name: str, more: dict[str, Any]) -> None:
    """Where memory does not hold up who computes operands, the next kernel waits, or loads begin
    anyhow."""
    assert not asked(scheduled(name, **more))
