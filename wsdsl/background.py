"""Calls in daemon threads, which do not keep a process from ending, and in forks."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from functools import cache, partial
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Future

T = TypeVar("T")
FORK_SECONDS = 60
"""A fork that takes longer ends; its call is repeated in the process."""
num_processes = ContextVar("num_processes", default=1)
"""Processes among which calls may be spread, this one included. It must have no other threads."""


def in_background(call: Callable[[], Any]) -> Future[Any]:
    from concurrent.futures import Future

    future = Future[Any]()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def in_fork(call: Callable[[], T]) -> Callable[[], T]:
    """Start a call in a fork, if `num_processes` permits; return a function that waits for the
    result. A call that fails in the fork is repeated in this process, which raises its error.
    """
    if num_processes.get() < 2 or not hasattr(os, "fork"):
        return call
    import pickle
    import signal

    reader, writer = os.pipe()
    if (pid := os.fork()) == 0:
        try:
            signal.alarm(FORK_SECONDS)
            gc.disable()
            num_processes.set(1)
            with open(writer, "wb") as pipe:
                pickle.dump(call(), pipe)
            os._exit(0)
        finally:
            os._exit(1)
    os.close(writer)

    @cache
    def answer() -> bytes:
        with open(reader, "rb") as pipe:
            data = pipe.read()
        return b"" if os.waitpid(pid, 0)[1] else data

    return lambda: pickle.loads(answer()) if answer() else call()


def spread(call: Callable[[Any], T], items: Sequence[Any]) -> list[T]:
    """Map a function over items, in as many processes as `num_processes` permits."""
    num = max(1, min(num_processes.get(), len(items)))
    parts = [partial(lambda part: [call(x) for x in part], items[at::num]) for at in range(num)]
    waits = [in_fork(part) for part in parts[1:]]
    found = [parts[0](), *[wait() for wait in waits]]
    return [found[at % num][at // num] for at in range(len(items))]


def num_cpus() -> int:
    """Of those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
