"""Options of the form NAME=VALUE, and the mistakes in them."""

import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any

from wsdsl.deprecation import FIELDS, current_fields
from wsdsl.diagnostics import ScheduleError, WsdslError, did_you_mean
from wsdsl.records.entry import parse_schedule
from wsdsl.schedule import Schedule

BOOLEANS = {"true": True, "false": False}


class UsageError(WsdslError):
    """A mistake in the command line."""


def pairs(texts: Iterable[str], option: str, example: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not (key.strip() and equals and value.strip()):
            raise UsageError(f"WS1010 {option} {text}: expected NAME=VALUE", hint=f"give {example}")
        if found.setdefault(key.strip(), value.strip()) != value.strip():
            raise UsageError(f"WS1011 {option} {key.strip()} has two values", hint="give one value")
    return found


def sizes_from(texts: Iterable[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    each = (part for text in texts for part in text.split(",") if part.strip())
    for name, value in pairs(each, "--size", "--size M=512 N=512").items():
        if not value.isdecimal():
            message = f"WS1012 --size {name}={value}: {value!r} is not a size"
            raise UsageError(message, hint=f"give an integer, as in --size {name}=512")
        found[name] = int(value)
    return found


def scalars_from(texts: Iterable[str]) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, value in pairs(texts, "--scalar", "--scalar alpha=0.5").items():
        try:
            found[name] = float(value)
        except ValueError:
            message = f"WS1013 --scalar {name}={value}: {value!r} is not a number"
            raise UsageError(message, hint=f"give a number, as in --scalar {name}=0.5") from None
    return found


def schedule_from(texts: Iterable[str]) -> Schedule | None:
    """A Schedule from `tile.n=192`, `stages=4`, …; None if there are none."""
    held: dict[str, Any] = {}
    known = [f.name for f in fields(Schedule)]
    for key, value in pairs(texts, "--set", "--set tile.n=192 --set stages=4").items():
        name, dot, part = key.partition(".")
        if name in FIELDS:
            print(f"`--set {name}` is deprecated; use `--set {FIELDS[name]}`", file=sys.stderr)
        name = FIELDS.get(name, name)
        check_names([name], known, "field", "Schedule", ScheduleError)
        typed = int(value) if value.lstrip("-").isdecimal() else BOOLEANS.get(value.lower(), value)
        by_name = name in ("tile", "cluster", "registers", "smem_privatize")
        by_name = by_name or (name == "operand_transform" and bool(dot))
        if by_name != bool(dot):
            want = f"{name}.m=128" if by_name else f"{name}={value}"
            message = f"WS1014 --set {key}={value}: {name} is {'' if by_name else 'not '}a mapping"
            raise ScheduleError(message, hint=f"give --set {want}")
        if name == "smem_privatize":
            held.setdefault(name, {})[part] = tuple(map(int, re.findall(r"\d+", value)))
        elif by_name:
            if isinstance(typed, str) and name != "operand_transform":
                message = f"WS1015 --set {key}={value}: {value!r} is not an integer"
                raise ScheduleError(message, hint=f"give an integer, as in --set {key}=128")
            held.setdefault(name, {})[part] = typed
        else:
            names = name == "pdl_independent"
            held[name] = tuple(re.findall(r"\w+", value)) if names else typed
    return Schedule(**current_fields(held)) if held else None


def in_options(hint: str) -> str:
    """A hint whose fields of a schedule, and sizes, are options of the command line."""
    named = "|".join(f.name for f in fields(Schedule))
    hint = re.sub(r"\bcompile\((\w+=\d+)\)", r"--size \1", hint)
    hint = re.sub(r"\b(\w+)=dict\((\w+)=(\w+)\)", r"--set \1.\2=\3", hint)
    hint = re.sub(rf'(?<!--set )\b({named})="?(\w+)"?', r"--set \1=\2", hint)
    return re.sub(r"Schedule\((--set [^()]*)\)", r"\1", hint)


def written_schedule(text: str) -> Schedule:
    """A Schedule from its repr."""
    try:
        return parse_schedule(text)
    except ValueError:
        hint = "write it as in --schedule 'Schedule(tile=dict(n=128), stages=4)'"
        raise UsageError(f"WS1016 --schedule {text}: not a schedule", hint=hint) from None


def check_names(
    given: Iterable[str],
    known: Sequence[str],
    what: str,
    where: str,
    kind: type[WsdslError] = UsageError,
) -> None:
    for name in given:
        if name not in known:
            raise kind(f"WS1017 {where} has no {what} `{name}`", hint=did_you_mean(name, known))
