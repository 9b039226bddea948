"""`wsdsl tune`: which schedule is best, measured."""

from __future__ import annotations

import argparse
import dataclasses
import json

from wsdsl.cli.commands import require_sizes
from wsdsl.cli.options import UsageError, check_names, scalars_from, schedule_from, sizes_from
from wsdsl.cli.target import load_kernel
from wsdsl.diagnostics import Finding
from wsdsl.ir.types import Tile


def tune_command(options: argparse.Namespace) -> int:
    kernel = load_kernel(options.target)
    schedule, sizes = schedule_from(options.set), sizes_from(options.size)
    scalars = scalars_from(options.scalar)
    require_sizes(kernel, sizes)
    named = [p.name for p in kernel.params if isinstance(p.type, Tile)]
    check_names(scalars, named, "scalar", kernel.name)
    if not options.seconds > 0 or (options.candidates is not None and options.candidates < 1):
        raise UsageError(Finding("--seconds and --candidates: expected positive numbers"))
    tuned = kernel.tune_for(
        sizes,
        scalars,
        schedule=schedule,
        seconds=options.seconds,
        candidates=options.candidates,
        progress=not options.json,
        plot=options.plot,
    )
    if options.json:
        rows = [dataclasses.asdict(t) | {"schedule": repr(t.schedule)} for t in tuned.trials]
        told = {"kernel": tuned.name, "sizes": tuned.sizes, "device": tuned.device}
        told |= {"schedule": repr(tuned.schedule), "is_new": tuned.winner is not None}
        print(json.dumps(told | {"seconds": tuned.seconds, "trials": rows}, indent=2))
    else:
        print(tuned)
        if options.plot:
            print(options.plot)
    return 0
