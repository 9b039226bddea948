"""`wsdsl calibrate`: measure the hardware parameters of this GPU."""

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path

from wsdsl.cli.options import UsageError, check_names
from wsdsl.cli.source_argument import CACHE_OFF, require_gpu
from wsdsl.rates import files


def calibrate_command(options: argparse.Namespace) -> int:
    from wsdsl.calibrate.benches import benches

    check_names(
        options.bench, [bench.name for bench in benches(0.0)], "microbenchmark", "calibrate"
    )
    place = files.folder()
    out: Path | None = options.out
    if place is None and out is None:
        raise UsageError(replace(CACHE_OFF, hint=f"{CACHE_OFF.hint}, or give --out FILE"))
    require_gpu()
    from wsdsl.calibrate.calibration_run import measure, rates_file, table

    def heard(name: str) -> None:
        print(f"measuring {name} …", file=sys.stderr, flush=True)

    measured = measure(options.seconds, heard, options.bench)
    file = rates_file(measured)
    path = out or (place or Path()) / file.card.file_name
    files.write(path, file)
    if options.json:
        told = json.loads(file.text()) | {"file": str(path), "failed": measured.failed}
        print(json.dumps(told, indent=2))
    else:
        known = {shipped.card.target: shipped for shipped in files.shipped()}
        for line in table(file, known.get(file.card.target), measured.failed):
            print(line)
        print(f"written to {path}")
    return 1 if measured.failed else 0
