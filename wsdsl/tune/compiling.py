"""Candidates compiled by several processes, each given as soon as it is there."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator, Sequence

from wsdsl.ahead.jobs import Failed, Job, Made
from wsdsl.ahead.process import Process
from wsdsl.diagnostics import Finding

LIMIT_SECONDS = 60.0
"""A compile that takes longer is ended, with its process."""

POLL_SECONDS = 0.2


def compiled(
    jobs: Sequence[Job],
    processes: int,
    goes_on: Callable[[], bool] = lambda: True,
    limit: float = LIMIT_SECONDS,
    start: Callable[[], Process] = Process,
) -> Generator[tuple[Job, Made | Failed]]:
    """Yield results in the order of completion, while `goes_on`. Closing the generator ends the
    compiles in flight.
    """
    left, ready = list(reversed(jobs)), queue.Queue[tuple[Job, Made | Failed]]()
    lock, children = threading.Lock(), list[Process]()

    def work() -> None:
        child: Process | None = None
        while True:
            with lock:
                job = left.pop() if left else None
                if job is None:
                    return
                if child is None:
                    child = start()
                    children.append(child)
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

    threads = [threading.Thread(target=work, daemon=True) for _ in range(min(processes, len(jobs)))]
    for thread in threads:
        thread.start()
    try:
        given = 0
        while given < len(jobs) and goes_on():
            try:
                found = ready.get(timeout=POLL_SECONDS)
            except queue.Empty:
                continue
            given += 1
            yield found
    finally:
        with lock:
            left.clear()
            for child in children:
                child.close()
