"""`on_miss="nearest"`: a call of a shape bucket without a compiled kernel runs the kernel of the
nearest sizes at once, while a child process compiles a better one.
"""

import atexit
import math
import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

from wsdsl.ahead.jobs import Failed, Job, current_config
from wsdsl.ahead.process import Process
from wsdsl.artifact.shape_bucket import shape_bucket
from wsdsl.background import in_background
from wsdsl.diagnostics import LaunchError, warn
from wsdsl.dispatch.compile_child import compile_job
from wsdsl.dispatch.compiled import Compiled
from wsdsl.dispatch.variants import Variants
from wsdsl.lazy import after_fork
from wsdsl.records.entry import Request
from wsdsl.runtime.arguments import Call
from wsdsl.runtime.arrays.alignment import Alignment
from wsdsl.schedule import Schedule


class Misses:
    """The compile jobs of one kernel in the background, for calls that other variants run."""

    def __init__(self, name: str, variants: Variants, text: Callable[[], str]) -> None:
        """`text` returns the kernel's text at the level TILE."""
        self.name, self._variants, self._text = name, variants, text
        self._jobs: dict[tuple[object, ...], Future[None]] = {}
        self._first: dict[tuple[object, ...], object] = {}
        """One thread starts the job of each bucket; a fork might inherit a locked lock."""
        self._warned: set[tuple[object, ...]] = set()

    def dispatch(
        self, call: Call, schedule: Schedule | None, alignment: Alignment
    ) -> tuple[Compiled, bool] | None:
        """Return the compiled kernel of a call, and whether it is that of the call's shape bucket;
        None if no compiled kernel is legal.
        """
        own = self._variants.find_bucket(schedule, call.dims, *alignment)
        if own is not None:
            return (own, True) if is_legal(own, call) else None
        near = nearest_variants(self._variants, schedule, call.dims, *alignment)
        nearest = next((c for c in near if is_legal(c, call)), None)
        if nearest is None:
            return None
        self._start_job(call, schedule, alignment)
        return nearest, False

    def _start_job(self, call: Call, schedule: Schedule | None, alignment: Alignment) -> None:
        """Start one compile job per bucket; warn once if it fails."""
        found = shape_bucket(self._variants.declaration, call.dims)
        bucket = os.getpid(), schedule, found, *alignment
        token = object()
        if self._first.setdefault(bucket, token) is token:
            given = schedule, tuple(found.sizes.items()), *alignment
            now = current_config()
            self._jobs[bucket] = in_background(lambda: self._compile(now, *given))
        job = self._jobs.get(bucket)
        failed = job.exception() if job and job.done() else None
        if failed is not None and bucket not in self._warned:
            self._warned.add(bucket)
            message = f"{self.name} could not be compiled for {found}: {failed}"
            warn(f"{message}\n  calls run kernels that are compiled for other sizes")

    def _compile(self, now: Mapping[str, Any], *given: Any) -> None:
        job = Job(self._text(), self._variants.key, *given, config=now)
        result = compile_process().run(job)
        if isinstance(result, Failed):
            raise result.error()
        self._variants.adopt_result(job, result)


def nearest_variants(
    variants: Variants, schedule: Schedule | None, sizes: Mapping[str, int], *alignment: *Alignment
) -> list[Compiled]:
    """Return the built kernels for these sizes and tensors, by increasing distance of sizes."""

    def distance(request: Request) -> float:
        return sum(abs(math.log2((1 + sizes.get(d, 0)) / (1 + n))) for d, n in request.sizes)

    like = schedule, *alignment, variants.static(tuple(sorted(sizes.items())))
    near = [
        (distance(request), request.sizes, compiled)
        for request, compiled in list(variants.choices.items())
        if compiled.is_built
        and (request.schedule, request.unaligned, request.padded, variants.static(request.sizes))
        == like
    ]
    return [compiled for *_, compiled in sorted(near, key=lambda n: n[:2])]


def is_legal(compiled: Compiled, call: Call) -> bool:
    """Check whether a kernel for the call's tensors is legal for its sizes, on its GPU."""
    from wsdsl.runtime.device import num_sms_of
    from wsdsl.runtime.launcher import num_ctas, num_slots

    signature = compiled.signature
    try:
        grid = num_ctas(signature, call.dims, num_sms_of(call.device))
        num_slots(signature, call.dims, grid)
    except LaunchError:
        return False
    return all(call.dims.get(dim) == size for dim, size in compiled.sizes)


class _Child:
    """The child process that compiles; a fork of this process starts another one."""

    process: Process | None = None
    lock = threading.Lock()


def _forked() -> None:
    if _Child.process is not None:
        _Child.process.forget()
    _Child.process, _Child.lock = None, threading.Lock()


def _close() -> None:
    if _Child.process is not None:
        _Child.process.close()


after_fork(_forked)
atexit.register(_close)


def compile_process() -> Process:
    with _Child.lock:
        if _Child.process is None:
            _Child.process = Process(compile_job)
        return _Child.process
