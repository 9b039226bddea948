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

from wsdsl.ahead.compiling import compiled
from wsdsl.ahead.jobs import Failed, Job
from wsdsl.ahead.progress import Bar
from wsdsl.background import num_cpus
from wsdsl.diagnostics import CompileError
from wsdsl.runtime.repeated_calls import recorder
from wsdsl.variants import Variants


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


def compile_all(
    label: str,
    jobs: Sequence[tuple[Variants, Job]],
    processes: int | None = None,
    executor: Executor | None = None,
) -> None:
    """Compile the jobs that are not built, each for its variants. When all are complete, raise one
    error with the findings of those that failed.
    """
    owners = {id(job): variants for variants, job in jobs if job.built(variants) is None}
    left, failed = [job for _, job in jobs if id(job) in owners], list[Failed]()
    if not left:
        return
    num, bar = processes or num_cpus(), Bar(label, len(left))
    each = compiled(left, num, limit=threading.TIMEOUT_MAX, executor=executor)
    with closing(bar), closing(each):
        for job, made in each:
            if isinstance(made, Failed):
                failed.append(made)
            else:
                made.adopt(owners[id(job)], job)
            bar.step()
    if failed:
        findings = dict.fromkeys(finding for each in failed for finding in each.findings)
        raise Failed(tuple(findings), all(each.by_schedule for each in failed)).error()


@contextmanager
def precompiling(
    *, processes: int | None = None, executor: Executor | None = None
) -> Generator[None]:
    """Record the kernel calls of a block, `with wsdsl.precompiling(): model(example)`, and compile
    their kernels in parallel at its end, with a progress bar on stderr.

    Calls of this thread in the block check their arguments, allocate their results and launch
    nothing: contents of results are undefined. Each shape bucket compiles once, on a machine
    without a GPU too. A nested block adds its calls to the outer one. If the block raises, nothing
    compiles.

    processes: number of child processes; default: the number of CPUs.
    executor: a `concurrent.futures.Executor` that compiles in place of child processes.

    Raises CompileError or ScheduleError at the end of the block, with the findings of all kernels;
    LaunchError at a call during the capture of a CUDA graph.
    """
    calls: dict[Any, tuple[Variants, Job]] = {}
    outer = recorder.launches, recorder.calls
    recorder.launches, recorder.calls = [], calls
    try:
        yield
    finally:
        recorder.launches, recorder.calls = outer
    if recorder.calls is None:
        compile_all("precompile", list(calls.values()), processes, executor)
    else:
        recorder.calls |= calls
