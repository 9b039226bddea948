"""`Kernel.precompile` and `wsdsl.precompiling`: compile all kernels that calls of given sizes, or
the calls of a block, run, in several processes.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import closing, contextmanager
from typing import Any

from wsdsl.ahead.compiling import Compiler
from wsdsl.ahead.jobs import Failed, Job
from wsdsl.ahead.progress import Bar
from wsdsl.background import num_cpus
from wsdsl.diagnostics import CompileError
from wsdsl.dispatch.variants import Variants
from wsdsl.runtime.native.launch_stub import torch_api
from wsdsl.runtime.native.recorded_launches import recorded, recorder

MOST_PREPARED = 8
"""Child processes that start before there are jobs."""


def combinations(
    name: str, dims: Sequence[str], sizes: Mapping[str, int | Iterable[int]]
) -> Iterator[dict[str, int]]:
    """All of the sizes that are given. CompileError where a dimension has none."""
    missing = [dim for dim in dims if dim not in sizes]
    if missing:
        message = f"WS1031 {name}.precompile() needs sizes for {', '.join(missing)}"
        example = ", ".join(
            f"{dim}=range(1, 4097)" if dim == dims[0] else f"{dim}=4096" for dim in dims
        )
        raise CompileError(message, hint=f"give them, as in {name}.precompile({example})")
    each = [[n] if isinstance(n, int) else [*n] for n in sizes.values()]
    for chosen in itertools.product(*each):
        yield dict(zip(sizes, chosen, strict=True))


class Batch:
    """Jobs, each for its variants, that compile from when they are added if they are not built."""

    def __init__(self, processes: int | None, executor: Executor | None) -> None:
        self._processes = processes or num_cpus()
        self._compiler = Compiler(self._processes, threading.TIMEOUT_MAX, executor=executor)
        self._jobs: dict[int, tuple[Variants, Job]] = {}
        self.close = self._compiler.close

    def prepare(self) -> None:
        """Have child processes import what compiles."""
        self._compiler.prepare(min(MOST_PREPARED, -(-self._processes // 2)))

    def add(self, variants: Variants, job: Job) -> None:
        if job.built(variants) is None:
            self._jobs[id(job)] = variants, job
            self._compiler.add(job)

    def finish(self, label: str) -> None:
        """Wait for all. Raise one error with the findings of those that failed."""
        if not self._jobs:
            return
        torch_api()  # emits native code that the calls after this need
        bar, failed = Bar(label, len(self._jobs)), list[Failed]()
        with closing(bar):
            for job, made in self._compiler.results():
                if isinstance(made, Failed):
                    failed.append(made)
                else:
                    made.adopt(*self._jobs[id(job)])
                bar.step()
        if failed:
            findings = dict.fromkeys(finding for each in failed for finding in each.findings)
            raise Failed(tuple(findings), all(each.by_schedule for each in failed)).error()


def compile_all(
    label: str,
    jobs: Iterable[tuple[Variants, Job]],
    processes: int | None = None,
    executor: Executor | None = None,
) -> None:
    """Compile the jobs that are not built."""
    with closing(Batch(processes, executor)) as batch:
        for each in jobs:
            batch.add(*each)
        batch.finish(label)


class Calls(dict[Any, tuple[Variants, Job]]):
    """The compile jobs of a block. Those of a nested block have no batch."""

    batch: Batch | None = None

    def __setitem__(self, call: Any, job: tuple[Variants, Job]) -> None:
        super().__setitem__(call, job)
        if self.batch is not None:
            self.batch.add(*job)


@contextmanager
def precompiling(
    *, processes: int | None = None, executor: Executor | None = None
) -> Generator[None]:
    """Record the kernel calls of a block, `with wsdsl.precompiling(): model(example)`, and compile
    their kernels in parallel while it runs. Its end waits for them, with a progress bar on stderr.

    Calls of this thread in the block check their arguments, allocate their results and launch
    nothing: contents of results are undefined. Each shape bucket compiles once, on a machine
    without a GPU too. A nested block adds its calls to the outer one at its end. If a block raises,
    what its calls need is not kept.

    processes: number of child processes; default: the number of CPUs.
    executor: a `concurrent.futures.Executor` that compiles in place of child processes.

    Raises CompileError or ScheduleError at the end of the block, with the findings of all kernels;
    LaunchError at a call during the capture of a CUDA graph.
    """
    calls, outer = Calls(), recorder.calls
    with closing(Batch(processes, executor)) as batch:
        if outer is None:
            calls.batch = batch
            batch.prepare()
        with recorded():
            recorder.calls = calls
            try:
                yield
            finally:
                recorder.calls = outer
        if outer is None:
            batch.finish("precompile")
        else:
            for call in [call for call in calls if call not in outer]:
                outer[call] = calls[call]
