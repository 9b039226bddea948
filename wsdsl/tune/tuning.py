"""`Kernel.tune`: compile candidates, measure them versus the incumbent, and cache the results."""

import ctypes
import dataclasses
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from pathlib import Path

from wsdsl.ahead.compiling import compiled
from wsdsl.ahead.jobs import Built, CompileJob, Failed, Job
from wsdsl.ahead.process import Process
from wsdsl.ahead.progress import Bar
from wsdsl.artifact.artifact import Access, Artifact, Choice, Declaration
from wsdsl.artifact.serialization import Entry, from_bytes, to_bytes
from wsdsl.background import num_cpus
from wsdsl.diagnostics import ScheduleError
from wsdsl.records.entry import Request, agrees
from wsdsl.records.find_entry import key_of
from wsdsl.report.figure import require_matplotlib
from wsdsl.runtime import driver
from wsdsl.runtime.arguments import Call
from wsdsl.runtime.arrays.views import ArrayView, byte_range
from wsdsl.runtime.device import context_for, current
from wsdsl.schedule import Schedule
from wsdsl.tune import measuring_process as measuring_process
from wsdsl.tune.call_description import Argument, CallDescription
from wsdsl.tune.candidates import DEFAULT_COUNT, candidates
from wsdsl.tune.measurement_log import MeasurementLog
from wsdsl.tune.measuring_process import MeasuringProcess
from wsdsl.tune.memory import ALIGN
from wsdsl.tune.result import Trial, Tuned
from wsdsl.tune.successive_halving import SuccessiveHalving, name_of

MOST_PROCESSES = 16


@dataclasses.dataclass(frozen=True)
class TuningSetup:
    """Child processes that measure and compile, which may crash or hang, and their time limits."""

    card: str = measuring_process.CUDA
    limit: float = measuring_process.LIMIT_SECONDS
    start: Callable[[], Process] | None = None
    compile_limit: float = 60.0


DEFAULT_SETUP = TuningSetup()


