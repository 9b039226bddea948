"""`on_miss="nearest"`: a call of a class of sizes that nothing is compiled for is served at once by
what is compiled for the nearest sizes, while a process beside this one compiles what is better.
"""

from __future__ import annotations

import atexit
import math
import os
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from wsdsl.ahead.jobs import Failed, Job, current_config
from wsdsl.ahead.process import Process
from wsdsl.artifact.shape_bucket import shape_bucket
from wsdsl.background import in_background
from wsdsl.diagnostics import LaunchError, warn
from wsdsl.dispatch.compile_child import compile_job
from wsdsl.dispatch.compiled import Compiled
from wsdsl.dispatch.variants import Variants
from wsdsl.records.entry import Asked
from wsdsl.runtime.arguments import Call
from wsdsl.runtime.arrays.alignment import Alignment
from wsdsl.schedule import Schedule

if TYPE_CHECKING:
    from concurrent.futures import Future
from wsdsl.lazy import after_fork


class Misses:
    """Of one kernel: what is being compiled for calls that others serve."""

    def __init__(self, name: str, variants: Variants, text: Callable[[], str]) -> None:
        """`text`: of the kernel at the level TILE."""
        self.name, self._variants, self._text = name, variants, text
        self._asked: dict[tuple[object, ...], Future[None]] = {}
        self._first: dict[tuple[object, ...], object] = {}
        """Of threads that want the same one asks for it; a lock might be held in a fork."""
        self._told: set[tuple[object, ...]] = set()

    def served(
        self, call: Call, schedule: Schedule | None, alignment: Alignment
    ) -> tuple[Compiled, bool] | None:
        """What runs the call, and whether that is what its class is compiled to; None where nothing
        can that is compiled.
        """
        own = self._variants.found(schedule, call.dims, *alignment)
        if own is not None:
            return (own, True) if is_legal(own, call) else None
        near = alike(self._variants, schedule, call.dims, *alignment)
        nearest = next((c for c in near if is_legal(c, call)), None)
        if nearest is None:
            return None
        self._ask(call, schedule, alignment)
        return nearest, False

    def _ask(self, call: Call, schedule: Schedule | None, alignment: Alignment) -> None:
        """Have it compiled, once; tell, once, that this failed."""
        found = shape_bucket(self._variants.declaration, call.dims)
        asked = os.getpid(), schedule, found, *alignment
        mine = object()
        if self._first.setdefault(asked, mine) is mine:
            given = schedule, tuple(found.sizes.items()), *alignment
            now = current_config()
            self._asked[asked] = in_background(lambda: self._compile(now, *given))
        job = self._asked.get(asked)
        failed = job.exception() if job and job.done() else None
        if failed is not None and asked not in self._told:
            self._told.add(asked)
            told = f"{self.name} could not be compiled for {found}: {failed}"
            warn(f"{told}\n  calls run kernels that are compiled for other sizes")

    def _compile(self, now: Mapping[str, Any], *given: Any) -> None:
        job = Job(self._text(), self._variants.key, *given, config=now)
        made = beside().run(job)
        if isinstance(made, Failed):
            raise made.error()
        self._variants.adopt_result(job, made)


def alike(
    variants: Variants, schedule: Schedule | None, sizes: Mapping[str, int], *alignment: *Alignment
) -> list[Compiled]:
    """What is made and takes these sizes and tensors, the one for the nearest sizes first."""

    def distance(asked: Asked) -> float:
        return sum(abs(math.log2((1 + sizes.get(d, 0)) / (1 + n))) for d, n in asked.sizes)

    like = schedule, *alignment, variants.static(tuple(sorted(sizes.items())))
    near = [
        (distance(asked), asked.sizes, compiled)
        for asked, compiled in list(variants.choices.items())
        if compiled.is_built
        and (asked.schedule, asked.unaligned, asked.padded, variants.static(asked.sizes)) == like
    ]
    return [compiled for *_, compiled in sorted(near, key=lambda n: n[:2])]


def is_legal(compiled: Compiled, call: Call) -> bool:
    """Whether a kernel that takes the call's tensors takes its sizes too, on its GPU."""
    from wsdsl.runtime.device import num_sms_of
    from wsdsl.runtime.launcher import num_ctas, num_slots

    signature = compiled.signature
    try:
        grid = num_ctas(signature, call.dims, num_sms_of(call.device))
        num_slots(signature, call.dims, grid)
    except LaunchError:
        return False
    return all(call.dims.get(dim) == size for dim, size in compiled.sizes)


class _Own:
    """The process that compiles for this one. A fork of this one starts its own."""

    process: Process | None = None
    lock = threading.Lock()


def _forked() -> None:
    if _Own.process is not None:
        _Own.process.forget()
    _Own.process, _Own.lock = None, threading.Lock()


def _close() -> None:
    if _Own.process is not None:
        _Own.process.close()


after_fork(_forked)
atexit.register(_close)


def beside() -> Process:
    with _Own.lock:
        if _Own.process is None:
            _Own.process = Process(compile_job)
        return _Own.process
