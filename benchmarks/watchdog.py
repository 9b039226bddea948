"""Work on the GPU in a child process that must give a sign of life every `limit` seconds.

A kernel that deadlocks never returns and can not be interrupted; only the end of its process frees
the GPU. Children are forked, so that they need not import torch again: the parent must therefore
never call CUDA itself.
"""

from __future__ import annotations

import multiprocessing
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
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
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_child, args=(theirs, work, arguments))
    child.start()
    theirs.close()
    outcome = Outcome()
    try:
        _listen(ours, outcome, limit, heard)
    finally:
        if outcome.state in ("done", "raised"):
            child.join(5)
        if child.is_alive():
            child.kill()
        child.join(30)
        if outcome.state == "died":
            outcome.detail = f"exit code {child.exitcode}"
        ours.close()
    return outcome


def _listen(
    pipe: Connection, outcome: Outcome, limit: float, heard: Callable[[str, Any], None] | None
) -> None:
    while True:
        began = time.monotonic()
        if not pipe.poll(limit):
            outcome.state = "stalled"
            outcome.detail = f"no sign of life for {time.monotonic() - began:.0f} s"
            return
        try:
            kind, doing, held = pipe.recv()
        except EOFError:
            return
        if kind == "report":
            outcome.doing = doing
            if held is not None:
                outcome.results.append(held)
            if heard is not None:
                heard(doing, held)
        else:
            outcome.state = kind
            outcome.value, outcome.detail = (held, "") if kind == "done" else (None, held)
            return


def _child(pipe: Connection, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    def report(doing: str, result: Any = None) -> None:
        pipe.send(("report", doing, result))

    try:
        value = work(report, *arguments)
        pipe.send(("done", "", value))
    except BaseException:
        pipe.send(("raised", "", traceback.format_exc()))
