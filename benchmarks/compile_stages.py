"""Where the time of compiling gemm to PTX and proving it goes, each time in a process of its own.

python -m benchmarks.compile_stages
python -m benchmarks.compile_stages --beside FOLDER    # a warm compile beside that of a checkout

Stages are CPU time, once imports are done (these stand in front). The passes are run once here;
"to PTX, as asked for" is what `Kernel` does with them, in another process: more than the sum where
it runs them again.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
IMPORTS = {
    "import frontend": "wsdsl.frontend",
    "import lowering": "wsdsl.lowering.pipeline",
    "import LLVM": "llvmlite.binding",
    "import prover": "wsdsl.prover.prove",
}
WHOLE = "to PTX, as asked for"
CHOICE = ("choose_schedule",)
ENDS = ("choose_schedule", "assign_multicast", "cse")
"""Behind these the spec is checked."""


class Clock:
    """Seconds and calls by stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.calls: dict[str, int] = {}

    @contextmanager
    def of(self, stage: str) -> Iterator[None]:
        started = time.process_time()
        yield
        self.seconds[stage] = self.seconds.get(stage, 0.0) + time.process_time() - started
        self.calls[stage] = self.calls.get(stage, 0) + 1

    def told(self) -> dict[str, list[float]]:
        return {stage: [held, self.calls[stage]] for stage, held in self.seconds.items()}

    def around(self, stage: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **named: Any) -> Any:
            with self.of(stage):
                return function(*args, **named)

        return timed


def measure(size: int, *, whole: bool) -> dict[str, list[float]]:
    """Of this process: by stage, seconds and calls; or of `whole`, which finds nothing cached."""
    clock = Clock()
    for stage, module in IMPORTS.items():
        with clock.of(stage):
            importlib.import_module(module)
    from benchmarks.kernels import gemm
    from wsdsl import Kernel, parse
    from wsdsl.codegen.launch_signature import signature
    from wsdsl.codegen.llvm_module import emit_llvm
    from wsdsl.codegen.ptx_emission import emit_ptx
    from wsdsl.frontend.from_source import from_text
    from wsdsl.ir.verify.verifier import verify
    from wsdsl.lowering import pipeline
    from wsdsl.prover.memory.early_accesses import check_early_accesses
    from wsdsl.prover.prove import prove
    from wsdsl.prover.ptx.check_ptx import check_skeleton

    sizes = dict(M=size, N=size, K=size)
    # Of another kernel: LLVM is set up, what is imported late is there, the grammar is known.
    _ = parse(WARM).warm._compile(None, {}, ()).ptx
    with clock.of("parse and check"):
        kernel = from_text(gemm.source)["gemm"]
    asked = Kernel("gemm", lambda: kernel)
    if whole:
        with clock.of(WHOLE):
            _ = asked._compile(None, sizes, ()).ptx
        return clock.told()
    with clock.of("try tile sizes"):
        kernel = asked.tile_ir
    restore = _watch_the_model(clock)
    for step, _ in pipeline.PASSES:
        with clock.of(f"pass {step.__name__}"):
            given = (sizes,) if step is pipeline.choose_schedule else ()
            kernel = step(kernel, *given)
        if step.__name__ in ENDS:
            with clock.of("spec"):
                verify(kernel)
    restore()
    with clock.of("LLVM IR"):
        text = emit_llvm(kernel)
    with clock.of("LLVM"):
        ptx = emit_ptx(text)
    with clock.of("proof"):
        prove(kernel)
    with clock.of("PTX check"):
        check_skeleton(kernel, ptx)
        check_early_accesses(kernel, ptx, signature(kernel).owners)
    return clock.told()


WARM = """
@kernel
def warm(X: f32[M, N], Y: f32[M, N]):
    for m, n in tiles(M, N):
        Y[m, n] = X[m, n]
"""


def _watch_the_model(clock: Clock) -> Callable[[], None]:
    """Wherever the choice has `predict`, it is timed; what is returned undoes that."""
    from wsdsl.lowering.cost_model.predict import predict

    timed = clock.around("model", predict)
    users = [
        module
        for name, module in sys.modules.items()
        if name.startswith("wsdsl.lowering") and getattr(module, "predict", None) is predict
    ]
    for module in users:
        setattr(module, "predict", timed)  # noqa: B010

    def restore() -> None:
        for module in users:
            setattr(module, "predict", predict)  # noqa: B010

    return restore


