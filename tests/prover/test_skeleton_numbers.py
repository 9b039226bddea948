"""Trip counts, TMA coordinates and semaphores of PTX are compared at sample sizes."""

import re
from collections.abc import Iterable
from typing import Any

import pytest

from tests.kernels import CASES
from tests.prover.hostile_kernels import KERNELS
from tests.prover.ptx_mutants import changed_flags, left_out, other_place, overtaken_with_others
from tests.prover.skeletons import objection
from wsdsl import Schedule
from wsdsl.dispatch.compiled import Compiled
from wsdsl.prover.ptx.expected_trace import skeleton_of_kernel
from wsdsl.prover.ptx.ptx_trace import Program
from wsdsl.prover.ptx.sampled_execution import differing_event
from wsdsl.schedule import Arch

ORDER = (".le.", ".gt.")
PLAIN = dict[str, Any](tile=dict(m=128, n=64), consumers=1, stages=2)
SCHEDULES = (
    Schedule(tile=dict(m=128, n=16), stages=2, consumers=2, scheduler="split_k", splits=3),
    Schedule(tile=dict(m=64, n=16), stages=2, scheduler="split_k", splits=3, reduction="parallel"),
)


def missed(made: Compiled, mutants: Iterable[str]) -> list[str]:
    """Mutants that the run at sample sizes accepts."""
    _, places = skeleton_of_kernel(made.scheduled)
    found = list[str]()
    for mutant in mutants:
        program = Program(mutant, places)
        if not differing_event(made.scheduled, program, places.ranks):
            found.append(mutant)
    return found


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda schedule: schedule.scheduler)
def test_changed_semaphores_are_reported(schedule: Schedule) -> None:
    made = CASES["gemm"].kernel._compile(schedule, {}, ())
    assert not objection(made.scheduled, made.ptx)
    assert objection(made.scheduled, made.ptx.replace("@less bra", "@!less bra"))
    lines = made.ptx.splitlines()
    mutants = list(changed_flags(lines))
    assert len(mutants) > 10
    assert missed(made, ["\n".join([*lines[:i], x, *lines[i + 1 :]]) for i, x in mutants]) == []


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
def test_maps_and_coordinates_of_copies_are_compared(arch: Arch) -> None:
    made = CASES["gemm"].kernel._compile(Schedule(**PLAIN, arch=arch), {}, ())
    found = re.findall(r"cp\..*tensor.*\{(%r\d+), (%r\d+)\}.*", made.ptx)
    assert len(found) > 2
    swapped = [made.ptx.replace(f"{{{x}, {y}}}", f"{{{y}, {x}}}") for x, y in found]
    moved = [made.ptx.replace(f"{{{x}, {y}}}", f"{{{x}, 8}}") for x, y in found]
    maps = sorted({*re.findall(r"\[(%rd\d+), \{", made.ptx)})
    mapped = [
        made.ptx.replace(f"[{x}, {{", f"[{y}, {{") for x in maps for y in (*maps, "%rd99") if x != y
    ]
    assert len(mapped) == 9
    assert missed(made, [*swapped, *moved, *mapped]) == []


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
def test_trip_counts_are_compared_when_sizes_bound_them(arch: Arch) -> None:
    """Of the loops over K and over tiles, of each role."""
    made = CASES["gemm"].kernel._compile(Schedule(**PLAIN, arch=arch), {}, ())
    bounds = re.findall(r"setp\.(?:lt|ge)\.[su]32 .*, %r\d+;", made.ptx)
    mutants = [made.ptx.replace(x, re.sub(r"\.(lt|ge)\.", y, x)) for x in bounds for y in ORDER]
    assert len(mutants) > 4
    assert missed(made, mutants) == []


def test_conditions_of_loaded_numbers_are_compared() -> None:
    """Also which element is loaded, and one more or less; of each role."""
    case, schedule = KERNELS["if_in_a_loop"], Schedule(**PLAIN)
    made = case.kernel._compile(schedule, case.sizes, ())
    assert not objection(made.scheduled, made.ptx)
    mutants = list[str]()
    for found in re.finditer(r"b32 (%r\d+), \[%rd\d+(\]);[^@]*setp\.lt\.s32 .*\1, (2);", made.ptx):
        for group, texts in ((2, ("+4]",)), (3, ("1", "3"))):
            before, after = made.ptx[: found.start(group)], made.ptx[found.end(group) :]
            mutants += [before + text + after for text in texts]
    assert len(mutants) == 6
    assert missed(made, mutants) == []


def test_trip_counts_of_loaded_numbers_are_compared() -> None:
    made = CASES["part"].kernel._compile(Schedule(**PLAIN), CASES["part"].sizes, ())
    assert not objection(made.scheduled, made.ptx)
    found = re.findall(r"ld\.global\.nc\.b32 %r\d+, \[%rd\d+\];", made.ptx)
    mutants = [made.ptx.replace(load, load.replace("]", "+4]")) for load in found]
    assert len(mutants) >= 4
    assert missed(made, mutants) == []


def test_which_cta_of_a_pair_multiplies_is_compared() -> None:
    schedule = Schedule(arch="sm_100a", tile=dict(m=128, n=64), stages=2, cta_group=2)
    made = CASES["gemm"].kernel._compile(schedule, {}, ())
    ranks = re.findall(r"mov\.u32 \s*(%r\d+), %cluster_ctarank;", made.ptx)
    tests = [x for r in ranks for x in re.findall(rf"setp\.\w+\.b32 \s*%p\d+, {r}, 0;", made.ptx)]
    assert len(tests) == 1
    assert missed(made, [made.ptx.replace(tests[0], tests[0].replace("0;", "1;"))]) == []


@pytest.mark.parametrize("name", ["gemm", "row_softmax", "reduce_into", "bytes_out"])
@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
def test_places_of_accesses_by_threads_are_compared(name: str, arch: Arch) -> None:
    """Also of other arrays, which are left out, and which are beyond a fence."""
    made = CASES[name].kernel._compile(Schedule(arch=arch), CASES[name].sizes, ())
    assert not objection(made.scheduled, made.ptx)
    lines = made.ptx.splitlines()
    mutants = [*other_place(lines)]
    if name != "row_softmax":
        stores = (x for x in overtaken_with_others(lines) if "ld." not in x[0])
        mutants += (*left_out(lines), *stores)
    assert len(mutants) > 3
    assert missed(made, ["\n".join(x) for _, x in mutants]) == []
