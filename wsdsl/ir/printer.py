"""The one textual form of every op: `%r: type = name(field=value, ...) { region }`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from wsdsl.ir.op_fields import OpFields, fields_of, names_of, op_name
from wsdsl.ir.types import Value

IR_HINT = "correct the IR if it was edited; otherwise report this bug in wsdsl"


def print_region(region: Iterable[OpFields], depth: int = 0) -> str:
    return "".join(print_op(op, depth) for op in region)


def print_op(op: OpFields, depth: int = 0) -> str:
    pad = "  " * depth
    blocks = [f" {{\n{print_region(inner, depth + 1)}{pad}}}" for inner in _regions(op)]
    while len(blocks) > 1 and blocks[-1] == f" {{\n{pad}}}":
        blocks.pop()
    return f"{pad}{print_head(op)}{''.join(blocks)}\n"


def print_head(op: OpFields) -> str:
    """The op without its regions."""
    results: list[str] = []
    shown: list[str] = []
    for name, kind in fields_of(type(op)):
        held = getattr(op, name)
        if kind == "result":
            results += [definition(v) for v in ((held,) if isinstance(held, Value) else held)]
        elif kind == "bind":
            if not _is_default(op, name, held):
                shown.append(f"{name}={_definitions(held)}")
        elif kind != "region" and not _is_default(op, name, held):
            shown.append(f"{name}={literal(held)}")
    left = f"{', '.join(results)} = " if results else ""
    return f"{left}{op_name(type(op))}({', '.join(shown)})"


def _regions(op: OpFields) -> list[Iterable[OpFields]]:
    return [getattr(op, name) for name in names_of(type(op), "region")]


def _is_default(op: OpFields, name: str, held: Any) -> bool:
    default = type(op).__dataclass_fields__[name].default
    return type(held) is type(default) and held == default


def definition(value: Value) -> str:
    return f"{value}: {value.type}"


def _definitions(held: Value | tuple[Value, ...]) -> str:
    return definition(held) if isinstance(held, Value) else _tuple([definition(v) for v in held])


def _tuple(shown: list[str]) -> str:
    return f"({shown[0]},)" if len(shown) == 1 else f"({', '.join(shown)})"


def literal(held: Any) -> str:
    if isinstance(held, tuple):
        items: tuple[Any, ...] = held  # pyright: ignore[reportUnknownVariableType]
        return _tuple([literal(h) for h in items])
    if isinstance(held, str):
        return json.dumps(held)
    return repr(held) if isinstance(held, (bool, int, float)) or held is None else str(held)
