# ruff: noqa: E501 - lines of IR
"""Deadlocks and races as people write them, and the right kernels beside them."""

import pytest

from tests.prover.handshake import CONSUME, PRODUCE, THREADS_PRODUCE, ring, verdict
from tests.simulator.kernels import gemm
from wsdsl.ir.parser import parse_kernel
from wsdsl.prover.machine.explore import explore

WAIT_AHEAD = """
%c2: state = advance(state=%c, num={stages})
mbarrier_wait(barriers=%full, state=%c)
%more: i32 = map(fn="add", args=(%j, %step))
%any: bool = map(fn="lt", args=(%more, %size))
if(cond=%any) {{ mbarrier_wait(barriers=%full, state=%c2) yield() }} {{ yield() }}
"""


def with_prefetch(stages: int) -> str:
    """The consumer waits for the next slot too before it gives this one back."""
    ahead = WAIT_AHEAD.format(stages=stages)
    return CONSUME.replace("mbarrier_wait(barriers=%full, state=%c)", ahead)


@pytest.mark.parametrize(("stages", "found"), [(1, ("deadlock", "phase")), (2, ("",))])
def test_a_two_stage_prefetch_needs_room_for_both(stages: int, found: tuple[str, ...]) -> None:
    assert verdict(ring(consume=with_prefetch(stages), stages=stages)) in found


TWO_RINGS = """
  %y: shared<8192 x {depth}> = allocate_shared(label="y", offset=90000)
  %full_y: mbarrier<{depth}> = allocate_mbarriers(label="full_y", arrivals=1, offset=200256)
  %empty_y: mbarrier<{depth}> = allocate_mbarriers(label="empty_y", arrivals=1, offset=200384)
  elect() {{
    mbarrier_init(barriers=%full_y)
    mbarrier_init(barriers=%empty_y)
  }}
"""


@pytest.mark.parametrize("stages", [1, 2])
def test_two_buffers_in_opposite_order(stages: int) -> None:
    """The producer fills x twice, then y; the consumer takes y first, then x twice."""
    fill_y = PRODUCE.replace("%p", "%q").replace("%x", "%y")
    fill_y = fill_y.replace("%full", "%full_y").replace("%empty", "%empty_y")
    second = PRODUCE.replace("%p", "%r")
    produce = (
        f"%r: state = advance(state=%p, num={stages}) %q: state = initial_state(parity=1)"
        f"{PRODUCE}{second}{fill_y}"
    )
    consume = (
        f"%d: state = advance(state=%c, num={stages}) %e: state = initial_state(parity=0)"
        "mbarrier_wait(barriers=%full_y, state=%e) mbarrier_wait(barriers=%full, state=%c)"
        "mbarrier_wait(barriers=%full, state=%d)"
    )
    # One iteration is enough: K is fixed to one step.
    kernel = ring(produce, consume, stages=stages, stop="%step", more=TWO_RINGS.format(depth=1))
    kind = verdict(kernel)
    assert kind == ("deadlock" if stages == 1 else "")


@pytest.mark.parametrize("arrivals", [1, 2, 3])
def test_every_consumer_is_counted(arrivals: int) -> None:
    kind = verdict(ring(consumers=2, empty_arrivals=arrivals))
    assert (kind == "") == (arrivals == 2)


@pytest.mark.parametrize("stages", [1, 2, 3, 5, 8])
def test_any_depth(stages: int) -> None:
    assert verdict(ring(stages=stages)) == ""
    assert verdict(ring(THREADS_PRODUCE, stages=stages, by_threads=True)) == ""


def test_bounds_that_are_read_from_memory() -> None:
    assert verdict(ring(stop="%limit")) == ""


def test_a_wait_that_skips_a_phase() -> None:
    """Each second slot is never waited for: its phases can not be told apart."""
    consume = CONSUME + "%c5: state = advance(state=%c, num=3)\n"
    kernel = ring(consume=consume.replace("%c1", "%c7"))
    assert verdict(kernel) == ""
    skipping = str(kernel).replace("advance(state=%c, num=3)", "advance(state=%c5, num=3)", 2)
    wrong = skipping.replace(
        "%c5: state = advance(state=%c5, num=3)", "%c5: state = advance(state=%c, num=3)"
    )
    assert verdict(parse_kernel(wrong)) != ""


def test_one_thread_must_not_arrive_for_others_that_may_lag() -> None:
    """Without a product nothing says that all threads have come past their wait."""
    only_waits = (
        "mbarrier_wait(barriers=%full, state=%c)\nmbarrier_arrive(barriers=%empty, state=%c)"
    )
    assert verdict(ring(consume=only_waits)) == "phase"
    each = only_waits.replace("%empty, state=%c)", "%empty, state=%c, each_thread=True)")
    assert verdict(ring(consume=each, empty_arrivals=128)) == ""


@pytest.mark.parametrize("stages", [2, 3, 4, 7])
@pytest.mark.parametrize("k", [0, 1, -1, "stages", 1.5])
def test_trip_counts_one_by_one(stages: int, k: int | float | str) -> None:
    """The same machine at given sizes agrees with what was proved for all."""
    trips = {0: 0, 1: 1, -1: stages - 1, "stages": stages, 1.5: stages + 1}[k]
    kernel = gemm(stages=stages)
    explore(kernel, dict(M=256, N=256, K=64 * trips))


@pytest.mark.parametrize("trips", [1, 3, 4, 5, 40])
def test_loops_of_a_known_length_are_counted_where_that_matters(trips: int) -> None:
    """The producer fills two slots an iteration, the consumer takes one."""
    produce = "%r: state = advance(state=%p, num=3)" + PRODUCE + PRODUCE.replace("%p", "%r")
    text = str(ring(produce))
    head, tail = text.split('role="compute"')
    head = head.replace(
        "advance(state=%p, num=3)\n        yield", "advance(state=%r, num=3)\n        yield"
    )
    bounds = f"%some: i32 = constant(value={64 * trips})\n  %twice: i32 = constant(value={128 * trips})\n  "
    head = head.replace("stop=%size", "stop=%some").replace("%limit: i32", bounds + "%limit: i32")
    right = head + 'role="compute"' + tail.replace("stop=%size", "stop=%twice")
    wrong = head + 'role="compute"' + tail.replace("stop=%size", "stop=%some")
    assert verdict(parse_kernel(right)) == ""
    assert verdict(parse_kernel(wrong)) != ""
