"""The PTX's synchronisation is compared with the kernel's: no false alarm, and no mutant missed."""

from __future__ import annotations

import cProfile
import itertools
import re
from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest

from tests.codegen.support import ptx_of
from tests.kernels import CASES
from tests.prover.skeletons import SCHEDULES, compiled, objection
from tests.simulator.mutants import mutants
from tests.test_mutations import without
from wsdsl import Schedule
from wsdsl.dispatch.compiled import Compiled
from wsdsl.ir import ops
from wsdsl.ir.op_fields import op_name
from wsdsl.ir.parser import parse_kernel
from wsdsl.ir.rewriter import walk
from wsdsl.prover.ptx.check_ptx import check_skeleton

MUTATED = [
    ("gemm", "default", False),
    ("gemm", "default", True),
    ("gemm", "early", False),
    ("gemm", "sums", False),
    ("held_operand", "default", False),
    ("two_loops", "default", True),
    ("scale", "default", False),
]
"""Cases, schedules, and whether threads copy rather than TMA."""


# No false alarm ----------------------------------------------------------------------------------


ASKED = [
    pytest.param(name, schedule, threads, id=f"{name}-{schedule}-{'threads' if threads else 'tma'}")
    for i, name in enumerate(CASES)
    for j, schedule in enumerate(SCHEDULES)
    for threads in (False, True)
    if j == 0 or (i + j) % 12 == 6 * threads
]
"""Every case by the default and by each twelfth schedule, copied by TMA and by threads;
`python -m tests.prover.skeletons` takes all of them."""


MOST = 5
"""Mutants of a kind that one kernel is tried with."""


@pytest.mark.sampled(12)
@pytest.mark.parametrize(("name", "schedule", "threads"), ASKED)
def test_no_false_alarm(name: str, schedule: str, threads: bool, refusals) -> None:
    with refusals():
        made = compiled(name, schedule, threads)
    assert not objection(made.scheduled, made.ptx)


PINGPONG = Schedule(tile=dict(m=64, n=16, k=64), stages=8, mode="pingpong")
TWO_CTAS = Schedule(tile=dict(m=64, n=72, k=32, l=64), stages=7, consumers=1, cluster=dict(n=2))
SLICE = Schedule(tile=dict(m=64, n=16), scheduler="split_k", splits=4, reduction="parallel")
BLOCKS = Schedule(tile=dict(m=128, n=80), cluster=dict(n=2), scheduler="grid")
TENSOR = Schedule(arch="sm_100a", stages=2)


@pytest.mark.parametrize(
    ("name", "schedule", "sizes", "unaligned"),
    [
        # LLVM takes a slot's address for that of its barrier and a multiple of the stage, which it
        # reads in a block that only the one of the barrier's leads to.
        ("column_major_b", PINGPONG, {}, ("B",)),
        # It takes the 0 that a CTA's rank is for the start of a loop's index, too.
        ("two_loops", TWO_CTAS, {}, ()),
        # It sees how often the loop over a single slice would run.
        ("gemm", SLICE, {}, ()),
        # It takes the 0 of a rank from the register that counts blocks of 16-bit stores.
        ("gemm", BLOCKS, dict(M=2000, N=1900, K=64), ()),
        # It knows of each loop whether it runs.
        ("part", TENSOR, {}, ()),
        ("bias_first", TENSOR, {}, ()),
    ],
    ids=("two blocks", "counts", "slice", "rank", "part", "bias_first"),
)
def test_what_llvm_makes_otherwise(
    name: str, schedule: Schedule, sizes: dict[str, int], unaligned: tuple[str, ...]
) -> None:
    made = CASES[name].kernel._compile(schedule, sizes or CASES[name].sizes, unaligned)
    assert not objection(made.scheduled, made.ptx)


