"""`wsdsl tuning-cache`: the measured schedules that the compiler uses."""

import argparse
import dataclasses
import json
from collections.abc import Callable, Iterable
from itertools import groupby
from pathlib import Path

from wsdsl.cli.commands import require_sizes
from wsdsl.cli.options import UsageError, check_names, scalars_from, schedule_from, sizes_from
from wsdsl.cli.source_argument import CACHE_OFF, load_kernel
from wsdsl.diagnostics import CODE, ScheduleError, counted
from wsdsl.ir.types import Tile
from wsdsl.records import text
from wsdsl.records.database import Database, RecordsError, user_file
from wsdsl.records.entry import Row

ACTIONS = ("list", "show", "merge", "export", "clear")


def tuning_cache_options(
    command: Callable[[str, Callable[[argparse.Namespace], int], str], argparse.ArgumentParser],
) -> None:
    text = "List, merge or export measured schedules."
    made = command("tuning-cache", tuning_cache_command, text)
    text = "list: the entries in use"
    made.add_argument("action", choices=ACTIONS, nargs="?", default="list", help=text)
    text = "show: kernels, with all their measurements; merge: databases or exported files"
    made.add_argument("what", nargs="*", metavar="KERNEL|FILE", help=text)
    made.add_argument("-o", "--output", metavar="FILE", type=Path, help="export: the file (stdout)")


def tuning_cache_command(options: argparse.Namespace) -> int:
    takes_names = options.action in ("show", "merge")
    if bool(options.what) != takes_names:
        expected = {"merge": "FILE …", "show": "KERNEL …"}.get(options.action, "no names")
        raise UsageError(f"WS1018 tuning-cache {options.action}: expected {expected}")
    try:
        return _ACTIONS[options.action](options)
    except RecordsError as error:
        raise UsageError(f"WS1019 {error}", hint="`wsdsl tuning-cache clear` empties it") from None


def _list(options: argparse.Namespace) -> int:
    rows = [row for row in _all() if row.chosen]
    if options.json:
        return _json(rows)
    for row in rows:
        print(f"{row.name}  {_about(row)}\n    {row}\n    {row.schedule}")
    print(f"{counted(len(rows), 'entry', 'entries')}; the user's: {user_file() or 'off'}")
    return 0


def _show(options: argparse.Namespace) -> int:
    rows = [row for row in _all() if row.name in options.what or row.kernel in options.what]
    if not rows:
        known = ", ".join(sorted({row.name for row in _all()})) or "none"
        message = f"WS1020 the tuning cache has no measurements of {', '.join(options.what)}"
        raise UsageError(message, hint=f"measured kernels: {known}")
    if options.json:
        return _json(rows)
    rows = sorted(rows, key=lambda row: (row.key, bool(row.failure), row.bursts))
    for _, same in groupby(rows, key=lambda row: row.key):
        held = list(same)
        print(f"{held[0].name} ({held[0].kernel})  {_about(held[0])}")
        for row in held:
            print(f"  {'*' if row.chosen else ' '} {row}\n      {row.schedule}")
    return 0


def _merge(options: argparse.Namespace) -> int:
    path, num = _own(), 0
    for file in options.what:
        rows = [dataclasses.replace(row, source="imported") for row in text.read(Path(file))]
        for row in rows:
            try:
                fault = row.fault()
            except (ValueError, ScheduleError) as error:
                fault = f"this version rejects the schedule: {CODE.sub('', str(error))}"
            if fault:
                hint = "remove this measurement from the file"
                raise UsageError(f"WS1021 {file}: {row.name}, {row.sizes}: {fault}", hint=hint)
        num += Database(path).merge(rows)
    return _done(options, path, "merged", num)


def _export(options: argparse.Namespace) -> int:
    rows = _users()
    if options.json:
        return _json(rows)
    if options.output is None:
        print(text.to_text(rows), end="")
    else:
        options.output.write_text(text.to_text(rows), encoding="utf-8")
        print(f"{options.output}: {counted(len(rows), 'measurement')}")
    return 0


def _clear(options: argparse.Namespace) -> int:
    path = _own()
    return _done(options, path, "removed", Database(path).clear())


def _done(options: argparse.Namespace, path: Path, what: str, num: int) -> int:
    told = json.dumps({"file": str(path), what: num})
    print(told if options.json else f"{path}: {counted(num, 'measurement')} {what}")
    return 0


_ACTIONS: dict[str, Callable[[argparse.Namespace], int]] = {
    "list": _list, "show": _show, "merge": _merge, "export": _export, "clear": _clear,
}  # fmt: skip


def _all() -> list[Row]:
    """The user's, then those that are shipped."""
    return [*_users(), *(row for file in text.shipped_files() for row in text.read(file))]


def _users() -> list[Row]:
    path = user_file()
    return Database(path).rows() if path is not None else []


def _own() -> Path:
    path = user_file()
    if path is None:
        raise UsageError(CACHE_OFF)
    return path


def _json(rows: Iterable[Row]) -> int:
    print(json.dumps([dataclasses.asdict(row) for row in rows], indent=2))
    return 0


def _about(row: Row) -> str:
    parts = (row.sizes, row.alignment, row.promises, f"{row.card}, {row.num_sms} SMs")
    return "; ".join(part for part in parts if part)


def tune_command(options: argparse.Namespace) -> int:
    kernel = load_kernel(options.target)
    schedule, sizes = schedule_from(options.set), sizes_from(options.size)
    scalars = scalars_from(options.scalar)
    require_sizes(kernel, sizes)
    named = [p.name for p in kernel.params if isinstance(p.type, Tile)]
    check_names(scalars, named, "scalar", kernel.name)
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
        print(tuned, *([options.plot] if options.plot else []), sep="\n")
    return 0
