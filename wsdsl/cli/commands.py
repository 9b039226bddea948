"""The commands, which print; the library decides."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import asdict, is_dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import wsdsl
from wsdsl import config
from wsdsl.cli.inputs import copies, random_arguments, relative_error, tolerances
from wsdsl.cli.options import (
    UsageError,
    check_names,
    scalars_from,
    schedule_from,
    sizes_from,
    written_schedule,
)
from wsdsl.cli.source_argument import is_ir, load_kernel, load_kernels, outputs, read, require_gpu
from wsdsl.ir.op import LEVELS
from wsdsl.schedule import Schedule

if TYPE_CHECKING:
    from wsdsl.report.timeline import Timeline

SUFFIXES = {
    "tile": ".tile.ir",
    "plan": ".plan.txt",
    "partitioned": ".partitioned.ir",
    "scheduled": ".scheduled.ir",
    "llvm": ".ll",
    "ptx": ".ptx",
    "sass": ".sass",
}


def compile_command(options: argparse.Namespace) -> int:
    schedule, sizes = schedule_from(options.set), sizes_from(options.size)
    if is_ir(options.target):
        compiled = dumped(options.target, schedule, sizes)
        name = Path(options.target).stem.split(".")[0]
    else:
        kernel = load_kernel(options.target)
        check_names(sizes, kernel.dims, "dimension", kernel.name)
        arch = schedule.arch if schedule else "sm_90a"
        compiled = kernel.compile(schedule=schedule, arch=arch, **sizes)
        name = kernel.name
    every = "all" in options.emit or (options.output and not options.emit)
    has = [level for level in SUFFIXES if level not in (*LEVELS, "plan") or compiled.has(level)]
    wanted = has if every else list(dict.fromkeys(options.emit))
    shown = {level: emit(compiled, level) for level in wanted}
    resources = resources_of(compiled)
    files: list[str] = []
    if options.output:
        make_folder(options.output)
        for level, text in shown.items():
            path = options.output / f"{name}{SUFFIXES[level]}"
            path.write_text(text, encoding="utf-8")
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


def prove_command(options: argparse.Namespace) -> int:
    schedule, sizes = schedule_from(options.set), sizes_from(options.size)
    if is_ir(options.target):
        found = [dumped(options.target, schedule, sizes)]
    else:
        kernels = load_kernels(options.target)
        for kernel in kernels:
            check_names(sizes, kernel.dims, "dimension", kernel.name)
        with config.override(ptxas="off"):
            found = [k.compile(schedule=schedule, **sizes) for k in kernels]
    certificates = [compiled.prove() for compiled in found]
    if options.json:
        print(json.dumps([asdict(c) for c in certificates], indent=2))
    else:
        print("\n".join(map(str, certificates)))
    return 0


def run_command(options: argparse.Namespace) -> int:
    import numpy as np

    from wsdsl.config import BACKEND, override

    source = options.reference or options.target
    if is_ir(source):
        hint = "give the kernel's source: --reference FILE.py"
        raise UsageError(f"WS1003 {source} is dumped IR, which has no reference", hint=hint)
    kernel = load_kernel(source)
    schedule, sizes = schedule_from(options.set), sizes_from(options.size)
    edited = dumped(options.target, schedule, {}) if is_ir(options.target) else None
    if options.reference and edited is None:
        raise UsageError("WS1004 --reference needs dumped IR (.ir)", hint="leave it out")
    scalars = scalars_from(options.scalar)
    require_sizes(kernel, sizes)
    backend = options.backend or BACKEND.get()
    if backend == "gpu":
        require_gpu("; --backend simulator needs no GPU")
    arguments = random_arguments(kernel.tile_ir, sizes, scalars, options.seed)
    expected = in_tuple(kernel.reference(*copies(arguments)))
    given, run = copies(arguments), edited or partial(kernel, schedule=schedule)
    if backend == "simulator":
        simulate = edited.simulate if edited else partial(kernel.simulate, schedule=schedule)
        held = in_tuple(simulate(*given, seed=options.seed))
    else:
        with override(backend=backend):
            held = in_tuple(run(*given))
    chosen = edited.schedule if edited else kernel.schedule(schedule, **sizes)
    limits = tolerances(kernel.tile_ir, chosen.tile or {}, sizes)
    rows: list[dict[str, Any]] = []
    for parameter, out, reference in zip(outputs(kernel.tile_ir), held, expected, strict=True):
        error = relative_error(np.asarray(out), np.asarray(reference))
        limit = limits[parameter.name]
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


def _timeline(
    options: argparse.Namespace,
) -> tuple[wsdsl.Kernel, Schedule | None, dict[str, int], Timeline]:
    kernel = load_kernel(options.target)
    sizes = sizes_from(options.size)
    schedule = schedule_from(options.set)
    if options.schedule is not None:
        if schedule:
            raise UsageError("WS1005 both --schedule and --set are given", hint="give one of them")
        schedule = written_schedule(options.schedule)
    require_sizes(kernel, sizes)
    return kernel, schedule, sizes, kernel.timeline(schedule, **sizes)


def _show(options: argparse.Namespace, told: dict[str, Any], text: object) -> int:
    if options.json:
        told |= {"file": str(options.output)} if options.output else {}
        print(json.dumps(told, indent=2))
    else:
        print(text, *([options.output] if options.output else []), sep="\n")
    return 0


def timeline_command(options: argparse.Namespace) -> int:
    kernel, schedule, sizes, timeline = _timeline(options)
    worker, chosen = timeline.worker, repr(kernel.schedule(schedule, **sizes))
    if options.output:
        timeline.save(options.output, options.part)
    lanes = [
        {"partition": f.name, "cta": worker.ctas[f.rank], "busy": f.busy, "waiting": f.waiting}
        for f in worker.lanes
    ]
    told = {
        "kernel": kernel.name,
        "schedule": chosen,
        "cycles": worker.cycles,
        "predicted_cycles": worker.predicted,
        "bottleneck": worker.bottleneck,
        "units": worker.busy,
        "partitions": lanes,
    }
    return _show(options, told, f"{kernel.name}: {chosen}\n{timeline.text(options.part)}")


def schedule_command(options: argparse.Namespace) -> int:
    from wsdsl.report.timeline_figure import draw_timeline

    kernel, schedule, sizes, timeline = _timeline(options)
    chosen = repr(kernel.schedule(schedule, **sizes))
    rows = {} if getattr(options, "rows", None) is None else {"rows": options.rows}
    explained = kernel.explain(schedule, **sizes, **rows) if options.explain else None
    if options.output:
        heading = f"{kernel.name}, {', '.join(f'{d} = {n}' for d, n in sizes.items())}"
        draw_timeline(timeline, options.output, heading, [chosen, timeline.summary])
    told = {
        "kernel": kernel.name,
        "schedule": chosen,
        "workers": len(timeline.rows),
        "tiles": timeline.tiles,
        "tiles_cut": timeline.cut,
        "pieces": timeline.pieces,
        "idle": timeline.idle,
        "predicted_microseconds": timeline.microseconds,
    }
    if explained:
        told |= explained.as_json() | {"predicted_microseconds": explained.microseconds}
    return _show(options, told, explained or f"{kernel.name}: {chosen}\n  {timeline.summary}")


def doctor_command(options: argparse.Namespace) -> int:
    from wsdsl.runtime.doctor import doctor

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
    files = (p for p in Path("benchmarks").glob("*.py") if p.stem not in ("__init__", "__main__"))
    known = sorted(p.stem for p in files if 'if __name__ == "__main__":' in p.read_text())
    if not known:
        hint = "run this in a checkout of the repository; the installed package has no benchmarks"
        raise UsageError("WS1006 the folder benchmarks/ was not found", hint=hint)
    if options.name is None:
        print(json.dumps(known) if options.json else "\n".join(known))
        return 0
    check_names([options.name], known, "benchmark", "benchmarks/")
    more = ["--json"] if options.json else []
    command = [sys.executable, "-m", f"benchmarks.{options.name}", *more, *options.rest]
    return subprocess.run(command, check=False).returncode


def dumped(target: str, schedule: Schedule | None, sizes: dict[str, int]) -> wsdsl.Compiled:
    """A file of IR, which has its schedule and sizes."""
    if schedule or sizes:
        message = "WS1007 dumped IR contains its schedule and sizes"
        raise UsageError(message, hint="edit the file, and leave out --set and --size")
    return wsdsl.compile_ir(read(Path(target)), target)


def resources_of(compiled: wsdsl.Compiled) -> dict[str, Any]:
    if compiled.assembled is None:
        return {"ptxas_version": None, "smem_bytes": compiled.signature.smem_bytes}
    return plain(compiled.resources)


def emit(compiled: Any, level: str) -> str:
    return compiled.ir(level) if level in LEVELS else str(getattr(compiled, level))


def make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"WS1008 cannot make the folder {path}: {error.strerror}"
        raise UsageError(message, hint="give a folder: -o DIR") from error


def in_tuple(held: Any) -> tuple[Any, ...]:
    return held if isinstance(held, tuple) else (held,)


def plain(row: Any) -> dict[str, Any]:
    """A dataclass, or what is a mapping already, as a dict."""
    return asdict(row) if is_dataclass(row) else dict(row)  # pyright: ignore[reportArgumentType]


def require_sizes(kernel: Any, sizes: dict[str, int]) -> None:
    names = kernel.dims
    check_names(sizes, names, "dimension", kernel.name)
    if missing := [n for n in names if n not in sizes]:
        needed = " ".join(f"{n}=512" for n in missing)
        message = f"WS1009 kernel `{kernel.name}` needs a size for {', '.join(missing)}"
        raise UsageError(message, hint=f"give --size {needed}")
