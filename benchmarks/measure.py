"""Contests, in a child process: choose each contestant's variant, check it, race the chosen."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from benchmarks.burst import Burst
from benchmarks.contest import SEPARATOR, Bout, Entrant, Length, reason
from benchmarks.race import Row, race

if TYPE_CHECKING:
    import torch

    from benchmarks.contest import Call
    from benchmarks.problems import Problem
    from benchmarks.watchdog import Report

GUARD_ELEMENTS = 1 << 16
TRIAL_TURNS = 3
LONGER_TRIALS = 4
"""How many of the quickest in bursts run for longer."""
Sets = list[tuple[Any, ...]]


def measure(report: Report, bouts: Mapping[int, Bout], until: float) -> None:
    """Reports the rows of each as it ends."""
    for index, bout in bouts.items():
        if time.monotonic() > until:
            break
        report("over", (index, contest(report, bout.problem, bout.entrants, bout.length)))


def contest(
    report: Report, problem: Problem, entrants: Sequence[Entrant], length: Length
) -> dict[str, Row]:
    import torch

    report("operands")
    sets: Sets = []
    for seed in range(problem.num_sets):
        out = torch.empty(problem.shape, dtype=problem.dtype, device="cuda")
        sets.append((*problem.operands(seed), out))
    torch.cuda.synchronize()
    report("the exact result")
    exact = problem.reference(*sets[0][:-1])
    torch.cuda.synchronize()
    rows: dict[str, Row] = {}
    bursts: dict[str, Burst] = {}
    for entrant in entrants:
        rows[entrant.name], burst = enter(report, problem, entrant, sets, exact, length)
        if burst is not None and rows[entrant.name].get("same_as") not in bursts:
            bursts[entrant.name] = burst
    del exact
    for name, figures in race(report, problem, bursts, length).items():
        rows[name] |= figures
    for row in rows.values():
        twin = rows.get(row.get("same_as", ""), {})
        row |= {key: twin[key] for key in ("against", "interleaved", "sustained") if key in twin}
    return rows


def enter(
    report: Report,
    problem: Problem,
    entrant: Entrant,
    sets: Sets,
    exact: torch.Tensor,
    length: Length,
) -> tuple[Row, Burst | None]:
    """The row, and the burst of the variant that is chosen: the quickest that is correct."""
    c, failures = entrant.contestant, dict(entrant.failures)
    first = entrant.fit[0].name if entrant.fit else ""
    report(SEPARATOR.join((c.name, first, "lay out")))
    try:
        laid = [(*c.lay_out(*held[:-1]), held[-1]) for held in sets]
        if c.reference is not None:
            exact = c.reference(*sets[0][:-1])
    except Exception as error:
        return {"correct": False, "failure": f"laying out: {reason(error)}"}, None
    settle()
    calls: dict[str, Call] = {}
    bursts: dict[str, Burst] = {}
    for v in entrant.fit:
        said = SEPARATOR.join((c.name, v.name, ""))
        try:
            report(said + "compile")
            calls[v.name] = v.make()
            bursts[v.name] = Burst(said, calls[v.name], laid, report, length.burst)
        except Exception as error:
            failures[v.name] = reason(error)
            report(said + f"after {failures[v.name]}")
            settle()
    seconds = dict.fromkeys(bursts, 0.0)
    longer: dict[str, float] = {}
    if len(bursts) > 1:
        seconds = try_out(report, bursts, length)
        longer = run_longer(report, finalists(bursts, seconds), length)
    row: Row = {"correct": False, "failure": next(iter(failures.values()), "it has no variant")}
    best: Burst | None = None
    for name in ranking(seconds, longer):
        said = SEPARATOR.join((c.name, name, ""))
        found = check(report, problem, said, calls[name], laid[0], exact, length.repeats)
        found["correct"] &= found["error"] <= (c.tolerance or problem.tolerance)
        if found["correct"]:
            same_as = next(v.same_as for v in entrant.variants if v.name == name)
            row = found | {"chosen": name} | ({"same_as": same_as} if same_as else {})
            best = bursts[name]
            break
        failures[name] = f"wrong: {found}"
        row |= {"failure": failures[name]}
    if len(entrant.variants) > 1:
        row["variants"] = {n: {"microseconds": s * 1e6} for n, s in seconds.items()}
        for name, spent in longer.items():
            row["variants"][name]["sustained_microseconds"] = spent * 1e6
        row["variants"] |= {n: {"failure": text} for n, text in failures.items()}
    return row, best


def settle() -> None:
    """Wait for all that runs; raises what a failed variant did to the context, which is the end of
    this child."""
    import torch

    torch.cuda.synchronize()


def try_out(report: Report, bursts: dict[str, Burst], length: Length) -> dict[str, float]:
    """Seconds a call over a few bursts, in shuffled order, on a card that is warm."""
    spent = dict.fromkeys(bursts, 0.0)
    first = next(iter(bursts.values()))
    report(first.said + "warm the card")
    first.run(length.warm_up)
    for turn in range(TRIAL_TURNS):
        order = list(bursts)
        random.Random(turn).shuffle(order)
        for name in order:
            report(bursts[name].said + "try out")
            spent[name] += bursts[name].run(length.trial / TRIAL_TURNS) / TRIAL_TURNS
    return spent


def finalists(bursts: dict[str, Burst], seconds: dict[str, float]) -> dict[str, Burst]:
    """The quickest, and the first: what is usually taken."""
    quickest = sorted(seconds, key=seconds.__getitem__)[:LONGER_TRIALS]
    return {name: bursts[name] for name in {next(iter(bursts)): 0, **dict.fromkeys(quickest)}}


def run_longer(report: Report, bursts: dict[str, Burst], length: Length) -> dict[str, float]:
    """Seconds a call when it goes on for a while: power counts then."""
    spent: dict[str, float] = {}
    for name, burst in bursts.items():
        report(burst.said + "a longer trial")
        burst.run(length.longer_trial / 3)
        spent[name] = burst.run(length.longer_trial * 2 / 3)
    return spent


def ranking(seconds: dict[str, float], longer: dict[str, float]) -> list[str]:
    """The best first: those that ran for longer by the mean of both."""
    both = {name: math.sqrt(seconds[name] * spent) for name, spent in longer.items()}
    rest = [name for name in seconds if name not in longer]
    return [
        *sorted(both, key=both.__getitem__),
        *sorted(rest, key=seconds.__getitem__),
    ]


def check(
    report: Report,
    problem: Problem,
    said: str,
    call: Call,
    operands: tuple[Any, ...],
    exact: torch.Tensor,
    repeats: int,
) -> Row:
    """How far from exact; everywhere written, nothing else touched, and the same each time?"""
    import torch

    poison = float("nan") if problem.dtype.is_floating_point else torch.iinfo(problem.dtype).min
    n = math.prod(problem.shape)
    size = n + 2 * GUARD_ELEMENTS
    whole = torch.full((size,), poison, dtype=problem.dtype, device="cuda")
    out = whole[GUARD_ELEMENTS : GUARD_ELEMENTS + n].view(problem.shape)

    def run() -> torch.Tensor:
        out.fill_(poison)
        returned = call(*operands[:-1], out)
        return returned if isinstance(returned, torch.Tensor) else out

    report(said + "check")
    first = run().clone()
    torch.cuda.synchronize()
    norm = exact.norm().item()
    error = (first.double() - exact).norm().item() / (norm or 1.0)
    differing = 0
    for repeat in range(repeats):
        report(said + f"repeat {repeat}")
        differing += not torch.equal(run(), first)
    guards = torch.cat([whole[:GUARD_ELEMENTS], whole[-GUARD_ELEMENTS:]])
    kept = guards.isnan() if problem.dtype.is_floating_point else guards == poison
    untouched = bool(kept.all().item())
    return {
        "correct": untouched and not differing,
        "error": error,
        "guards_untouched": untouched,
        "repeats_differing": differing,
    }
