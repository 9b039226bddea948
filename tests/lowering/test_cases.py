"""Every kernel of the shape lowers, by any schedule that is allowed, to IR that reads back."""

import pytest

import wsdsl
from tests.kernels import CASES
from wsdsl.dispatch.compiled import Compiled
from wsdsl.ir.parser import parse_kernel
from wsdsl.lowering.axes import axes_of
from wsdsl.lowering.pipeline import PASSES, lower

SCHEDULES = [
    None,
    wsdsl.Schedule(tile=dict(n=64), stages=2),
    wsdsl.Schedule(tile=dict(m=64, n=48), consumers=1),
    wsdsl.Schedule(tile=dict(n=32), swizzle=1, scheduler="grid"),
]


def lowered(name: str, schedule: wsdsl.Schedule | None = None) -> Compiled:
    case = CASES[name]
    return case.kernel._compile(schedule, case.sizes, ())


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("schedule", SCHEDULES, ids=repr)
def test_lowers(name: str, schedule: wsdsl.Schedule | None) -> None:
    axes = axes_of(CASES[name].kernel.tile_ir)
    variables = {name.split("_")[0] for name, axis in axes.items() if not axis.size}
    if schedule and not set(schedule.tile or ()) <= variables:
        pytest.skip(f"{name} has no loop over each of {schedule.tile}")
    compiled = lowered(name, schedule)
    for level in ("tile", "partitioned", "scheduled"):
        text = compiled.ir(level)
        assert str(parse_kernel(text)) == text


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", CASES)
def test_same_input_same_output(name: str) -> None:
    case = CASES[name]
    first = case.kernel._compile(None, case.sizes, ()).ir("scheduled")
    assert case.fresh()._compile(None, case.sizes, ()).ir("scheduled") == first


@pytest.mark.parametrize("name", ["gemm", "nested", "held_operand"])
def test_goes_on_from_the_level_partitioned(name: str) -> None:
    compiled = lowered(name)
    again = wsdsl.compile_ir(compiled.ir("partitioned"))
    assert again.ir("scheduled") == compiled.ir("scheduled")


def test_listeners_hear_of_every_pass() -> None:
    heard: list[str] = []
    lower(CASES["gemm"].kernel.tile_ir, listeners=[lambda name, before, after: heard.append(name)])
    assert heard == [step.__name__ for step, _ in PASSES]