def run(times: int, size: int) -> dict[str, tuple[float, int]]:
    """Medians of fresh processes."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = os.environ | {"PYTHONPATH": path, "WSDSL_PTXAS": "off"}
    rows: list[dict[str, list[float]]] = []
    for _ in range(times):
        row: dict[str, list[float]] = {}
        for what in ("whole", "stages"):
            command = [sys.executable, "-m", "benchmarks.compile_stages", "--size", str(size)]
            done = subprocess.run(
                [*command, "--one", what],
                cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
            )  # fmt: skip
            if done.returncode:
                raise SystemExit(done.stderr)
            row |= json.loads(done.stdout)
        rows.append(row)
    return {s: (statistics.median(r[s][0] for r in rows), int(rows[0][s][1])) for s in rows[0]}


def table(found: dict[str, tuple[float, int]], least: float = 0.002) -> list[str]:
    """Passes under `least` seconds are one row."""
    passes = {s: t for s, (t, _) in found.items() if s.startswith("pass ")}
    chosen = sum(t for s, t in passes.items() if s.removeprefix("pass ") in CHOICE)
    rest = {s: t for s, t in passes.items() if s.removeprefix("pass ") not in CHOICE}
    seconds, calls = found["model"]
    rows = [(s, t) for s, (t, _) in found.items() if s in IMPORTS]
    rows += [(s, found[s][0]) for s in ("parse and check", "try tile sizes")]
    rows += [("choice of the schedule", chosen), (f"  of it the model, {calls} times", seconds)]
    rows += [(f"the other {len(rest)} passes", sum(rest.values()))]
    rows += [(f"  {s}", t) for s, t in rest.items() if t >= least]
    rows += [(f"spec, {found['spec'][1]} times", found["spec"][0])]
    rows += [(s, found[s][0]) for s in ("LLVM IR", "LLVM", WHOLE, "proof", "PTX check")]
    whole = found[WHOLE][0]
    return [f"{s:<36} {t * 1000:7.1f} ms  {t / whole:6.1%}" for s, t in rows]


WARM_COMPILES = """
import statistics, sys, time
from benchmarks.kernels import gemm
from wsdsl import Kernel
from wsdsl.frontend.from_source import from_text
sizes, taken = dict.fromkeys("MNK", int(sys.argv[1])), []
for _ in range(16):
    started = time.process_time()
    kernel = from_text(gemm.source)["gemm"]
    Kernel("gemm", lambda: kernel)._compile(None, sizes, ()).ptx
    taken.append(time.process_time() - started)
print(min(taken), statistics.median(taken[1:]))
"""
"""What every checkout can do; the first time is not a warm one."""


def beside(folder: Path, times: int, size: int) -> list[str]:
    """By turns, since other work makes both slower."""
    found: dict[Path, list[list[float]]] = {ROOT: [], folder.resolve(): []}
    for _ in range(times):
        for root, rows in found.items():
            environment = os.environ | {"PYTHONPATH": str(root), "WSDSL_CACHE_DIR": "off"}
            command = [sys.executable, "-c", WARM_COMPILES, str(size)]
            told = subprocess.check_output(command, cwd=root, env=environment, text=True)
            rows.append([float(word) for word in told.split()])
    lines: list[str] = []
    for what, index in (("least", 0), ("median", 1)):
        here, there = (statistics.median(row[index] for row in rows) for rows in found.values())
        told = f"here {here * 1000:.1f} ms, there {there * 1000:.1f} ms"
        lines.append(f"a warm compile to PTX, {what}: {told} ({here / there:.2f})")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--times", type=int, default=5, help="processes (5)")
    parser.add_argument("--size", type=int, default=4096, help="M, N and K (4096)")
    parser.add_argument("--beside", type=Path, help="folder of another checkout")
    parser.add_argument("--one", choices=("whole", "stages"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.size, whole=options.one == "whole")))
        return 0
    if options.beside:
        print("\n".join(beside(options.beside, options.times, options.size)))
        return 0
    print(f"share of: {WHOLE}")
    print("\n".join(table(run(options.times, options.size))))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
