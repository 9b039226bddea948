"""The command `wsdsl`: compile, prove, run, schedule, explain, timeline, sweep, calibrate, tune,
tuning-cache, cache, doctor, bench.

Exit status 0: fine; 1: a wrong result, or something is missing; 2: a mistake in the command, the
kernel or the schedule.
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import wsdsl
from wsdsl.cli.calibration import calibrate_command
from wsdsl.cli.commands import (
    SUFFIXES,
    bench_command,
    compile_command,
    doctor_command,
    prove_command,
    run_command,
    schedule_command,
    timeline_command,
)
from wsdsl.cli.disk_cache import cache_command
from wsdsl.cli.options import UsageError, in_options
from wsdsl.cli.sweep import sweep_command
from wsdsl.cli.tuning_cache import tune_command, tuning_cache_options
from wsdsl.diagnostics import Finding, WsdslError

DESCRIPTION = "Compile, run and inspect warp-specialized GPU kernels on tiles with named axes."
RENAMED = {
    "records": "tuning-cache",
    "schedule --explain": "explain",
    "schedule --output": "timeline --sms --output",
}
"""Deprecated spellings."""


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        options = parser().parse_args(given)
        for old, new in RENAMED.items():
            command, _, option = old.partition(" --")
            if options.verb == command and getattr(options, option, command):
                print(f"`wsdsl {old}` is deprecated; use `wsdsl {new}`", file=sys.stderr)
        for name in ("seconds", "candidates"):
            if (value := getattr(options, name, None)) is not None and not value > 0:
                raise UsageError(f"WS1000 --{name} is {value}, expected a positive number")
        return int(options.command(options))
    except BrokenPipeError:  # `wsdsl compile … | head`
        sys.stderr.close()
        return 0
    except (WsdslError, OSError, MemoryError) as error:
        findings = error.findings if isinstance(error, WsdslError) else [Finding(f"WS1001 {error}")]
        if not isinstance(error, UsageError) and "--schedule" not in given:
            findings = [replace(f, hint=in_options(f.hint)) for f in findings]
        if "--json" in given:
            found = [
                dict(code=f.code, message=f.message, location=f.loc and str(f.loc), hint=f.hint)
                for f in findings
            ]
            print(json.dumps({"error": type(error).__name__, "findings": found}, indent=2))
        else:
            told = "\n".join(f.render() for f in findings)
            print(f"{type(error).__name__}: {told}", file=sys.stderr)
        return 2


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"WS1002 {message}", hint=f"see `{self.prog} --help`")


def _seed(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a non-negative integer")
    return int(text)


def parser() -> argparse.ArgumentParser:
    top = _Parser(prog="wsdsl", description=DESCRIPTION)
    top.add_argument("--version", action="version", version=f"wsdsl {wsdsl.__version__}")
    commands = top.add_subparsers(title="commands", required=True, dest="verb", metavar="COMMAND")

    def command(name: str, run: Callable[[argparse.Namespace], int], text: str) -> _Parser:
        old = [each for each in RENAMED if RENAMED[each] == name and " " not in each]
        made: _Parser = commands.add_parser(name, aliases=old, help=text, description=text)
        made.add_argument("--json", action="store_true", help="print the result as JSON")
        made.set_defaults(command=run)
        return made

    def kernel_options(made: _Parser) -> None:
        text = "a .py module with @kernel functions, a .ws file, or dumped IR (.ir)"
        made.add_argument("target", metavar="FILE[:KERNEL]", help=text)
        text = "a field of the schedule: tile.n=192, stages=4, mode=pingpong (repeatable)"
        made.add_argument("--set", metavar="FIELD=VALUE", action="append", default=[], help=text)
        text = "sm_90a, sm_100a or sm_103a; equivalent to --set arch=ARCH"
        how = dict[str, Any](dest="set", action="append", type="arch={}".format)
        made.add_argument("--arch", metavar="ARCH", **how, help=text)
        text = "sizes of dimensions: --size M=512 N=512 K=512, or M=512,N=512,K=512"
        how = dict[str, Any](action="extend", nargs="+", default=[])
        made.add_argument("--size", metavar="DIM=N", **how, help=text)

    compiling = command("compile", compile_command, "Compile a kernel, and show any of its levels.")
    kernel_options(compiling)
    compiling.add_argument("--emit", choices=[*SUFFIXES, "all"], action="append", default=[])
    text = "write files to DIR: the levels of --emit, or all"
    compiling.add_argument("-o", "--output", metavar="DIR", type=Path, help=text)

    proving = command("prove", prove_command, "Prove that a kernel neither hangs nor races.")
    kernel_options(proving)

    running = command("run", run_command, "Run a kernel on random inputs against its reference.")
    kernel_options(running)
    running.add_argument("--reference", metavar="FILE", help="source of the dumped IR's kernel")
    running.add_argument("--backend", choices=["auto", "gpu", "simulator"])
    text = "seed of inputs and simulated interleaving"
    running.add_argument("--seed", type=_seed, default=0, help=text)

    def drawing(name: str, run: Callable[[argparse.Namespace], int], text: str) -> _Parser:
        made = command(name, run, text)
        kernel_options(made)
        text = 'as in Python: "Schedule(tile=dict(n=128))"'
        made.add_argument("--schedule", metavar="SCHEDULE", help=text)
        made.set_defaults(explain=name == "explain", output=None)
        return made

    scheduling = drawing("schedule", schedule_command, "Show the schedule. Needs no GPU.")
    scheduling.add_argument("--explain", action="store_true", help=argparse.SUPPRESS)
    scheduling.add_argument("-o", "--output", type=Path, help=argparse.SUPPRESS)
    text = "Show why the schedule is chosen. Needs no GPU."
    explaining = drawing("explain", schedule_command, text)
    explaining.add_argument("--rows", type=int, help="mean rows per trip of ragged loops")
    text = "Predict the timeline of the warps of one CTA (default), or of all SMs. Needs no GPU."
    timeline = drawing("timeline", timeline_command, text)
    file = "trace.json for ui.perfetto.dev (--warps), .svg or .png"
    timeline.add_argument("-o", "--output", metavar="FILE", type=Path, help=file)
    parts = ("steady", "prologue", "epilogue")
    timeline.add_argument("--part", choices=parts, default=parts[0], help="of the time (--warps)")
    view = timeline.add_mutually_exclusive_group()
    for flag, run, text in (
        ("--warps", timeline_command, "show when each warp of a CTA computes and waits"),
        ("--sms", schedule_command, "show the tiles of each SM over time"),
    ):
        view.add_argument(flag, action="store_const", dest="command", const=run, help=text)

    text = "Measure hardware parameters for the cost model."
    calibrating = command("calibrate", calibrate_command, text)
    calibrating.add_argument("bench", nargs="*", help="microbenchmarks (default: all)")
    text = "write the parameters to FILE instead of the cache, which the cost model reads"
    calibrating.add_argument("--out", metavar="FILE", type=Path, help=text)

    text = "Measure schedules, and store the fastest in the tuning cache."
    tuning = command("tune", tune_command, text)
    kernel_options(tuning)
    text = "Time every combination of schedule fields: predicted; with a GPU, measured, too."
    sweeping = command("sweep", sweep_command, text)
    kernel_options(sweeping)
    sweeping.add_argument("--predict", action="store_true", help="measure nothing")
    sweeping.add_argument("-o", "--output", metavar="FILE", type=Path, help="plot: .svg or .png")
    for made in (calibrating, tuning, sweeping):
        text = "approximate run time (default: 60)"
        made.add_argument("--seconds", type=float, default=60.0, help=text)
    tuning.add_argument("--candidates", type=int, metavar="N", help="number of schedules (48)")
    tuning.add_argument("--plot", metavar="FILE", type=Path, help="plot time by stages and tile")
    for made in (running, tuning):
        text = "a scalar (default: 1)"
        made.add_argument("--scalar", metavar="NAME=X", action="append", default=[], help=text)

    tuning_cache_options(command)

    caching = command("cache", cache_command, "List the compiled kernels in the cache.")
    one = caching.add_mutually_exclusive_group()
    one.add_argument("--check", action="store_true", help="exit with 1 if an entry is damaged")
    one.add_argument("--clear", action="store_true", help="remove all entries")

    command("doctor", doctor_command, "Report requirements, and how to install missing ones.")
    bench = command("bench", bench_command, "Run a benchmark of the repository's benchmarks/.")
    bench.add_argument("name", nargs="?", help="name of the benchmark (default: list all)")
    bench.add_argument("rest", nargs=argparse.REMAINDER, help="arguments of the benchmark")
    return top
