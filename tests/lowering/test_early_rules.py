"""Who may start before the kernel in front is over: each wait and each promise is needed."""

from typing import Any

import pytest

from tests.lowering.test_early_loads import SMALL, scheduled
from tests.simulator.kernels import rejected
from tests.test_mutations import without
from wsdsl import Schedule, ScheduleError
from wsdsl.diagnostics import VerifyError
from wsdsl.ir.ops import GriddepWait
from wsdsl.ir.parser import parse_kernel
from wsdsl.ir.verify.verifier import verify


def test_each_wait_is_needed() -> None:
    kernel = scheduled("gemm", SMALL)
    verify(kernel)
    victims = [op for op in kernel.ops if isinstance(op, GriddepWait)]
    assert len(victims) == 2
    for op in victims:
        with pytest.raises(VerifyError, match="before griddep_wait"):
            verify(without(kernel, op))


def test_a_promise_is_needed() -> None:
    text = str(scheduled("gemm", SMALL))
    for instead in ("", ', pdl_independent=("A",)', ', pdl_independent=("B", "C")'):
        changed = text.replace(', pdl_independent=("B",)', instead, 1)
        assert changed != text
        with pytest.raises(VerifyError, match=r"accesses GMEM before|schedule declares pdl_ind"):
            verify(parse_kernel(changed))


def test_the_next_kernel_is_let_start_by_who_has_waited() -> None:
    text = str(scheduled("gemm", SMALL))
    both = "    griddep_wait()\n    griddep_launch_dependents()\n"
    turned = "    griddep_launch_dependents()\n    griddep_wait()\n"
    told = "griddep_launch_dependents comes before"
    rejected(text, both, turned, told)
    late, sync = text.replace("    griddep_launch_dependents()\n", ""), "  sync_cta()\n"
    rejected(late, sync, f"  griddep_launch_dependents()\n{sync}", told, count=1)
    wait, elect = "    griddep_wait()", "    elect() {"
    rejected(text, f"{wait}\n{elect}", f"{elect}\n{wait}", "outside of any region")


def test_wide_tiles_that_threads_copy_go_without() -> None:
    """They take a warpgroup more, whose registers the consumers need."""
    wide = Schedule(tile=dict(m=128, n=256), pdl_independent=("B",))
    chosen = scheduled("gemm", wide, ("A",)).schedule
    assert chosen is not None and chosen.pdl_independent is None


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (dict(registers=dict(load=40, compute=232)), "2 consumers and two load warpgroups"),
        (dict(tile=dict(n=256)), "2 consumers and two load warpgroups"),
    ],
    ids=repr,
)
def test_two_warpgroups_that_load_are_told(more: dict[str, Any], words: str) -> None:
    with pytest.raises(ScheduleError, match=words):
        scheduled("gemm", Schedule(pdl_independent=("B",), consumers=2, **more), ("A",))
