"""The command `wsdsl`: compile, run, doctor, bench. Prints; decides nothing that a library call
would decide otherwise. Exit status 0: fine; 1: a wrong result, or something is missing; 2: a
mistake in the command, the kernel or the schedule.
"""

from __future__ import annotations

import argparse
import difflib
import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import wsdsl
from wsdsl.diagnostics import Finding, ParseError, ScheduleError, WsdslError
from wsdsl.ir.op import Kernel as IrKernel
from wsdsl.ir.tile_ops import Store
from wsdsl.ir.types import DType, Tensor, Tile
from wsdsl.ir.walk import walk
from wsdsl.schedule import Schedule

if TYPE_CHECKING:
    import numpy as np

SUFFIXES = {
    "tile": ".tile.ir",
    "partitioned": ".partitioned.ir",
    "scheduled": ".scheduled.ir",
    "llvm": ".ll",
    "ptx": ".ptx",
    "sass": ".sass",
}
TOLERANCE = {"f32": 2.0**-12, "f16": 2.0**-10, "bf16": 2.0**-8}
"""Largest relative error ‖out − reference‖ / ‖reference‖ by the output's element type."""


class UsageError(WsdslError):
    """A mistake in the command line."""


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        options = parser().parse_args(given)
        return int(options.command(options))
    except WsdslError as error:
        if "--json" in given:
            found = [
                {"message": f.message, "location": f.loc and str(f.loc), "hint": f.hint}
                for f in error.findings
            ]
            print(json.dumps({"error": type(error).__name__, "findings": found}, indent=2))
        else:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # `wsdsl compile … | head`
        sys.stderr.close()
        return 0


# ---- the command line


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(Finding(message, hint=f"`{self.prog} --help` lists what there is"))


def parser() -> argparse.ArgumentParser:
    top = _Parser(prog="wsdsl", description=(wsdsl.__doc__ or "").split("\n")[0])
    commands = top.add_subparsers(title="commands", required=True, metavar="COMMAND")

    def command(name: str, run: Callable[[argparse.Namespace], int], text: str) -> _Parser:
        made: _Parser = commands.add_parser(name, help=text, description=text)
        made.add_argument("--json", action="store_true", help="print the result as JSON")
        made.set_defaults(command=run)
        return made

    def kernel_options(made: _Parser) -> None:
        made.add_argument(
            "target",
            metavar="FILE[:KERNEL]",
            help="a .py module with @kernel functions, a .ws file, or dumped IR (.ir)",
        )
        made.add_argument(
            "--set",
            metavar="FIELD=VALUE",
            action="append",
            default=[],
            help="a field of the schedule: tile.n=192, stages=4, mode=pingpong (repeatable)",
        )
        made.add_argument(
            "--size",
            metavar="DIM=N",
            action="extend",
            nargs="+",
            default=[],
            help="sizes of dimensions: --size M=512 N=512 K=512",
        )

    compiling = command("compile", compile_command, "Compile a kernel, and show any level of it.")
    kernel_options(compiling)
    compiling.add_argument("--emit", choices=[*SUFFIXES, "all"], action="append", default=[])
    compiling.add_argument("-o", "--output", metavar="DIR", type=Path, help="write files there")

    running = command("run", run_command, "Run a kernel on random inputs against its reference.")
    kernel_options(running)
    running.add_argument("--backend", choices=["auto", "gpu", "simulator"], default="auto")
    running.add_argument("--seed", type=int, default=0, help="of inputs and simulated interleaving")
    running.add_argument(
        "--scalar", metavar="NAME=X", action="append", default=[], help="a scalar parameter (1)"
    )

    command("doctor", doctor_command, "What this machine has, what is missing, how to get it.")
    bench = command("bench", bench_command, "Run a benchmark of the repository's benchmarks/.")
    bench.add_argument("name", nargs="?", help="which one; left out: list them")
    bench.add_argument("rest", nargs=argparse.REMAINDER, help="what follows is for the benchmark")
    return top


# ---- commands


