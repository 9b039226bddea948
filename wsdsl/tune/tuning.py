"""`Kernel.tune`: compile candidates, measure them versus the incumbent, and cache the results."""

from __future__ import annotations

import ctypes
import dataclasses
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from wsdsl.ahead.compiling import compiled
from wsdsl.ahead.jobs import Built, CompileJob, Failed, Job
from wsdsl.ahead.process import Process
from wsdsl.ahead.progress import Bar
from wsdsl.artifact.artifact import Access, Artifact, Choice, Declaration
from wsdsl.artifact.serialization import Entry, from_bytes, to_bytes
from wsdsl.background import num_cpus
from wsdsl.diagnostics import ScheduleError
from wsdsl.records.entry import Asked, agrees
from wsdsl.records.find_entry import key_of
from wsdsl.report.figure import require_matplotlib
from wsdsl.runtime import driver
from wsdsl.runtime.arguments import Call
from wsdsl.runtime.arrays.views import ArrayView, byte_range
from wsdsl.runtime.device import context_for, current
from wsdsl.schedule import Schedule
from wsdsl.tune import measuring_process as arenas
from wsdsl.tune.call_description import Argument, Spec
from wsdsl.tune.candidates import USUAL, candidates
from wsdsl.tune.measurement_log import Keeping
from wsdsl.tune.measuring_process import Arena
from wsdsl.tune.memory import ALIGN
from wsdsl.tune.result import Trial, Tuned
from wsdsl.tune.successive_halving import Race, name_of

if TYPE_CHECKING:
    from concurrent.futures import Executor

MOST_PROCESSES = 16


@dataclasses.dataclass(frozen=True)
class Means:
    """How it is done: other processes measure and compile, so that neither costs more than itself
    when it crashes or hangs.
    """

    card: str = arenas.CUDA
    limit: float = arenas.LIMIT_SECONDS
    start: Callable[[], Process] | None = None
    compile_limit: float = 60.0


USUAL_MEANS = Means()


@dataclasses.dataclass(frozen=True)
class Question:
    """A kernel and a call of it; `today`: the artifact that such calls run now; `key`: the cache
    key of the source.
    """

    name: str
    declaration: Declaration
    key: str | None
    text: str
    call: Call
    given: Schedule | None
    unaligned: tuple[str, ...]
    padded: tuple[str, ...]
    today: Artifact


def tune(
    question: Question,
    compile_job: CompileJob,
    *,
    seconds: float = 60.0,
    candidates: Sequence[Schedule] | int | None = None,
    progress: bool = True,
    plot: str | Path | None = None,
    executor: Executor | None = None,
    means: Means = USUAL_MEANS,
) -> Tuned:
    """`candidates`: schedules, or their number. LaunchError without a GPU."""
    begin = time.monotonic()
    if plot is not None:
        require_matplotlib()
    trials = [Trial(s) for s in _schedules(question, candidates)]
    incumbent = Trial(question.today.schedule, is_incumbent=True)
    trials = [t for t in trials if t.schedule != incumbent.schedule]
    by_name = {name_of(t): t for t in (incumbent, *trials)}

    def failed(name: str, why: str) -> None:
        by_name[name].failure = why
        keeping.write(by_name[name])

    spec = spec_of(question.text, question.call, question.declaration.access)
    arena = Arena(spec, failed, means.card, means.limit)
    q, dims = question, dict(question.call.dims)
    asked = Asked(q.given, tuple(dims.items()), q.unaligned, q.padded)
    key = key_of(q.declaration, asked)
    keeping = Keeping(question.name, key, dims, arena.about)
    try:
        race = Race(arena, incumbent, keeping.write, time.monotonic, begin + seconds)
        arena.enter(name_of(incumbent), _kept(question))
        left = [t for t in trials if not keeping.recall(t, incumbent)]
        bar = Bar(f"tune {question.name}", len(left)) if progress else None
        try:
            _try_out(question, compile_job, race, left, means, bar, executor)
            winner = race.finish(trials)
        finally:
            if bar:
                bar.close()
    finally:
        arena.close()
    if winner is not None:
        keeping.choose(winner)
    tuned = Tuned(
        question.name,
        dims,
        arena.about["device"],
        incumbent,
        [incumbent, *trials],
        winner,
        time.monotonic() - begin,
        sum(not t.samples and not t.failure for t in trials),
        keeping.notes,
    )
    if plot is not None:
        tuned.plot(plot)
    return tuned