@pytest.mark.parametrize("name", ["gemm", "epilogue", "around_a_loop"])
def test_it_is_fast(name: str) -> None:
    """By calls of functions: a million take 0.3 to 0.6 s."""
    made = compiled(name)
    ptx = made.ptx
    profile = cProfile.Profile()
    profile.runcall(check_skeleton, made.scheduled, ptx)
    assert sum(entry.callcount for entry in profile.getstats()) < 700_000


# Mutants of the PTX ------------------------------------------------------------------------------

EVENT = re.compile(
    r"^\s*(@!?%\w+\s+)?(mbarrier|cp\.async\.bulk|wgmma|fence|bar\.|barrier|setmaxnreg|elect"
    r"|st\.async|tcgen05|clusterlaunchcontrol|red\.re|ld\.acquire|griddepcontrol)"
)
# Counts, bytes, pending groups, identifiers: whole numbers that are operands, or offsets of them.
NUMBER = re.compile(r"(?<=[ \t+])\d+(?=[\];,\s])")


def opcode(line: str) -> str:
    return re.sub(r"^\s*@\S+\s+", "", line).split()[0]


def events(lines: list[str]) -> list[int]:
    return [i for i, line in enumerate(lines) if EVENT.match(line)]


def is_label(line: str) -> bool:
    return re.match(r"\$?\w+:", line) is not None


def whole_wait(lines: list[str], i: int) -> list[str]:
    """An event, or the loop around a try_wait, which can then stand elsewhere."""
    if "try_wait" not in lines[i]:
        return [lines[i]]
    held = [line.replace("WAIT_", "AGAIN_") for line in lines[i - 3 : i + 3]]
    assert (held[0].strip(), held[-1].strip()) == ("{", "}")
    return held