def compile_command(options: argparse.Namespace) -> int:
    schedule, sizes = schedule_from(options.set), sizes_from(options.size)
    if is_ir(options.target):
        if schedule or sizes:
            raise UsageError(Finding("dumped IR carries its schedule and sizes", hint="edit them"))
        compiled = wsdsl.compile_ir(read(Path(options.target)))
        name = Path(options.target).stem.split(".")[0]
    else:
        kernel = load_kernel(options.target)
        check_names(sizes, dimensions(kernel.tile), "dimension", kernel.name)
        arch = schedule.arch if schedule else "sm_90a"
        compiled = kernel.compile(schedule=schedule, arch=arch, **sizes)
        name = kernel.name
    wanted = list(SUFFIXES) if "all" in options.emit else list(dict.fromkeys(options.emit))
    shown = {level: emit(compiled, level) for level in wanted}
    resources = plain(compiled.resources)
    files: list[str] = []
    if options.output:
        options.output.mkdir(parents=True, exist_ok=True)
        for level, text in shown.items():
            path = options.output / f"{name}{SUFFIXES[level]}"
            path.write_text(text)
            files.append(str(path))
    if options.json:
        told = {"kernel": name, "schedule": repr(compiled.schedule), "resources": resources}
        more = {"files": files} if options.output else {"emitted": shown}
        print(json.dumps(told | more, indent=2))
    elif options.output:
        print("\n".join(files))
    elif shown:
        for level, text in shown.items():
            heading = f"==== {name}: {level}\n" if len(shown) > 1 else ""
            print(f"{heading}{text}", end="" if text.endswith("\n") else "\n")
    else:
        print(f"{name}: {compiled.schedule!r}")
        print("\n".join(f"  {key}: {value}" for key, value in resources.items()))
    return 0


def run_command(options: argparse.Namespace) -> int:
    import numpy as np

    from wsdsl.knobs import override

    if is_ir(options.target):
        raise UsageError(
            Finding(
                "`run` compares with the reference, which dumped IR may not have",
                hint="give the .py or .ws file, or `wsdsl.compile_ir(text)(…)` in Python",
            )
        )
    kernel = load_kernel(options.target)
    schedule, sizes = schedule_from(options.set), sizes_from(options.size)
    scalars = scalars_from(options.scalar)
    names = dimensions(kernel.tile)
    check_names(sizes, names, "dimension", kernel.name)
    missing = [n for n in names if n not in sizes]
    if missing:
        needed = " ".join(f"{n}=512" for n in missing)
        message = f"kernel `{kernel.name}` needs a size for {', '.join(missing)}"
        raise UsageError(Finding(message, hint=f"--size {needed}"))
    if options.backend == "gpu":
        require_gpu()
    arguments = random_arguments(kernel.tile, sizes, scalars, options.seed)
    expected = in_tuple(kernel.reference(*copies(arguments)))
    if options.backend == "simulator":
        given = copies(arguments)
        held = in_tuple(kernel.simulate(*given, schedule=schedule, seed=options.seed))
    else:
        with override(backend=options.backend):
            held = in_tuple(kernel(*copies(arguments), schedule=schedule))
    rows: list[dict[str, Any]] = []
    for parameter, out, reference in zip(outputs(kernel.tile), held, expected, strict=True):
        error = relative_error(np.asarray(out), np.asarray(reference))
        limit = TOLERANCE.get(str(parameter.type.dtype), 0.0)
        row = {"output": parameter.name, "relative_error": error, "limit": limit}
        rows.append(row | {"correct": bool(error <= limit)})
    correct = all(row["correct"] for row in rows)
    if options.json:
        told = {"kernel": kernel.name, "sizes": sizes, "correct": correct, "outputs": rows}
        print(json.dumps(told, indent=2))
    else:
        for row in rows:
            verdict = "correct" if row["correct"] else f"WRONG (more than {row['limit']:.2g})"
            print(f"{row['output']}: relative error {row['relative_error']:.3g}, {verdict}")
    return 0 if correct else 1


def doctor_command(options: argparse.Namespace) -> int:
    from wsdsl.runtime.device import doctor

    rows = [plain(row) for row in doctor()]
    if options.json:
        print(json.dumps(rows, indent=2))
    else:
        width = max(len(str(row["name"])) for row in rows)
        for row in rows:
            mark = "ok     " if row["ok"] else "missing"
            print(f"{mark}  {row['name']:{width}}  {row['found']}")
            if not row["ok"] and row["hint"]:
                print(f"{'':9}{'':{width}}  {row['hint']}")
    return 0 if all(row["ok"] for row in rows) else 1


