"""Measure the shapes of the suites anew, and write the records that are shipped.

    python -m benchmarks.records --suite bf16 --minutes 9
    python -m benchmarks.records --suite fp8 --suite layouts --minutes 9 --out h100.csv

Each shape is tuned (docs/tuning.md) from what is chosen for it today, in as much of the time as
there is for each. Winners replace the shipped records of the same key, others stay. What is
measured is kept in the user's database as well: a second run goes on where the first one ended.
"""

from __future__ import annotations

import argparse
import dataclasses
import time
from pathlib import Path

from benchmarks.candidates import kernel_of, sizes_by
from benchmarks.suites import GROUPS, SUITES, Contest, contests, shape_from
from wsdsl.diagnostics import WsdslError, counted
from wsdsl.ir.hardware.target import target_of_device
from wsdsl.records import text
from wsdsl.records.database import Database, user_file
from wsdsl.records.entry import Row
from wsdsl.schedule import Schedule

MOST_SECONDS = 30.0
"""Of one shape."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = sorted({*SUITES, *GROUPS})
    parser.add_argument("--suite", action="append", default=[], choices=names)
    parser.add_argument("--shape", action="append", default=[], type=shape_from)
    parser.add_argument("--minutes", type=float, default=9.0, help="no shape begins later (9)")
    parser.add_argument("--out", type=Path, help="the file (that of the card, in the package)")
    options = parser.parse_args()
    path = user_file()
    if path is None:
        parser.error("WSDSL_CACHE_DIR is off: it has to name a folder")
    chosen = contests(options.suite, options.shape)
    begin, until = time.time(), time.monotonic() + 60 * options.minutes
    device = run(chosen, until)
    if device is None:
        return 1
    date = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(begin))
    new = [row for row in Database(path).rows() if row.chosen and row.date >= date]
    new = [row for row in new if row.device == device and row.source == "tune"]
    out = options.out or text.SHIPPED / f"{file_name(device)}{text.SUFFIX}"
    num = ship(new, out)
    print(f"{out}: {counted(len(new), 'new record')}, {num} in all")
    return 0


def run(chosen: list[Contest], until: float) -> str | None:
    """Tune them all; the device, or None where nothing could be measured."""
    device: str | None = None
    for i, contest in enumerate(chosen):
        left = until - time.monotonic()
        if left <= 0:
            print(f"{contest}: no time left")
            continue
        share = min(MOST_SECONDS, left / (len(chosen) - i))
        try:
            given = Schedule(mma_promotion_interval=0) if contest.kind.fast else None
            sizes = sizes_by(contest.kind, contest.shape)
            tuned = kernel_of(contest.kind).tune_for(sizes, schedule=given, seconds=share)
        except WsdslError as error:
            print(f"{contest}: {error}", flush=True)
            continue
        device = tuned.device
        won = tuned.winner
        told = "stays" if won is None else f"{won.ratio:.3f} · {won.sustained_ratio:.3f} of before"
        print(f"{contest}: {told}  {tuned.schedule!r}", flush=True)
    return device


def file_name(device: str) -> str:
    """h100, h200: of the card that a driver calls so."""
    name = target_of_device(device, "sm_90a", 132).name
    return "".join(c if c.isalnum() else "-" for c in name.lower()).removesuffix("-sxm")


def ship(new: list[Row], out: Path) -> int:
    """Into a file of text, in place of what it has of the same; how many it has then."""
    held = {row.key: row for row in text.read(out)} if out.exists() else {}
    held |= {row.key: dataclasses.replace(row, source="shipped") for row in new}
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(text.to_text(held.values()))
    return len(held)


if __name__ == "__main__":
    raise SystemExit(main())
