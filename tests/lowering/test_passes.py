"""What each pass makes of a small gemm, as one golden file a pass."""

import pytest

from tests.kernels import CASES
from wsdsl import knobs
from wsdsl.ir.op import Kernel
from wsdsl.ir.pipeline_ops import CircularBuffer
from wsdsl.lowering import pipeline
from wsdsl.lowering.pipeline import PASSES, lower
from wsdsl.schedule import Schedule

SMALL = Schedule(tile=dict(m=64, n=32, k=32), consumers=1, stages=2)


def stages() -> dict[str, Kernel]:
    import dataclasses

    made: dict[str, Kernel] = {}
    kernel = dataclasses.replace(CASES["gemm"].kernel.tile, schedule=SMALL)
    lower(kernel, listeners=[lambda name, before, after: made.update({name: after})])
    return made


@pytest.fixture(scope="module")
def made() -> dict[str, Kernel]:
    return stages()


@pytest.mark.parametrize("name", [step.__name__ for step, _ in PASSES])
def test_pass(name: str, made: dict[str, Kernel], golden) -> None:
    kernel = made[name]
    if name == "make_plan":
        golden(str(kernel.plan))
    else:
        golden(str(kernel), suffix=".ir")


@pytest.mark.parametrize("name", ["gemm", "epilogue", "two_loops", "block_scaled", "row_softmax"])
def test_plan(name: str) -> None:
    """Its page names each ring, and its SMEM is what the kernel takes."""
    compiled = CASES[name].kernel._compile(None, {}, ())
    page, rings = str(compiled.plan).splitlines(), compiled.partitioned.of(CircularBuffer)
    for ring in rings:
        (line,) = (line for line in page if line.split()[0] == ring.result.name)
        assert f"{ring.depth} slots" in line
    assert len(rings) == len(compiled.plan.rings)
    assert compiled.plan.smem_bytes == compiled.signature.smem_bytes


@pytest.mark.parametrize("every", [False, True])
def test_what_is_verified(every: bool, monkeypatch) -> None:
    """What is given and what is returned; what each pass makes where that is asked for."""
    verified: list[Kernel] = []
    monkeypatch.setattr(pipeline, "verify", verified.append)
    with knobs.override(verify=every):
        made = stages()
    assert verified[0].level == "tile" and verified[-1] is made["simplify"]
    if every:
        assert all(kernel in verified for kernel in made.values())
    else:
        assert len(verified) == 2
