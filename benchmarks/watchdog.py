"""Work on the GPU in a child process that must give a sign of life every `limit` seconds.

A kernel that deadlocks never returns and can not be interrupted; only the end of its process frees
the GPU. Children are forked, so that they need not import torch again: the parent must therefore
never call CUDA itself.
"""

from __future__ import annotations

import multiprocessing
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any, Literal, Protocol

LIMIT_SECONDS = 20.0


class Report(Protocol):
    """Called by the child: what it does now, and any result that should outlive it."""

    def __call__(self, doing: str, result: Any = None) -> None: ...


@dataclass
class Outcome:
    """How a child ended; `results` holds what it reported, `doing` what it last said it did."""

    state: Literal["done", "raised", "died", "stalled"] = "died"
    doing: str = "start"
    value: Any = None
    detail: str = ""
    results: list[Any] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return self.state == "done"

    def __str__(self) -> str:
        if self.ok:
            return "done"
        last = self.detail.strip().splitlines()[-1] if self.detail else ""
        return f"{self.state} at: {self.doing}" + (f" ({last})" if last else "")


def watched(
    work: Callable[..., Any],
    *arguments: Any,
    limit: float = LIMIT_SECONDS,
    heard: Callable[[str, Any], None] | None = None,
) -> Outcome:
    """`work(report, *arguments)` in a child; `heard` is told each report as it comes."""
    child = Child(work, arguments, limit, heard)
    try:
        while child.running:
            child.listen()
    finally:
        child.end()
    return child.outcome


def watched_all(
    works: Sequence[Callable[..., Any]], workers: int, limit: float = LIMIT_SECONDS
) -> list[Outcome]:
    """Each `work(report)` in a child of its own, `workers` at a time.

    All are forked by this thread: a fork beside other threads may copy a lock that one holds.
    """
    outcomes: dict[int, Outcome] = {}
    running: dict[int, Child] = {}
    try:
        while len(outcomes) < len(works):
            for index in range(len(outcomes) + len(running), len(works)):
                if len(running) == workers:
                    break
                running[index] = Child(works[index], (), limit)
            wait([child.pipe for child in running.values()], timeout=1.0)
            for index, child in list(running.items()):
                child.listen(timeout=0.0)
                if not child.running:
                    child.end()
                    outcomes[index] = running.pop(index).outcome
    finally:
        for child in running.values():
            child.end()
    return [outcomes[index] for index in range(len(works))]


class Child:
    """A process at work, and what is known of it."""

    def __init__(
        self,
        work: Callable[..., Any],
        arguments: tuple[Any, ...],
        limit: float,
        heard: Callable[[str, Any], None] | None = None,
    ) -> None:
        context = multiprocessing.get_context("fork")
        self.pipe, theirs = context.Pipe(duplex=False)
        self._process = context.Process(target=_child, args=(theirs, work, arguments))
        self._process.start()
        theirs.close()
        self._limit, self._heard = limit, heard
        self._last = time.monotonic()
        self.outcome, self.running = Outcome(), True

    def listen(self, timeout: float | None = None) -> None:
        """Take one report, waiting for it until the limit or no longer than `timeout`."""
        left = self._last + self._limit - time.monotonic()
        if not self.pipe.poll(max(0.0, left if timeout is None else min(left, timeout))):
            silence = time.monotonic() - self._last
            if silence >= self._limit:
                self.outcome.state, self.running = "stalled", False
                self.outcome.detail = f"no sign of life for {silence:.0f} s"
            return
        self._last = time.monotonic()
        try:
            kind, doing, held = self.pipe.recv()
        except EOFError:
            self.running = False
            return
        if kind == "report":
            self.outcome.doing = doing
            if held is not None:
                self.outcome.results.append(held)
            if self._heard is not None:
                self._heard(doing, held)
        else:
            self.outcome.state, self.running = kind, False
            self.outcome.value, self.outcome.detail = (held, "") if kind == "done" else (None, held)

    def end(self) -> None:
        """Leave no process behind."""
        if self.outcome.state in ("done", "raised"):
            self._process.join(5)
        if self._process.is_alive():
            self._process.kill()
        self._process.join(30)
        if self.outcome.state == "died":
            self.outcome.detail = f"exit code {self._process.exitcode}"
        self.pipe.close()


def _child(pipe: Connection, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    def report(doing: str, result: Any = None) -> None:
        pipe.send(("report", doing, result))

    try:
        value = work(report, *arguments)
        pipe.send(("done", "", value))
    except BaseException:
        pipe.send(("raised", "", traceback.format_exc()))
