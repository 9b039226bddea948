"""`Kernel.precompile`: compile all kernels that calls of given sizes run, in several processes."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence

from wsdsl.ahead.jobs import Failed, Job
from wsdsl.ahead.process import Process
from wsdsl.ahead.progress import Bar
from wsdsl.background import num_cpus
from wsdsl.diagnostics import CompileError, WsdslError
from wsdsl.records.row import Asked
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
    name: str, variants: Variants, text: str, every: Sequence[Asked], processes: int | None = None
) -> None:
    """What is not at hand; `variants` has it from then on. `text`: of the TILE kernel. When all are
    done, the error of the first that failed.
    """
    jobs = [
        Job(text, variants.key, *asked[:4], exact=True, shared=asked.shared)
        for asked in every
        if variants.at_hand(asked) is None
    ]
    if not jobs:
        return
    num = min(processes or num_cpus(), len(jobs))
    left, errors, lock = list(reversed(jobs)), list[WsdslError](), threading.Lock()
    bar, children = Bar(f"precompile {name}", len(jobs)), list[Process]()

    def work(child: Process) -> None:
        while True:
            with lock:
                job = left.pop() if left else None
            if job is None:
                return
            made = child.run(job)
            with lock:
                if isinstance(made, Failed):
                    errors.append(made.error())
                else:
                    made.adopt(variants, job)
                bar.step()

    try:
        children += (Process() for _ in range(num))
        threads = [threading.Thread(target=work, args=(c,), daemon=True) for c in children]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        # Also where the user breaks off.
        left.clear()
        for child in children:
            child.close()
        bar.close()
    if errors:
        raise errors[0]