def _schedules(question: Question, asked: Sequence[Schedule] | int | None) -> list[Schedule]:
    """Whole ones. ScheduleError for one that does not fit the kernel, or what is given."""
    from wsdsl.ir.parser import parse_kernel
    from wsdsl.lowering.pipeline import scheduled_tile

    q, tile = question, parse_kernel(question.text)
    static = tuple((d, q.call.dims[d]) for d in q.declaration.exact_dims)
    tile = dataclasses.replace(tile, sizes=static, unaligned=q.unaligned, padded=q.padded)
    if asked is None or isinstance(asked, int):
        return candidates(tile, q.given, q.call.dims, USUAL if asked is None else asked)
    found: dict[Schedule, None] = {}
    for schedule in asked:
        whole = scheduled_tile(dataclasses.replace(tile, schedule=schedule), q.call.dims).schedule
        assert whole is not None
        if not agrees(q.given, whole):
            message = f"WS1036 the candidate {schedule!r} contradicts the given {q.given!r}"
            raise ScheduleError(message, hint="leave one of them out")
        found[whole] = None
    return list(found)


def _kept(question: Question) -> bytes:
    held = Choice(question.today.schedule), question.today
    return to_bytes(Entry(question.text, "", held))


def _try_out(
    question: Question,
    compile_job: CompileJob,
    race: Race,
    trials: Sequence[Trial],
    means: Means,
    bar: Bar | None,
    executor: Executor | None,
) -> None:
    q, sizes = question, tuple(sorted(question.call.dims.items()))
    by_schedule = {t.schedule: t for t in trials}
    jobs = [Job(q.text, q.key, t.schedule, sizes, q.unaligned, q.padded, True) for t in trials]
    processes = min(MOST_PROCESSES, num_cpus())
    limits = processes, race.has_time, means.compile_limit
    ready = compiled(jobs, compile_job, *limits, means.start, executor)
    for job, made in ready:
        assert job.schedule is not None
        trial = by_schedule[job.schedule]
        fault = _fault(trial, q.text, made)
        if fault:
            trial.failure = fault
        elif race.has_time():
            assert isinstance(made, Built)
            race.try_out(trial, made.entry)
        if bar:
            best = min((t.ratio for t in trials if t.samples and not t.failure), default=1.0)
            bar.step(f"fastest {100 * (best - 1):+.1f} % versus the current schedule")
        if not race.has_time():
            break
    ready.close()


def _fault(trial: Trial, text: str, made: Built | Failed) -> str:
    if isinstance(made, Failed):
        return made.findings[0].message
    choice: Choice = from_bytes(text, made.entry).value[0]
    if choice.schedule != trial.schedule:
        return choice.notes[0] if choice.notes else "replaced by another schedule"
    return ""


MAX_DATA_BYTES = 256 << 20


def spec_of(text: str, call: Call, access: Access) -> Spec:
    """Integers of 16 bits and more that are only read may be indices and bounds, which say how much
    work there is: they are copied, if they are there. Nothing else of the arrays is looked at.
    """
    arguments: list[Argument] = []
    for name, view in call.views.items():
        is_read, is_written = name not in access.only_written, name in access.writes
        is_index = view.dtype.kind in ("int", "uint") and view.dtype.bits >= 16
        data = _held(view) if is_index and is_read and not is_written else None
        layout = view.dtype.name, view.shape, view.strides, view.pointer % ALIGN
        arguments.append(Argument(name, *layout, is_read, is_written, data, view.packed))
    index = next((v.device_index for v in call.views.values() if v.on_gpu), 0)
    return Spec(text, tuple(arguments), dict(call.scalars), dict(call.dims), index)


def _held(view: ArrayView) -> bytes | None:
    low, high = byte_range(view)
    if not view.pointer or high - low > MAX_DATA_BYTES:
        return None
    if not view.on_gpu:
        return ctypes.string_at(low, high - low)
    data = bytearray(high - low)
    with current(context_for(view.device_index)):
        driver.call("cuCtxSynchronize")
        driver.call("cuMemcpyDtoH", data, low, len(data))
    return bytes(data)
