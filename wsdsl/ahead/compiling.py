"""Compile jobs in child processes or in an executor; yield each result as soon as it is ready."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Executor, Future
from functools import partial

from wsdsl.ahead.jobs import Failed, Job, Made, run
from wsdsl.ahead.process import Process
from wsdsl.diagnostics import Finding

LIMIT_SECONDS = 60.0
"""A child process whose compile takes longer is killed."""

POLL_SECONDS = 0.2
Ready = queue.Queue[tuple[Job, Made | Failed]]


def compiled(
    jobs: Sequence[Job],
    processes: int,
    goes_on: Callable[[], bool] = lambda: True,
    limit: float = LIMIT_SECONDS,
    start: Callable[[], Process] = Process,
    executor: Executor | None = None,
) -> Generator[tuple[Job, Made | Failed]]:
    """Yield results in the order in which they are ready, while it `goes_on`; closing the generator
    cancels the rest. An `executor` replaces the processes; the limit does not apply to it.
    """
    ready, ends = Ready(), list[Callable[[], object]]()
    left, lock = list(reversed(jobs)), threading.Lock()

    def work() -> None:
        child: Process | None = None
        while True:
            with lock:
                job = left.pop() if left else None
                if job is None:
                    return
                if child is None:
                    try:
                        child = start()
                    except OSError as error:
                        message = f"WS1142 no compiling process could be started: {error}"
                        ready.put((job, Failed((Finding(message),))))
                        continue
                    ends.append(child.close)
            watchdog = threading.Timer(limit, child.close)
            watchdog.start()
            made = child.run(job)
            hung = not watchdog.is_alive()
            watchdog.cancel()
            if hung:
                made = Failed((Finding(f"WS1035 compilation exceeded {limit:.0f} s"),))
            if child.ended:
                child = None
            ready.put((job, made))

    try:
        if executor is None:
            for _ in range(min(processes, len(jobs))):
                threading.Thread(target=work, daemon=True).start()
        else:
            for job in jobs:
                future = executor.submit(run, job)
                ends.append(future.cancel)
                future.add_done_callback(partial(_report, ready, job))
        num_yielded = 0
        while num_yielded < len(jobs) and goes_on():
            try:
                found = ready.get(timeout=POLL_SECONDS)
            except queue.Empty:
                continue
            num_yielded += 1
            yield found
    finally:
        with lock:
            left.clear()
            for end in ends:
                end()


def _report(ready: Ready, job: Job, future: Future[Made | Failed]) -> None:
    try:
        made = future.result()
    except Exception as error:
        message = f"WS1141 the executor did not compile: {type(error).__name__}: {error}"
        made = Failed((Finding(message),))
    ready.put((job, made))