def bench_command(options: argparse.Namespace) -> int:
    folder = Path("benchmarks")
    hidden = ("__init__", "__main__")
    known = sorted(
        p.stem
        for p in folder.glob("*.py")
        if p.stem not in hidden and 'if __name__ == "__main__":' in p.read_text()
    )
    if not known:
        hint = "run this in a checkout of the repository; the installed package has no benchmarks"
        raise UsageError(Finding("there is no folder benchmarks/ here", hint=hint))
    if options.name is None:
        print(json.dumps(known) if options.json else "\n".join(known))
        return 0
    if options.name not in known:
        raise UsageError(
            Finding(f"there is no benchmark `{options.name}`", hint=f"one of {', '.join(known)}")
        )
    more = ["--json"] if options.json else []
    command = [sys.executable, "-m", f"benchmarks.{options.name}", *more, *options.rest]
    return subprocess.run(command, check=False).returncode


# ---- kernels


def is_ir(target: str) -> bool:
    return target.endswith(".ir")


def read(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(Finding(f"can not read {path}: {error}")) from error


def load_kernel(target: str) -> Any:
    """The kernel that FILE[:KERNEL] names; a file of one kernel need not name it."""
    file, _, name = target.partition(":")
    path = Path(file)
    if path.suffix not in (".py", ".ws"):
        raise UsageError(Finding(f"`{file}` is no kernel's file", hint="a .py, .ws or .ir file"))
    read(path)
    held = vars(wsdsl.load(file) if path.suffix == ".ws" else import_file(path))
    kernels = {k: v for k, v in held.items() if isinstance(v, wsdsl.Kernel)}
    if not kernels:
        hint = "a kernel is a function decorated with @kernel"
        raise UsageError(Finding(f"{file} has no kernel", hint=hint))
    if not name and len(kernels) > 1:
        hint = " or ".join(f"{file}:{k}" for k in kernels)
        raise UsageError(Finding(f"{file} has {len(kernels)} kernels: say which", hint=hint))
    if name:
        check_names([name], list(kernels), "kernel", file)
    return kernels[name] if name else next(iter(kernels.values()))


def import_file(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except WsdslError:
        raise
    except Exception as error:
        message = f"importing {path} failed: {type(error).__name__}: {error}"
        raise UsageError(Finding(message, hint=f"`python {path}` shows where")) from error
    finally:
        sys.path.pop(0)
    return module


def dimensions(kernel: IrKernel) -> list[str]:
    """Names of the dimensions of a kernel's tensors, in order of first appearance."""
    tensors = [p.type for p in kernel.params if isinstance(p.type, Tensor)]
    return list(dict.fromkeys(d for t in tensors for d in t.dims if isinstance(d, str)))


def outputs(kernel: IrKernel) -> list[Any]:
    """The parameters that a kernel stores to, in the order of the call."""
    stored = {op.tensor.name for op in walk(kernel.body) if isinstance(op, Store)}
    return [p for p in kernel.params if p.name in stored]


def emit(compiled: Any, level: str) -> str:
    if level in ("tile", "partitioned", "scheduled"):
        return compiled.ir(level)
    return getattr(compiled, level)


def in_tuple(held: Any) -> tuple[Any, ...]:
    return held if isinstance(held, tuple) else (held,)


def plain(row: Any) -> dict[str, Any]:
    return asdict(row) if is_dataclass(row) and not isinstance(row, type) else dict(row)


# ---- arguments


def pairs(texts: Iterable[str], option: str, example: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not (key.strip() and equals and value.strip()):
            raise UsageError(Finding(f"{option} {text}: expected NAME=VALUE", hint=example))
        found[key.strip()] = value.strip()
    return found


def sizes_from(texts: Iterable[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, value in pairs(texts, "--size", "--size M=512 N=512").items():
        if not value.isdecimal():
            message = f"--size {name}={value}: {value!r} is no size"
            raise UsageError(Finding(message, hint=f"a whole number, as in --size {name}=512"))
        found[name] = int(value)
    return found


def scalars_from(texts: Iterable[str]) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, value in pairs(texts, "--scalar", "--scalar alpha=0.5").items():
        try:
            found[name] = float(value)
        except ValueError:
            message = f"--scalar {name}={value}: {value!r} is no number"
            raise UsageError(Finding(message, hint=f"as in --scalar {name}=0.5")) from None
    return found


def schedule_from(texts: Iterable[str]) -> Schedule | None:
    """A Schedule from `tile.n=192`, `stages=4`, …; None if there are none."""
    held: dict[str, Any] = {}
    known = [f.name for f in fields(Schedule)]
    for key, value in pairs(texts, "--set", "--set tile.n=192 --set stages=4").items():
        name, dot, part = key.partition(".")
        check_names([name], known, "field", "Schedule", ScheduleError)
        typed = int(value) if value.lstrip("-").isdecimal() else value
        by_name = name in ("tile", "cluster", "registers")
        if by_name != bool(dot):
            want = f"{name}.m=128" if by_name else f"{name}={value}"
            raise ScheduleError(Finding(f"--set {key}={value}", hint=f"as in --set {want}"))
        if by_name:
            if isinstance(typed, str):
                message = f"--set {key}={value}: {value!r} is no whole number"
                raise ScheduleError(Finding(message, hint=f"as in --set {key}=128"))
            held.setdefault(name, {})[part] = typed
        else:
            held[name] = typed
    return Schedule(**held) if held else None


def check_names(
    given: Iterable[str],
    known: Sequence[str],
    what: str,
    where: str,
    kind: type[WsdslError] = UsageError,
) -> None:
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean `{near[0]}`?" if near else f"there are: {', '.join(known)}"
            raise kind(Finding(f"{where} has no {what} `{name}`", hint=hint))


def require_gpu() -> None:
    from wsdsl.runtime.device import gpu_available

    if not gpu_available():
        hint = "`wsdsl doctor` says what is missing; --backend simulator needs no GPU"
        raise UsageError(Finding("there is no GPU that runs sm_90a here", hint=hint))


def random_arguments(
    kernel: IrKernel, sizes: dict[str, int], scalars: dict[str, float], seed: int
) -> list[Any]:
    """Random inputs by dtype in the order of the call; None for what the kernel writes."""
    import numpy as np

    generator = np.random.default_rng(seed)
    written = {p.name for p in outputs(kernel)}
    updated = {
        op.tensor.name for op in walk(kernel.body) if isinstance(op, Store) and op.accumulate
    }
    check_names(
        scalars, [p.name for p in kernel.params if isinstance(p.type, Tile)], "scalar", kernel.name
    )
    made: list[Any] = []
    for p in kernel.params:
        if isinstance(p.type, Tensor):
            shape = tuple(sizes[d] if isinstance(d, str) else d for d in p.type.dims)
            if p.name in written and p.name not in updated:
                made.append(None)
            else:
                made.append(random_array(generator, p.type.dtype, shape))
        elif isinstance(p.type, Tile):
            value = scalars.get(p.name, 1.0)
            made.append(value if p.type.dtype.is_float else int(value))
    return made


def random_array(
    generator: np.random.Generator, dtype: DType, shape: tuple[int, ...]
) -> np.ndarray[Any, Any]:
    from wsdsl.runtime.interop import numpy_dtype

    if dtype.bits < 8:
        raise ParseError(
            Finding(f"`run` can not make {dtype} arrays yet", hint="call it in Python")
        )
    if dtype.is_float:
        return generator.standard_normal(shape, "float32").astype(numpy_dtype(dtype))
    return generator.integers(0, 2 if dtype.kind == "bool" else 8, shape).astype(numpy_dtype(dtype))


def copies(arguments: Iterable[Any]) -> list[Any]:
    return [a.copy() if hasattr(a, "copy") else a for a in arguments]


def relative_error(out: np.ndarray[Any, Any], reference: np.ndarray[Any, Any]) -> float:
    """‖out − reference‖ / ‖reference‖ in f64; infinite where one is finite and the other is not."""
    import numpy as np

    a, b = out.astype(np.float64), reference.astype(np.float64)
    if a.shape != b.shape or not np.array_equal(np.isfinite(a), np.isfinite(b)):
        return float("inf")
    finite = np.isfinite(b)
    difference, norm = (np.linalg.norm(x[finite].ravel()) for x in (a - b, b))
    return float(difference / norm) if norm else float(difference and "inf")


if __name__ == "__main__":
    sys.exit(main())
