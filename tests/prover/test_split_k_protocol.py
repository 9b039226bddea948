"""Sums that CTAs hand on: what lowering makes of them is proved, and what is wrong is refused."""

import dataclasses
import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest

from tests.kernels import CASES
from tests.simulator.kernels import inputs, sample_text
from tests.simulator.mutants import exchange
from wsdsl import Schedule
from wsdsl.diagnostics import ProofError, WsdslError
from wsdsl.ir import ops
from wsdsl.ir.op import Kernel
from wsdsl.ir.ops import Partition
from wsdsl.ir.parser import parse_kernel
from wsdsl.ir.printer import print_op
from wsdsl.ir.rewriter import walk
from wsdsl.prover.failure import SPLIT_K, Failure
from wsdsl.prover.machine.explore import Refuted, explore
from wsdsl.prover.protocols.split_k import check_split_k_protocol
from wsdsl.prover.prove import prove
from wsdsl.simulator.simulation import simulate

LARGE, SMALL = dict(m=128, n=128), dict(m=64, n=64)
TOGETHER = dict[str, Any](tile=LARGE, stages=4, mode="cooperative")
SCHEDULES = {
    "stream_k": Schedule(**TOGETHER, scheduler="stream_k"),
    "split_k": Schedule(**TOGETHER, scheduler="split_k", splits=3),
    "parallel": Schedule(**TOGETHER, scheduler="split_k", splits=4, reduction="parallel"),
    "many_slices": Schedule(**TOGETHER, scheduler="split_k", splits=11, reduction="parallel"),
    "pingpong": Schedule(tile=SMALL, stages=2, mode="pingpong", scheduler="stream_k"),
    "three": Schedule(tile=SMALL, mode="pingpong", consumers=3, scheduler="stream_k"),
    "one": Schedule(tile=SMALL, stages=2, consumers=1, scheduler="split_k", splits=2),
    "cluster": Schedule(
        tile=SMALL, stages=2, consumers=1, scheduler="stream_k", cluster=dict(m=2, n=2)
    ),
    "cluster_slices": Schedule(
        tile=SMALL, stages=2, consumers=1, scheduler="split_k", splits=2, reduction="parallel",
        cluster=dict(m=2),
    ),
}  # fmt: skip


@cache
def scheduled(name: str) -> Kernel:
    return CASES["gemm"].kernel._compile(SCHEDULES[name], {}, ()).scheduled


def objection(
    kernel: Kernel, check: Callable[[Kernel], object] = check_split_k_protocol, kind: str = SPLIT_K
) -> str:
    try:
        check(kernel)
    except Failure as failure:
        assert failure.kind == kind
        return failure.message
    return ""


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", SCHEDULES)
def test_proved(name: str) -> None:
    explore(scheduled(name))


@pytest.mark.parametrize("fixed", [dict(K=512), dict(M=200, N=300), dict(M=200, N=300, K=72)])
def test_fixed_sizes(fixed: dict[str, int]) -> None:
    for name in ("stream_k", "parallel"):
        explore(dataclasses.replace(scheduled(name), sizes=tuple(fixed.items())))


# What can be wrong with it ------------------------------------------------------------------------

