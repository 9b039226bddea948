"""Compile jobs in child processes or in an executor; yield each result as soon as it is ready."""

import queue
import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Executor, Future
from contextlib import closing
from dataclasses import replace
from functools import partial

from wsdsl.ahead.jobs import Built, CompileJob, Failed, Job
from wsdsl.ahead.process import Process
from wsdsl.diagnostics import Finding

LIMIT_SECONDS = 60.0
"""A child process whose compile takes longer is killed."""

POLL_SECONDS = 0.2
MAX_FORKED = 4
"""Maximum number of processes per job; ptxas takes as long as the rest with four."""
Ready = queue.Queue[tuple[Job, Built | Failed]]


def compiled(
    jobs: Sequence[Job],
    compile_job: CompileJob,
    processes: int,
    goes_on: Callable[[], bool] = lambda: True,
    limit: float = LIMIT_SECONDS,
    start: Callable[[], Process] | None = None,
    executor: Executor | None = None,
) -> Generator[tuple[Job, Built | Failed]]:
    """Yield results in the order in which they are ready, while it `goes_on`; closing the generator
    cancels the rest. `compile_job` runs in processes that `start` returns, or in an `executor`, to
    which the limit does not apply.
    """
    with closing(Compiler(compile_job, processes, limit, start, executor)) as compiler:
        for job in jobs:
            compiler.add(job)
        yield from compiler.results(goes_on)


class Compiler:
    """Compiles each job as soon as it is added, in at most `processes` child processes."""

    def __init__(
        self,
        compile_job: CompileJob,
        processes: int,
        limit: float,
        start: Callable[[], Process] | None = None,
        executor: Executor | None = None,
    ) -> None:
        self._compile_job, self._processes, self._limit = compile_job, processes, limit
        self._start, self._executor = start or partial(Process, compile_job), executor
        self._left, self._ready = queue.SimpleQueue[Job | None](), Ready()
        self._ends, self._lock = list[Callable[[], object]](), threading.Lock()
        self._num_added = self._num_done = self._num_threads = 0
        self._is_closed = False

    def add(self, job: Job) -> None:
        self._num_added += 1
        if self._executor is None:
            self._left.put(job)
            self.prepare(self._num_added)
        else:
            try:
                future = self._executor.submit(self._compile_job, job)
            except RuntimeError as error:  # it is shut down
                future = Future[Built | Failed]()
                future.set_exception(error)
            self._ends.append(future.cancel)
            future.add_done_callback(partial(self._report, job))

    def prepare(self, num: int) -> None:
        """Start child processes before there are jobs for them, until there are `num`."""
        while self._executor is None and self._num_threads < min(num, self._processes):
            self._num_threads += 1
            threading.Thread(target=self._work, daemon=True).start()

    def results(
        self, goes_on: Callable[[], bool] = lambda: True
    ) -> Generator[tuple[Job, Built | Failed]]:
        """Yield the results of the jobs added so far, while it `goes_on`."""
        num_yielded = 0
        while num_yielded < self._num_added and goes_on():
            try:
                item = self._ready.get(timeout=POLL_SECONDS)
            except queue.Empty:
                continue
            num_yielded += 1
            yield item

    def close(self) -> None:
        """Cancel unfinished jobs."""
        with self._lock:
            self._is_closed = True
            for end in self._ends:
                end()
        for _ in range(self._num_threads):
            self._left.put(None)

    def _work(self) -> None:
        child = self._child()
        while (job := self._left.get()) is not None:
            if isinstance(child, Failed) or child.ended:
                child = self._child()
            result = child if isinstance(child, Failed) else self._run(child, job)
            self._num_done += 1
            self._ready.put((job, result))

    def _child(self) -> Process | Failed:
        with self._lock:
            if self._is_closed:
                return Failed(())
            try:
                child = self._start()
            except OSError as error:
                message = f"WS1142 no compiling process could be started: {error}"
                return Failed((Finding(message),))
            self._ends.append(child.close)
            return child

    def _run(self, child: Process, job: Job) -> Built | Failed:
        watchdog = threading.Timer(self._limit, child.close)
        watchdog.start()
        idle = self._processes // max(1, self._num_added - self._num_done)
        result = child.run(replace(job, num_processes=max(1, min(idle, MAX_FORKED))))
        hung = not watchdog.is_alive()
        watchdog.cancel()
        if hung:
            result = Failed((Finding(f"WS1035 compilation exceeded {self._limit:.0f} s"),))
        return result

    def _report(self, job: Job, future: Future[Built | Failed]) -> None:
        try:
            result = future.result()
        except Exception as error:
            message = f"WS1141 the executor did not compile: {type(error).__name__}: {error}"
            result = Failed((Finding(message),))
        self._ready.put((job, result))
