"""`wsdsl cache`: the compiled kernels on disk."""

import argparse
import json
import time
import zlib
from dataclasses import replace
from typing import Any

from wsdsl import config
from wsdsl.artifact.artifact import Artifact
from wsdsl.artifact.cache import disk
from wsdsl.artifact.disk import File
from wsdsl.artifact.serialization import CorruptError, OtherFormatError, from_bytes, opened
from wsdsl.artifact.versions import emitter
from wsdsl.cli.options import UsageError
from wsdsl.cli.source_argument import CACHE_OFF
from wsdsl.diagnostics import counted
from wsdsl.regular_file import read_regular


def cache_command(options: argparse.Namespace) -> int:
    place = disk()
    if place is None:
        raise UsageError(CACHE_OFF)
    if options.clear:
        gone = place.clear()
        told = {"folder": str(place.folder), "removed": len(gone), "bytes": _bytes(gone)}
        shown = f"{place.folder}: {counted(len(gone), 'entry', 'entries')} removed"
        print(json.dumps(told, indent=2) if options.json else shown)
        return 0
    files = place.files()
    rows = [_row(file, checked=options.check) for file in files]
    states = [row["state"] for row in rows]
    damaged = states.count("damaged")
    told: dict[str, Any] = {
        "folder": str(place.folder),
        "bytes": _bytes(files),
        "limit": place.limit,
        "entries": len(files),
        "of_other_versions": states.count("of another version"),
        "damaged": damaged,
    }
    if options.json:
        print(json.dumps(told if options.check else told | {"kernels": _kernels(rows)}, indent=2))
        return int(options.check and damaged > 0)
    if not options.check:
        for row in _kernels(rows):
            print(f"{row['used']}  {row['bytes'] / 1024:6.0f} KiB  {row['kernel']}")
            print(f"    {row['schedule']}")
    used, room = told["bytes"] / 2**20, place.limit / 2**20
    num = counted(len(files), "entry", "entries")
    print(f"{place.folder}: {num}, {used:.1f} of {room:.0f} MiB")
    print(f"{told['of_other_versions']} of other versions of wsdsl, which are unused")
    print(f"{damaged} damaged, which are rebuilt on demand")
    if emitter() is None:
        print("this process caches nothing: the sources of wsdsl are not files, or have changed")
    return int(options.check and damaged > 0)


def _bytes(files: list[File]) -> int:
    return sum(file.bytes for file in files)


def _row(file: File, *, checked: bool) -> dict[str, Any]:
    state, made = "good", None
    try:
        data = read_regular(file.path)
        if opened(file.key, data)[0] == emitter():
            made = from_bytes(file.key, data).value
            if checked and isinstance(made, Artifact) and not _comes_again(made):
                state, made = "damaged", None
        else:
            state = "of another version"
    except OtherFormatError:
        state = "of another version"
    except (CorruptError, OSError):
        state = "damaged"
    row: dict[str, Any] = {"state": state, "bytes": file.bytes}
    row["used"] = time.strftime("%Y-%m-%d %H:%M", time.localtime(file.used))
    if isinstance(made, Artifact):
        row |= {"kernel": made.name, "schedule": repr(made.schedule)}
        row["ptxas"] = made.versions.ptxas or None
    return row


COMPARED = ("params", "sizes", "schedule", "signature", "certificate", "ptx")


def _comes_again(held: Artifact) -> bool:
    """Whether its IR gives the same arguments, certificate and code as it holds."""
    from wsdsl.dispatch.compiled import Compiled
    from wsdsl.ir.parser import parse_kernel

    own = {} if held.cubin else {"ptxas": "off"}
    try:
        with config.override(allow_spills=True, **own):
            made = Compiled(parse_kernel(zlib.decompress(held.deflated_ir).decode())).artifact
        compared = COMPARED
        if held.versions.ptxas == made.versions.ptxas:
            compared = (*compared, "cubin", "resources")
        is_same = all(getattr(held, name) == getattr(made, name) for name in compared)
        return is_same and replace(held.access, whole={}) == made.access
    except Exception:  # any damage
        return False


def _kernels(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if "kernel" in row]
