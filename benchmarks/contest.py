"""The protocol: who is correct, and who is quicker, in two contests.

A large product is limited by power: after a pause a card runs faster than it can keep up. So there
are two contests, and a kernel can win one and lose the other. Both are always measured.

- *interleaved*: bursts of a few milliseconds of each contestant in shuffled order, at least 20
  rounds; the figure is the median of the per-round ratios to the first contestant.
- *sustained*: 0.2 s of warm-up, then at least 0.3 s timed, contestants in turn, median of 4.

A contestant may have several variants (configurations, schedules): the one that is quickest over a
few bursts on the warm card, and correct, goes into the contests.

Every contestant runs as a CUDA graph of several calls, so that host cost stays out, over as many
sets of operands as exceed the L2 cache; the data is random normal (zeros draw less power). Before,
each one's output is poisoned with NaN between guard bytes and compared with float64. A problem is
measured in a child process under a watchdog: a kernel that deadlocks is reported, costs 20 s, and
the others run again without it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from benchmarks.problems import Problem
from benchmarks.watchdog import Outcome, Report, watched, watched_all

Call = Callable[..., Any]
"""`call(*operands, out)` starts one run on torch's current stream; one that can not write to `out`
returns its output."""
Work = Callable[[Report], Any]
SEPARATOR = " | "
MAX_ATTEMPTS = 8
MAX_ENDS = 2
WARM_SECONDS = 120.0
"""Without a sign of life while something compiles ahead."""


class UnfitError(Exception):
    """Says why a contestant does not take part."""


@dataclass(frozen=True)
class Variant:
    """One configuration; `make` compiles it, in the child, and raises what is wrong with it."""

    name: str
    make: Callable[[], Call]
    same_as: str = ""
    """The contestant that this variant is, where it need not be measured twice."""


@dataclass(frozen=True)
class Contestant:
    """`variants(problem)` raises UnfitError where there is none."""

    name: str
    variants: Callable[[Problem], Sequence[Variant]]
    warm: Callable[[Sequence[Problem]], Sequence[Work]] = lambda _: ()
    """What fills caches on disk: done in several children at once, before the contests."""
    lay_out: Callable[..., tuple[Any, ...]] = lambda *operands: operands
    """The operands in the order of memory that this contestant wants; not timed."""
    reference: Callable[..., Any] | None = None
    """The exact result, where it is another than the problem's."""
    tolerance: float | None = None
    """Of the error, where it is another than the problem's."""


@dataclass(frozen=True)
class Length:
    """How long the contests are."""

    rounds: int = 24
    warm_up: float = 0.2
    timed: float = 0.35
    blocks: int = 5
    repeats: int = 12
    trial: float = 0.03
    """A variant's bursts before one is chosen, seconds."""


SMOKE = Length(rounds=2, warm_up=0.01, timed=0.01, blocks=1, repeats=2, trial=0.003)
QUICK = Length(rounds=20, warm_up=0.2, timed=0.3, blocks=4, repeats=4)


@dataclass
class Entrant:
    """A contestant in one contest, with what is known to fail."""

    contestant: Contestant
    variants: Sequence[Variant]
    failures: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.contestant.name

    @property
    def fit(self) -> list[Variant]:
        return [v for v in self.variants if v.name not in self.failures]


def warm_up(
    contestants: Sequence[Contestant],
    problems: Sequence[Problem],
    say: Callable[[str], None] = print,
    workers: int | None = None,
) -> None:
    """Compile for all problems ahead, in parallel. What fails here fails again where it counts."""
    work = [unit for c in contestants for unit in c.warm(problems)]
    workers = workers or min(16, os.cpu_count() or 1)
    # Each child takes a share, since it costs a second until it has a GPU.
    shares = [partial(do_all, work[i::workers]) for i in range(min(workers, len(work)))]
    outcomes = watched_all(shares, workers, WARM_SECONDS)
    failed = [text for o in outcomes for text in (o.value if o.ok else [str(o)])]
    say(f"compiled ahead: {len(work) - len(failed)} of {len(work)}")
    for text in dict.fromkeys(failed):
        say(f"  {text}")


def do_all(units: Sequence[Work], report: Report) -> list[str]:
    """What was wrong with those that failed."""
    failed: list[str] = []
    for unit in units:
        try:
            unit(report)
        except Exception as error:
            failed.append(reason(error))
    return failed


Ends = dict[tuple[str, str], list[str]]
"""By contestant and variant: how it ended children so far."""


def hold(
    problem: Problem,
    contestants: Sequence[Contestant],
    length: Length,
    ends: Ends | None = None,
    say: Callable[[str], None] = print,
) -> dict[str, dict[str, Any]]:
    """A row a contestant; ratios are to the first one.

    A variant that has ended two children (`ends`) is not tried again while there are others.
    """
    from benchmarks.measure import contest

    ends = {} if ends is None else ends
    rows: dict[str, dict[str, Any]] = {}
    entrants: list[Entrant] = []
    for c in contestants:
        try:
            entrants.append(Entrant(c, c.variants(problem)))
        except Exception as error:
            rows[c.name] = {"correct": False, "failure": reason(error)}
            continue
        for v in entrants[-1].fit[1:]:
            known = ends.get((c.name, v.name), [])
            if len(known) >= MAX_ENDS:
                entrants[-1].failures[v.name] = f"elsewhere {known[-1]}"
    outcome = Outcome()
    for _ in range(MAX_ATTEMPTS):
        outcome = watched(contest, problem, entrants, length)
        if outcome.ok:
            rows |= outcome.value
            break
        say(f"{problem.name}  {outcome}")
        at_fault = exclude(entrants, outcome)
        if at_fault is None:
            break
        ends.setdefault(at_fault, []).append(f"{problem.name}: {outcome}")
    for c in contestants:
        rows.setdefault(c.name, {"correct": False, "failure": str(outcome)})
    return {c.name: rows[c.name] for c in contestants}


def exclude(entrants: Sequence[Entrant], outcome: Outcome) -> tuple[str, str] | None:
    """Take the variant at fault out of the next attempt, and say which it was."""
    name, _, rest = outcome.doing.partition(SEPARATOR)
    variant = rest.partition(SEPARATOR)[0]
    for entrant in entrants:
        if entrant.name == name and variant in [v.name for v in entrant.fit]:
            entrant.failures[variant] = str(outcome)
            return name, variant
    return None


def reason(error: BaseException) -> str:
    """The first line that says something."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[0] if lines else "no message"
    return text if isinstance(error, UnfitError) else f"{type(error).__name__}: {text[:160]}"


def line(row: dict[str, Any]) -> str:
    chosen = f"  [{row['chosen']}]" if row.get("chosen") else ""
    if "interleaved" not in row:
        return (row.get("failure") or f"wrong: {row}") + chosen
    shown = [
        f"{contest} {row[contest]['ratio']:.3f} ({row[contest]['tflops']:.0f} TFLOP/s)"
        for contest in ("interleaved", "sustained")
    ]
    return f"{'  '.join(shown)}  error {row['error']:.2g}{chosen}"