SYNC = "named_barrier_sync(barrier=8, num_warpgroups=2)"
BACK = "semaphore_arrive(tensor=%flags, index=(%flag_1,), by=%back, release=False)"
LENGTH = "semaphore_arrive(tensor=%flags, index=(%flag_1,), by=%length)"
WAIT = "semaphore_wait(tensor=%flags, index=(%flag_1,), count=%begin_1)"
CONTINUED = '%continued: bool = map(fn="gt", args=(%begin_1, %c0))'
FINISHED = '%finished: bool = map(fn="ge", args=(%end_1, %size_K))'
STORE = ", value=%acc_4_2, vector=2)"
WRONG = {
    "no wait": (WAIT, "", "start of splits is not known"),
    "waits for its end": (WAIT, WAIT.replace("%begin_1", "%end_1"), "amount|not known"),
    "waits for nothing": (WAIT, WAIT.replace("%begin_1", "%c0"), "amount|end"),
    "waits for the first": (WAIT, WAIT.replace("%begin_1", "%c1"), "length of a split"),
    "waits for another flag": (WAIT, WAIT.replace("%flag_1", "%flag"), "share rows"),
    "the other's flag": (
        "args=(%flag, %wg)", "args=(%flag, %c1)", "warpgroups share rows of"),
    "another tile's flag": ("args=(%slot_3, %c2)", "args=(%column_1, %c2)", "of another tile"),
    "no arrival": (LENGTH, "", "length of a split"),
    "not set back": (BACK, "", "is not released"),
    "no meeting": (SYNC + "\n          " + BACK, BACK, "while threads may access it"),
    "no meeting before the length": (
        SYNC + "\n        " + LENGTH, LENGTH, "while threads may access it"),
    "a meeting too late": (
        SYNC + "\n        " + LENGTH, LENGTH + "\n" + SYNC, "while threads may access it"),
    "arrives twice": (LENGTH, SYNC + LENGTH + SYNC + LENGTH, "after its release"),
    "one more": (LENGTH, LENGTH.replace("by=%length", "amount=1"), "."),
    "back by its length": (BACK, BACK.replace("%back", "%length_"), "another amount"),
    "not released": (LENGTH, LENGTH.replace("%length", "%length, release=False"), "not release"),
    "a meeting of half of the warps": (
        "sync(barrier=8, num_warpgroups=2)", "sync(barrier=8, num_warpgroups=1)",
        "while threads may access it"),
    "lines of no block": (
        '%line: i32 = map(fn="mul", args=(%slot_3, %c128))',
        '%line_: i32 = map(fn="mul", args=(%slot_3, %c128))\n'
        '%line: i32 = map(fn="add", args=(%line_, %c1))', "blocks of 64|this exceeds"),
    "columns of no block": (
        "%n_piece_index: frag<i32[1x64]> = iota(start=%c0)",
        "%n_piece_index: frag<i32[1x64]> = iota(start=%c2)", "blocks of 64"),
    "goes round": (BACK, BACK.replace("by=", "wrap="), "."),
    "always continued": (CONTINUED, CONTINUED.replace("%begin_1, %c0", "%c1, %c0"), "must not"),
    "never continued": (CONTINUED, CONTINUED.replace("gt", "lt"), "."),
    "continued by one": (CONTINUED, CONTINUED.replace("%c0", "%c1"), "."),
    "finished too late": (FINISHED, FINISHED.replace("ge", "gt"), "."),
    "finished by another": (FINISHED, FINISHED.replace("%size_K", "%size_M"), "."),
    "the other way round": (FINISHED, FINISHED.replace("ge", "lt"), "."),
    "begins elsewhere": (
        '%begin_1: i32 = map(fn="mul", args=(%t_111, %c64))',
        '%begin_1: i32 = map(fn="mul", args=(%t_111, %c63))', "."),
    "too few lines": ("allocate_global(each=128,", "allocate_global(each=64,", "this exceeds"),
    "too few flags": ("allocate_global(each=2,", "allocate_global(each=1,", "this exceeds"),
    "too many columns": ("[partials_lines, 128]", "[partials_lines, 96]", "96 columns"),
    "lines of all": ("args=(%line, %share)", "args=(%line, %c0)", "share rows"),
    "leaves nothing": ("store_global(tensor=%partials", "# ", "store nothing"),
    "leaves half": (STORE, ", value=%acc_4_2, vector=2, pred=%continued)", "a conditional store"),
    "adds to anything": (STORE, ", value=%acc_4_2, accumulate=True)", "an addition to a"),
    "flags not of zeros": ("each=2, zeroed=True", "each=2", "flags must be in zeroed"),
}  # fmt: skip


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", WRONG)
def test_wrong(name: str) -> None:
    old, new, told = WRONG[name]
    text = sample_text("stream_k")
    assert old in text, old
    text = text.replace(old, new)
    if "%length_" in new:
        text = text.replace(
            SYNC, '%length_: i32 = map(fn="sub", args=(%end_1, %begin_1)) ' + SYNC, 1
        )
    with pytest.raises(ProofError, match=told) as caught:
        prove(parse_kernel(text, "stream_k.ir"))
    assert caught.value.counterexample.kind == SPLIT_K