@dataclasses.dataclass(frozen=True)
class TuningTask:
    """A kernel and a call of it; `today`: the artifact that the call runs now; `key`: the cache
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
    task: TuningTask,
    compile_job: CompileJob,
    *,
    seconds: float = 60.0,
    candidates: Sequence[Schedule] | int | None = None,
    progress: bool = True,
    plot: str | Path | None = None,
    executor: Executor | None = None,
    setup: TuningSetup = DEFAULT_SETUP,
) -> Tuned:
    """`candidates`: schedules, or their number. LaunchError without a GPU."""
    begin = time.monotonic()
    if plot is not None:
        require_matplotlib()
    trials = [Trial(s) for s in _schedules(task, candidates)]
    incumbent = Trial(task.today.schedule, is_incumbent=True)
    trials = [t for t in trials if t.schedule != incumbent.schedule]
    by_name = {name_of(t): t for t in (incumbent, *trials)}

    def failed(name: str, why: str) -> None:
        by_name[name].failure = why
        log.write(by_name[name])

    spec = spec_of(task.text, task.call, task.declaration.access)
    process = MeasuringProcess(spec, failed, setup.card, setup.limit)
    q, dims = task, dict(task.call.dims)
    request = Request(q.given, tuple(dims.items()), q.unaligned, q.padded)
    key = key_of(q.declaration, request)
    log = MeasurementLog(task.name, key, dims, process.about)
    try:
        halving = SuccessiveHalving(process, incumbent, log.write, time.monotonic, begin + seconds)
        process.enter(name_of(incumbent), _serialized(task))
        left = [t for t in trials if not log.recall(t, incumbent)]
        bar = Bar(f"tune {task.name}", len(left)) if progress else None
        try:
            _try_out(task, compile_job, halving, left, setup, bar, executor)
            winner = halving.finish(trials)
        finally:
            if bar:
                bar.close()
    finally:
        process.close()
    if winner is not None:
        log.choose(winner)
    tuned = Tuned(
        task.name,
        dims,
        process.about["device"],
        incumbent,
        [incumbent, *trials],
        winner,
        time.monotonic() - begin,
        sum(not t.samples and not t.failure for t in trials),
        log.notes,
    )
    if plot is not None:
        tuned.plot(plot)
    return tuned


def _schedules(task: TuningTask, wanted: Sequence[Schedule] | int | None) -> list[Schedule]:
    """Return complete schedules. ScheduleError if one is illegal, or contradicts the given one."""
    from wsdsl.ir.parser import parse_kernel
    from wsdsl.lowering.pipeline import scheduled_tile

    q, tile = task, parse_kernel(task.text)
    static = tuple((d, q.call.dims[d]) for d in q.declaration.exact_dims)
    tile = dataclasses.replace(tile, sizes=static, unaligned=q.unaligned, padded=q.padded)
    if wanted is None or isinstance(wanted, int):
        return candidates(tile, q.given, q.call.dims, DEFAULT_COUNT if wanted is None else wanted)
    found: dict[Schedule, None] = {}
    for schedule in wanted:
        whole = scheduled_tile(dataclasses.replace(tile, schedule=schedule), q.call.dims).schedule
        assert whole is not None
        if not agrees(q.given, whole):
            message = f"WS1036 the candidate {schedule!r} contradicts the given {q.given!r}"
            raise ScheduleError(message, hint="leave one of them out")
        found[whole] = None
    return list(found)


def _serialized(task: TuningTask) -> bytes:
    value = Choice(task.today.schedule), task.today
    return to_bytes(Entry(task.text, "", value))


def _try_out(
    task: TuningTask,
    compile_job: CompileJob,
    halving: SuccessiveHalving,
    trials: Sequence[Trial],
    setup: TuningSetup,
    bar: Bar | None,
    executor: Executor | None,
) -> None:
    q, sizes = task, tuple(sorted(task.call.dims.items()))
    by_schedule = {t.schedule: t for t in trials}
    jobs = [Job(q.text, q.key, t.schedule, sizes, q.unaligned, q.padded, True) for t in trials]
    processes = min(MOST_PROCESSES, num_cpus())
    limits = processes, halving.has_time, setup.compile_limit
    ready = compiled(jobs, compile_job, *limits, setup.start, executor)
    for job, result in ready:
        assert job.schedule is not None
        trial = by_schedule[job.schedule]
        fault = _fault(trial, q.text, result)
        if fault:
            trial.failure = fault
        elif halving.has_time():
            assert isinstance(result, Built)
            halving.try_out(trial, result.entry)
        if bar:
            best = min((t.ratio for t in trials if t.samples and not t.failure), default=1.0)
            bar.step(f"fastest {100 * (best - 1):+.1f} % versus the current schedule")
        if not halving.has_time():
            break
    ready.close()


def _fault(trial: Trial, text: str, result: Built | Failed) -> str:
    if isinstance(result, Failed):
        return result.findings[0].message
    choice: Choice = from_bytes(text, result.entry).value[0]
    if choice.schedule != trial.schedule:
        return choice.notes[0] if choice.notes else "replaced by another schedule"
    return ""


MAX_DATA_BYTES = 256 << 20


def spec_of(text: str, call: Call, access: Access) -> CallDescription:
    """Describe a call. Integers of 16 bits and more that are only read may be indices and bounds,
    which determine the work: their contents are copied, and no others.
    """
    arguments: list[Argument] = []
    for name, view in call.views.items():
        is_read, is_written = name not in access.only_written, name in access.writes
        is_index = view.dtype.kind in ("int", "uint") and view.dtype.bits >= 16
        data = _index_data(view) if is_index and is_read and not is_written else None
        layout = view.dtype.name, view.shape, view.strides, view.pointer % ALIGN
        arguments.append(Argument(name, *layout, is_read, is_written, data, view.packed))
    index = next((v.device_index for v in call.views.values() if v.on_gpu), 0)
    return CallDescription(text, tuple(arguments), dict(call.scalars), dict(call.dims), index)


def _index_data(view: ArrayView) -> bytes | None:
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
