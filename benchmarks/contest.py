"""The protocol: who is correct, and who is quicker, in two contests.

A large product is limited by power: after a pause a card runs faster than it can keep up. So there
are two contests, and a kernel can win one and lose the other. Both are always measured.

- *interleaved*: bursts of a few milliseconds of each contestant in shuffled order, one right behind
  the other, at least 20 rounds; the figure is the median of the per-round ratios to the first
  contestant.
- *sustained*: 0.2 s of warm-up, then at least 0.3 s timed, contestants in turn, median of 4.

A contestant may have several variants (configurations, schedules): the first, and those that are
quickest over a few bursts on the warm card, run for longer; the one that is quickest in the mean of
both, and correct, goes into the contests.

Every contestant runs as a CUDA graph of several calls, so that host cost stays out, over as many
sets of operands as exceed the L2 cache; the data is random normal (zeros draw less power). Before,
each one's output is poisoned with NaN between guard bytes and compared with float64. A problems are
measured in a child process under a watchdog: a kernel that deadlocks is reported, costs 20 s, and
another child goes on at the same problem without it.
"""

from __future__ import annotations

import math
import os
import time
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
Rows = dict[str, dict[str, Any]]
SEPARATOR = " | "
MAX_ATTEMPTS = 8
MAX_ENDS = 2
PER_CHILD = 40
"""Problems that a child measures, since it takes a second until it has a GPU; not more, since
captured kernels leave memory behind."""
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
    burst: float = 3e-3
    trial: float = 0.03
    """A variant's bursts before one is chosen, seconds."""
    longer_trial: float = 0.15
    """The quickest ones' sustained run before one is chosen, a third of it to warm up."""


SMOKE = Length(
    rounds=2, warm_up=0.01, timed=0.01, blocks=1, repeats=2, trial=0.003, longer_trial=0.003
)
QUICK = Length(rounds=20, warm_up=0.2, timed=0.3, blocks=4, repeats=4, longer_trial=0.1)
SWEPT = Length(
    rounds=20, warm_up=0.04, timed=0.06, blocks=5, repeats=2, burst=2e-3, trial=0.012,
    longer_trial=0.06,
)  # fmt: skip
"""Of one point among many. The card has no pause between contestants, which all draw as much power
as it has, so it takes less to warm up; and single blocks are off by 10 %, so there are more."""


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


@dataclass
class Bout:
    """One problem, for how long, and who takes part; or why not."""

    problem: Problem
    contestants: Sequence[Contestant]
    length: Length
    entrants: list[Entrant] = field(init=False, default_factory=list)
    unfit: dict[str, str] = field(init=False, default_factory=dict)
    attempts: int = 0

    def __post_init__(self) -> None:
        for c in self.contestants:
            try:
                self.entrants.append(Entrant(c, c.variants(self.problem)))
            except Exception as error:
                self.unfit[c.name] = reason(error)

    def rows(self, measured: dict[str, dict[str, Any]], outcome: Outcome) -> Rows:
        """A row a contestant, with a failure for those that were not measured."""
        failed = {c.name: str(outcome) for c in self.contestants} | self.unfit
        return {
            c.name: measured.get(c.name, {"correct": False, "failure": failed[c.name]})
            for c in self.contestants
        }


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
    bouts: Sequence[Bout],
    over: Callable[[int, Rows], Any],
    until: float = math.inf,
    say: Callable[[str], None] = print,
) -> None:
    """`over` is told the rows of each as it ends; their ratios are to the first contestant. None
    begins after `until` (`time.monotonic()`).

    A variant that has ended two children is not tried again while there are others.
    """
    from benchmarks.measure import measure

    left, ends = dict(enumerate(bouts)), Ends()

    def heard(_: str, held: Any) -> None:
        if held is not None:
            index, rows = held
            over(index, left.pop(index).rows(rows, Outcome("done")))

    while left and time.monotonic() <= until:
        batch = dict(list(left.items())[:PER_CHILD])
        for bout in batch.values():
            exclude_known(bout, ends)
        outcome = watched(measure, batch, until, heard=heard)
        if outcome.ok:
            continue
        at_work = next(((i, b) for i, b in batch.items() if i in left), None)
        if at_work is None:
            continue  # it died of nothing that counts
        index, bout = at_work
        say(f"{bout.problem.name}  {outcome}")
        bout.attempts += 1
        at_fault = exclude(bout.entrants, outcome)
        if at_fault is not None:
            ends.setdefault(at_fault, []).append(f"{bout.problem.name}: {outcome}")
        if at_fault is None or bout.attempts == MAX_ATTEMPTS:
            over(index, left.pop(index).rows({}, outcome))
    for bout in left.values():
        say(f"{bout.problem.name}: no time left")


def exclude_known(bout: Bout, ends: Ends) -> None:
    for entrant in bout.entrants:
        for v in entrant.fit[1:]:
            known = ends.get((entrant.name, v.name), [])
            if len(known) >= MAX_ENDS:
                entrant.failures[v.name] = f"elsewhere {known[-1]}"


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
