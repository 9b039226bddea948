"""A fault of the prover that leaves a part of a kernel out is no proof of the kernel."""

from typing import Any

import pytest

from wsdsl.diagnostics import ProofError
from wsdsl.ir.parser import parse_kernel
from wsdsl.prover.machine import control_flow
from wsdsl.prover.machine.visited import VACUOUS
from wsdsl.prover.prove import prove

ALONE = """
kernel k @ scheduled (%X: tensor<f32[M, 64]>) {
  %c0: i32 = constant(value=0)
  %c1: i32 = constant(value=1)
  %m: i32 = dim_size(dim="M")
  partition(role="load") {
    %more: bool = map(fn="gt", args=(%m, %c0))
    if(cond=%more) {
      elect() {
        fence_async_proxy()
      }
      yield()
    } {
      sync_warp()
      yield()
    }
    for_range(index=%i: i32, start=%c0, stop=%m, step=%c1) {
      fence_async_proxy()
      yield()
    }
  }
}
"""


def skips(m: Any, a: Any, i: Any) -> int:
    del m
    a.next = i.target
    return 1


def asks_and_stays(m: Any, a: Any, i: Any) -> int:
    control_flow.truth(m, a.slots[i.uses[0]])
    return 1


@pytest.mark.parametrize(
    ("part", "fault", "told", "where"),
    [
        ("_another", lambda m, iteration: False, "went both ways", "for_range"),
        ("branch", asks_and_stays, "went both ways", "if"),
        ("elect", skips, "ran what this elects", "elect"),
        ("jump", lambda m, a, i: 1, "went where this leads", "if"),
    ],
)
def test_a_part_that_is_never_run(
    monkeypatch: pytest.MonkeyPatch, part: str, fault: Any, told: str, where: str
) -> None:
    prove(parse_kernel(ALONE))
    monkeypatch.setattr(control_flow, part, fault)
    with pytest.raises(ProofError, match=f"{VACUOUS} {told}") as caught:
        prove(parse_kernel(ALONE))
    assert where in str(caught.value).splitlines()[1]
