"""Compile batches of jobs in several processes, for `Kernel.precompile` and `precompiling`."""

import itertools
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import closing

from wsdsl.ahead.compiling import Compiler
from wsdsl.ahead.jobs import CompileJob, Failed, Job, Variants
from wsdsl.ahead.progress import Bar
from wsdsl.background import num_cpus
from wsdsl.diagnostics import CompileError
from wsdsl.runtime.native.launch_stub import torch_api

MOST_PREPARED = 8
"""Child processes that start before there are jobs."""


def combinations(
    name: str, dims: Sequence[str], sizes: Mapping[str, int | Iterable[int]]
) -> Iterator[dict[str, int]]:
    """Yield the product of the given sizes. CompileError if a dimension has none."""
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
    """Jobs with their variants, which compile as soon as they are added, if they are not built."""

    def __init__(
        self, compile_job: CompileJob, processes: int | None, executor: Executor | None
    ) -> None:
        self._processes = processes or num_cpus()
        limits = self._processes, threading.TIMEOUT_MAX
        self._compiler = Compiler(compile_job, *limits, executor=executor)
        self._jobs: dict[int, tuple[Variants, Job]] = {}
        self.close = self._compiler.close

    def prepare(self) -> None:
        """Start child processes, which import the compiler."""
        self._compiler.prepare(min(MOST_PREPARED, -(-self._processes // 2)))

    def add(self, variants: Variants, job: Job) -> None:
        if not variants.is_built(job):
            self._jobs[id(job)] = variants, job
            self._compiler.add(job)

    def finish(self, label: str) -> None:
        """Wait for all jobs. Raise one error with the findings of the failed jobs."""
        if not self._jobs:
            return
        torch_api()  # emits native code for the calls that follow
        bar, failed = Bar(label, len(self._jobs)), list[Failed]()
        with closing(bar):
            for job, result in self._compiler.results():
                if isinstance(result, Failed):
                    failed.append(result)
                else:
                    variants, job = self._jobs[id(job)]
                    variants.adopt_result(job, result)
                bar.step()
        if failed:
            findings = dict.fromkeys(finding for each in failed for finding in each.findings)
            raise Failed(tuple(findings), all(each.by_schedule for each in failed)).error()


def compile_all(
    label: str,
    jobs: Iterable[tuple[Variants, Job]],
    compile_job: CompileJob,
    processes: int | None = None,
    executor: Executor | None = None,
) -> None:
    """Compile the jobs that are not built."""
    with closing(Batch(compile_job, processes, executor)) as batch:
        for each in jobs:
            batch.add(*each)
        batch.finish(label)
