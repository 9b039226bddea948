"""wsdsl's own contestants: the default schedule, and the best of a list."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from benchmarks.candidates import DEFAULT, candidates, kernel_of, schedule_of, sizes_of
from benchmarks.contest import WARM_SECONDS, Call, Contestant, UnfitError, Variant, reason
from benchmarks.problems import Problem
from benchmarks.suites import Kind, Shape
from benchmarks.watchdog import Report, watched_all

if TYPE_CHECKING:
    from wsdsl import Schedule
    from wsdsl.dispatch.compiled import Compiled

Posed = tuple[Kind, Shape, bool]
"""What of a problem its candidates depend on."""
Plan = dict[str, "Schedule | RefusedError"]
"""By candidate: the whole schedule, or why it is refused."""
Key = tuple[Kind, str, "Schedule"]
_plans: dict[Posed, Plan] = {}
_compiled: dict[Key, Compiled | RefusedError] = {}
"""What `warm` made, once for all sizes whose whole schedule is the same; children are forked from
the process that holds it."""


def contestants(schedules: Sequence[str]) -> list[Contestant]:
    """`schedules`: what "best" is chosen from, beside the default; a list of our own if empty."""
    return [
        Contestant("wsdsl", lambda p: [variant(p, DEFAULT)], lay_out=lay_out),
        Contestant(
            "wsdsl best",
            lambda p: [variant(p, t) for t in _plans.get(posed_of(p)) or candidates(p, schedules)],
            lay_out=lay_out,
        ),
        Contestant("wsdsl plain", plain_variants, reference=product),
    ]


def lay_out(*operands: Any) -> tuple[Any, ...]:
    """Scales of blocks along M, as cuBLASLt has them too."""
    a, b, *scales = operands
    if scales and scales[0].dim() == 2 and scales[0].dtype.itemsize == 4:
        scales[0] = scales[0].T.contiguous()
    return (a, b, *scales)


def variant(problem: Problem, text: str) -> Variant:
    return Variant(text, partial(make, problem, text), "wsdsl" if text == DEFAULT else "")


def plain_variants(problem: Problem) -> list[Variant]:
    """Beside a fused epilogue: the product alone."""
    if not problem.kind.epilogue:
        raise UnfitError("only beside an epilogue")
    from benchmarks.kernels import gemm

    return [Variant(DEFAULT, lambda: lambda a, b, bias, residual, out: gemm(a, b, out, exact=True))]


def product(a: Any, b: Any, *_: Any) -> Any:
    return a.double() @ b.double().T


class RefusedError(UnfitError):
    """wsdsl's own message, as it was given when the schedule was compiled ahead."""


def warm(problems: Sequence[Problem], schedules: Sequence[str]) -> tuple[int, int]:
    """Compile everything ahead, in children; how many kernels were asked for, and made."""
    posed = {posed_of(p): p for p in problems}
    _plans.update(in_shares(plan_all, list(posed.values()), schedules))
    todo: dict[Key, Problem] = {}
    for key, problem in posed.items():
        for text, schedule in _plans.get(key, {}).items():
            if not isinstance(schedule, RefusedError):
                todo.setdefault((problem.kind, text, schedule), problem)
    _compiled.update(in_shares(compile_all, list(todo.items())))
    refused = [s for p in _plans.values() for s in p.values() if isinstance(s, RefusedError)]
    made = [found for found in _compiled.values() if not isinstance(found, RefusedError)]
    return len(todo) + len(refused), len(made)


def in_shares(work: Any, items: list[Any], *more: Any) -> dict[Any, Any]:
    """What `work(share, *more, report)` finds in children; of one that fails, nothing: those look
    again where it counts."""
    workers = max(1, min(16, os.cpu_count() or 1, len(items)))
    shares = [partial(work, items[i::workers], *more) for i in range(workers)]
    found: dict[Any, Any] = {}
    for outcome in watched_all(shares, workers, WARM_SECONDS):
        found |= outcome.value if outcome.ok else {}
    return found


def plan_all(
    problems: Sequence[Problem], schedules: Sequence[str], report: Report
) -> dict[Posed, Plan]:
    found: dict[Posed, Plan] = {}
    for problem in problems:
        report(problem.name)
        found[posed_of(problem)] = plan(problem, schedules)
    return found


def plan(problem: Problem, schedules: Sequence[str]) -> Plan:
    return {text: whole_schedule(problem, text) for text in candidates(problem, schedules)}


def whole_schedule(problem: Problem, text: str) -> Schedule | RefusedError:
    from wsdsl.lowering.pipeline import scheduled_tile

    try:
        given = schedule_of(problem, text)
        kernel = dataclasses.replace(kernel_of(problem.kind).tile_ir, schedule=given)
        found = scheduled_tile(kernel, sizes_of(problem)).schedule
    except Exception as error:
        return RefusedError(reason(error))
    assert found is not None
    return found


def compile_all(
    items: Sequence[tuple[Key, Problem]], report: Report
) -> dict[Key, Compiled | RefusedError]:
    found: dict[Key, Compiled | RefusedError] = {}
    for key, problem in items:
        report(f"{problem.name} {key[1]}")
        try:
            found[key] = compile_for(problem, key[1])
        except Exception as error:
            found[key] = RefusedError(reason(error))
    return found


def compile_for(problem: Problem, text: str) -> Compiled:
    """The compiled kernel; CompileError, ScheduleError and their like where it is refused."""
    schedule = schedule_of(problem, text)
    return kernel_of(problem.kind).compile(schedule=schedule, **sizes_of(problem))


def compiled(problem: Problem, text: str) -> Compiled:
    """`compile_for`, or what it gave ahead."""
    schedule = _plans.get(posed_of(problem), {}).get(text)
    found = schedule if isinstance(schedule, RefusedError) else None
    if schedule is not None and not isinstance(schedule, RefusedError):
        found = _compiled.get((problem.kind, text, schedule))
    if isinstance(found, RefusedError):
        raise found
    return found or compile_for(problem, text)


def posed_of(problem: Problem) -> Posed:
    return problem.kind, problem.size, problem.swept


def make(problem: Problem, text: str) -> Call:
    call: Call = compiled(problem, text)
    m, *others = problem.size
    if any(size % 16 for size in (*others, *([m] if problem.kind.columns else ()))):
        # Rows that TMA does not take: the kernel looks at its arrays, and is compiled for them.
        call = partial(kernel_of(problem.kind), schedule=schedule_of(problem, text))
    if not problem.kind.columns:
        return call
    a_by_columns = "a" in problem.kind.columns
    return lambda a, b, out: call(a.T if a_by_columns else a, b.T, out)


def describe(problem: Problem, text: str) -> dict[str, Any]:
    """The whole schedule that was run, and what it takes."""
    from wsdsl.cli.commands import resources_of

    made = compiled(problem, text)
    return {"schedule": repr(made.schedule), "resources": resources_of(made)}