def test_sums_that_other_threads_hold() -> None:
    """Read with lines along a fragment's columns, a sum is another thread's."""
    text = sample_text("stream_k")
    lines, columns = "m_piece_index: frag<i32[64x1]>", "n_piece_index: frag<i32[1x64]>"
    text = text.replace(lines, lines.replace("64x1", "1x64"))
    text = text.replace(columns, columns.replace("1x64", "64x1"))
    assert "rows of a workspace must run" in objection(parse_kernel(text))


def test_sums_that_several_threads_hold() -> None:
    """Four threads of a warp have each sum of a row: all read it before one writes it."""
    kernel = (
        CASES["whole"].kernel._compile(Schedule(scheduler="stream_k"), dict(D=64), ()).scheduled
    )
    store = "store_global(tensor=%partials"
    bare = re.sub(rf"sync_warp\(\)\s+((?:%.*\s+)*{re.escape(store)})", r"\1", str(kernel))
    assert bare != str(kernel)
    assert "other threads may not have read" in objection(parse_kernel(bare))
    assert objection(parse_kernel(bare.replace(store, f"sync_warp() {store}"))) == ""


# The scalars --------------------------------------------------------------------------------------

OTHER = {
    "add": "sub", "sub": "add", "mul": "add", "floordiv": "mod", "mod": "floordiv", "min": "max",
    "max": "min", "lt": "le", "le": "lt", "gt": "ge", "ge": "gt", "eq": "ne", "and": "or",
}  # fmt: skip


def other_scalars(kernel: Kernel, role: str) -> Iterator[tuple[str, Kernel]]:
    """Each function of scalars in the partition exchanged for another one."""
    inside = {id(op) for p in kernel.body if isinstance(p, Partition) and p.role == role
              for op in walk(p.body)}  # fmt: skip
    for at, op in enumerate(walk(kernel.body)):
        if isinstance(op, ops.Map) and id(op) in inside and (op.fn in OTHER or op.fn == "where"):
            args = (op.args[0], *op.args[:0:-1]) if op.fn == "where" else op.args
            new = dataclasses.replace(op, fn=OTHER.get(op.fn, op.fn), args=args)
            yield f"{at}: {print_op(op).strip()}", exchange(kernel, at, new)


def hangs_or_races(kernel: Kernel) -> str:
    """In the simulator, where tiles are cut; values may be wrong, misplaced, or written by two."""
    for num_sms in (3, 5):
        try:
            with np.errstate(all="ignore"):
                simulate(kernel, inputs(136, 136, 328), seed=1, num_sms=num_sms)
        except WsdslError as error:
            if not any(told in str(error) for told in ("it writes C[", "cannot copy a box of C")):
                return str(error)
    return ""


@pytest.mark.parametrize("name", ["stream_k", "parallel", "pingpong"])
def test_other_scalars(name: str) -> None:
    """Those that are not refused only change which elements of C are computed, and from what."""
    mutants = list(other_scalars(scheduled(name), "compute"))[:: 3 if name == "pingpong" else 1]
    passed = [(what, mutant) for what, mutant in mutants if not objection(mutant)]
    assert len(passed) < len(mutants) * 0.6
    names = [what.split(": ")[1] for what, _ in passed]
    own = ("%flag", "%length", "%back", "%line", "%twice", "%piece", "%slot")
    # A second turn is the end of its tile, and in slices flags count no elements.
    own = (*own, "%begin", "%end") if name == "stream_k" else own
    assert not [n for n in names if n.startswith(own) and not n.startswith("%slot_")]


def test_other_scalars_do_not_hang() -> None:
    for what, mutant in list(other_scalars(scheduled("stream_k"), "compute"))[::3]:
        if not objection(mutant):
            try:
                explore(mutant)
            except Refuted:
                continue
            assert hangs_or_races(mutant) == "", what
