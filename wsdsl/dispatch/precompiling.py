"""`wsdsl.precompiling`: compile the kernels of all calls in a block while the block runs."""

from collections.abc import Generator
from concurrent.futures import Executor
from contextlib import closing, contextmanager
from typing import Any

from wsdsl.ahead.jobs import Job, Variants
from wsdsl.ahead.precompile import Batch
from wsdsl.dispatch.compile_child import compile_job
from wsdsl.runtime.native.recorded_launches import recorded, recorder


class Calls(dict[Any, tuple[Variants, Job]]):
    """The compile jobs of a block. A nested block has no batch."""

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
    with closing(Batch(compile_job, processes, executor)) as batch:
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