def deleted(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    for i in events(lines):
        yield f"delete {lines[i]}", [*lines[:i], *lines[i + 1 :]]


def doubled(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    for i in events(lines):
        yield f"twice {lines[i]}", [*lines[: i + 1], *lines[i:]]
        if "try_wait" in lines[i]:
            held = whole_wait(lines, i)
            yield f"twice, whole {lines[i]}", [*lines[: i + 3], *held, *lines[i + 3 :]]


def recounted(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """All numbers."""
    for i in events(lines):
        if "elect.sync" in lines[i]:
            continue
        code = re.sub(r"\{[^}]*\}", lambda g: "\0" * len(g[0]), lines[i].split("//")[0])
        for found in NUMBER.finditer(code):
            for number in (int(found[0]) + 8, int(found[0]) ^ 1):
                line = f"{lines[i][: found.start()]}{number}{lines[i][found.end() :]}"
                yield f"{found[0]} to {number} in {lines[i]}", [*lines[:i], line, *lines[i + 1 :]]


def swapped(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    found = events(lines)
    for i, j in pairwise(found):
        between = lines[i + 1 : j]
        if opcode(lines[i]) == opcode(lines[j]) or "try_wait" in lines[i]:
            continue
        if any(is_label(line) or " bra" in line for line in between):
            continue
        made = [*lines[:i], lines[j], *between, lines[i], *lines[j + 1 :]]
        yield f"swap {lines[i]} and {lines[j]}", made


def moved_out(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Out of the innermost loop, before and behind it."""
    starts = {m[1]: i for i, line in enumerate(lines) if (m := re.match(r"(\$L\w+):", line))}
    ends: list[tuple[int, int]] = []
    for i, line in enumerate(lines):
        m = re.match(r"\s*@\S+ bra\s+(\$L\w+);", line)
        if m and starts[m[1]] < i:
            ends.append((starts[m[1]], i))
    for i in events(lines):
        around = [(stop - start, start, stop) for start, stop in ends if start < i < stop]
        if not around:
            continue
        _, start, stop = min(around)
        held = whole_wait(lines, i)
        before = 3 if len(held) > 1 else 0
        rest = [*lines[start : i - before], *lines[i - before + len(held) : stop + 1]]
        yield f"before the loop {lines[i]}", [*lines[:start], *held, *rest, *lines[stop + 1 :]]
        yield f"after the loop {lines[i]}", [*lines[:start], *rest, *held, *lines[stop + 1 :]]


def unpredicated(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    for i in events(lines):
        guard = re.match(r"\s*@\S+ ", lines[i])
        line = lines[i][guard.end() :] if guard else f"@%p999 {lines[i].lstrip()}"
        if "elect" not in line:
            yield f"{lines[i]} as {line}", [*lines[:i], line, *lines[i + 1 :]]


def unlooped(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """A wait that does not wait: without its branch, or with the branch the wrong way round."""
    for i in events(lines):
        if "try_wait" in lines[i]:
            yield f"once {lines[i]}", [*lines[: i + 1], *lines[i + 2 :]]
            wrong = lines[i + 1].replace("@!done", "@done")
            yield f"wrong way {lines[i]}", [*lines[: i + 1], wrong, *lines[i + 2 :]]


KINDS = (deleted, doubled, recounted, swapped, moved_out, unpredicated, unlooped)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize(("name", "schedule", "threads"), MUTATED)
def test_mutants_of_the_ptx_are_reported(name: str, schedule: str, kind, threads: bool) -> None:
    """Of each kind so many, from all of the text; `tests.prover.ptx_mutants` takes others."""
    made = compiled(name, schedule, threads)
    lines = made.ptx.splitlines()
    every = list(kind(lines))
    found = every[:: -(-len(every) // MOST) or 1]
    missed = [what for what, ptx in found if not objection(made.scheduled, "\n".join(ptx))]
    assert missed == []
    assert found or name == "scale"


def test_threads_sent_elsewhere_are_reported() -> None:
    """Branches and predicates that only the thread decides: who initialises, loads, computes."""
    made = compiled("gemm")
    lines = made.ptx.splitlines()
    branches = [i for i, line in enumerate(lines) if re.match(r"\s*@%p\d+ bra", line)]
    for i in branches[:3]:
        other = [*lines[:i], lines[i].replace("@", "@!"), *lines[i + 1 :]]
        assert objection(made.scheduled, "\n".join(other)), lines[i]
    compares = [i for i, line in enumerate(lines) if re.match(r"\s*setp\.(eq|ne)\.b32", line)]
    tid = next(m[1] for line in lines if (m := re.search(r"mov\.u32\s+(%r\d+), %tid\.x", line)))
    thread = next(i for i in compares if f", {tid}, 0" in lines[i])
    contrary = "eq" if "setp.ne" in lines[thread] else "ne"
    other_way = re.sub(r"setp\.\w\w", f"setp.{contrary}", lines[thread])
    for line in (lines[thread].replace(", 0;", ", 1;"), other_way):
        other = [*lines[:thread], line, *lines[thread + 1 :]]
        assert objection(made.scheduled, "\n".join(other)), line


# Mutants of the kernel ---------------------------------------------------------------------------

EVENTS = (
    ops.MbarrierInit, ops.FenceMbarrierInit, ops.SyncCta, ops.SyncWarp, ops.FenceAsyncProxy,
    ops.MbarrierWait, ops.MbarrierArrive, ops.MbarrierArriveExpectTx, ops.Setmaxnreg,
    ops.TmaLoad, ops.TmaStore, ops.TmaStoreCommit, ops.TmaStoreWait, ops.WgmmaFence,
    ops.WgmmaMmaAsync, ops.WgmmaCommit, ops.WgmmaWait, ops.GriddepWait, ops.GriddepLaunchDependents,
)  # fmt: skip
OTHERWISE = (
    "initial_state",
    "advance",
    "smem_descriptor",
    "make_tensor_map",
    "store_shared",
    "thread_load",
    "thread_store",
)
"""Ops without an instruction of their own that synchronises: their values are another check's."""


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("name", "schedule", "threads"), MUTATED)
def test_every_op_is_asked_for(
    name: str, schedule: str, threads: bool, each: Callable[[int], int]
) -> None:
    made = compiled(name, schedule, threads)
    missed = [
        op_name(type(op))
        for op in list(walk(made.scheduled.body))[:: each(3)]
        if any(isinstance(inner, EVENTS) for inner in walk((op,)))
        if not objection(without(made.scheduled, op), made.ptx)
    ]
    assert missed == []


def missed_changes(made: Compiled, each: int = 1) -> list[str]:
    return [
        what
        for what, kernel in itertools.islice(mutants(made.scheduled), None, None, each)
        if not any(f" {other}(" in what for other in OTHERWISE)
        if not objection(kernel, made.ptx)
    ]


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("name", "schedule", "threads"), MUTATED)
def test_every_change_of_an_op_is_reported(name: str, schedule: str, threads: bool) -> None:
    """Every fifth one; `python -m tests.prover.test_skeleton` takes all."""
    assert missed_changes(compiled(name, schedule, threads), each=5) == []


# Ops that few cases have --------------------------------------------------------------------------

CLUSTER = """\
kernel sample @ scheduled (%F: tensor<i32[N]>) {
  %c0: i32 = constant(value=0)
  %c2: i32 = constant(value=2)
  %full: mbarrier<1> = allocate_mbarriers(label="full", arrivals=1, offset=1024)
  %s: state = initial_state(parity=0)
  sync_cluster()
  partition(role="compute", registers=0) {
    mbarrier_arrive(barriers=%full, state=%s, cta=%c0)
    named_barrier_sync(barrier=1, num_warpgroups=2)
    named_barrier_arrive(barrier=2, num_warpgroups=2)
    semaphore_arrive(tensor=%F, index=(%c0,), amount=3)
    semaphore_wait(tensor=%F, index=(%c0,), count=%c2)
  }
}
"""


def test_a_reduction_is_no_store() -> None:
    adds, writes = compiled("reduce_into"), compiled("gemm")
    stored = adds.ptx.replace("cp.reduce.async", "cp.async").replace(".add.bulk", ".bulk")
    told = objection(adds.scheduled, stored)
    assert "expected TMA reduction 2d" in told and "the PTX has TMA store 2d" in told
    assert objection(adds.scheduled, adds.ptx.replace(".add.bulk", ".max.bulk"))
    added = re.sub(r"cp(\.async\.bulk\.tensor\.2d\.global\.shared::cta)", r"cp.reduce\1.add",
                   writes.ptx)  # fmt: skip
    assert added != writes.ptx
    assert "expected TMA store 2d" in objection(writes.scheduled, added)


def test_clusters_named_barriers_and_flags() -> None:
    kernel = parse_kernel(CLUSTER)
    ptx = ptx_of(kernel)
    assert objection(kernel, ptx) == ""
    lines = ptx.splitlines()
    found = [i for i, line in enumerate(lines) if re.search(r"barrier|bar\.|red\.|ld\.ac", line)]
    assert len(found) == 7
    for i in found:
        assert objection(kernel, "\n".join([*lines[:i], *lines[i + 1 :]])), lines[i]
    for before, after in (
        ("2, 256", "2, 128"), ("bar.arrive", "bar.sync"), ("], 3", "], 4"), (", 1024;", ", 1032;"),
        ("shared::cluster.b64", "shared::cta.b64"), ("@%p1 red", "red"), ("@less bra WAIT_0;", ""),
        ("cluster.arrive.aligned", "cluster.arrive.relaxed.aligned"),
        ("red.release", "red.relaxed"), ("reqntid 128", "reqntid 256"),
    ):  # fmt: skip
        assert before in ptx
        assert objection(kernel, ptx.replace(before, after)), before


if __name__ == "__main__":
    for mutated in MUTATED:
        assert missed_changes(compiled(*mutated)) == [], mutated
