"""The pipeline of passes: verification, and the Plan's page."""

import pytest

from tests.kernels import CASES
from wsdsl import config
from wsdsl.ir.op import Kernel
from wsdsl.ir.ops import Pipeline
from wsdsl.lowering import pipeline
from wsdsl.lowering.pipeline import lower
from wsdsl.schedule import Schedule

SMALL = Schedule(tile=dict(m=64, n=32, k=32), consumers=1, stages=2)


def stages() -> dict[str, Kernel]:
    made: dict[str, Kernel] = {}
    kernel = CASES["gemm"].with_schedule(SMALL)
    lower(kernel, listeners=[lambda name, before, after: made.update({name: after})])
    return made


@pytest.mark.parametrize("name", ["gemm", "epilogue", "two_loops", "block_scaled", "row_softmax"])
def test_plan_has_all_pipelines_and_smem(name: str) -> None:
    compiled = CASES[name].kernel._compile(None, {}, ())
    page, rings = str(compiled.plan).splitlines(), compiled.partitioned.of(Pipeline)
    for ring in rings:
        (line,) = (line for line in page if line.split()[0] == ring.result.name)
        assert f"{ring.depth} stages" in line
    assert len(rings) == len(compiled.plan.rings)
    assert compiled.plan.smem_bytes == compiled.signature.smem_bytes


@pytest.mark.parametrize("every", [False, True])
def test_lower_verifies_each_pass_when_asked(every: bool, monkeypatch) -> None:
    verified: list[Kernel] = []
    monkeypatch.setattr(pipeline, "verify", verified.append)
    with config.override(verify=every):
        made = stages()
    assert verified[0].level == "tile" and verified[-1] is made["cse"]
    if every:
        assert all(kernel in verified for kernel in made.values())
    else:
        assert len(verified) == 2
