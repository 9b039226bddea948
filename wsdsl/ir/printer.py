"""The one textual form of every op: `%r: type = name(field=value, ...) { region }`."""

from __future__ import annotations

import json
from typing import Any

from wsdsl.ir.op import Kernel, Op, Region, Value, fields_of, op_name, regions

IR_HINT = "correct the IR if it was edited; otherwise report this bug in wsdsl"


def print_kernel(kernel: Kernel) -> str:
    params = ", ".join(_definition(p) for p in kernel.params)
    head = f"kernel {kernel.name} @ {kernel.level} ({params})"
    if kernel.sizes:
        head += f" sizes={_literal(kernel.sizes)}"
    if kernel.unaligned:
        head += f" unaligned={_literal(kernel.unaligned)}"
    if kernel.schedule is not None:
        head += f" schedule={kernel.schedule!r}"
    return f"{head} {{\n{print_region(kernel.body, 1)}}}\n"


def print_region(region: Region, depth: int = 0) -> str:
    return "".join(print_op(op, depth) for op in region)


def print_op(op: Op, depth: int = 0) -> str:
    pad = "  " * depth
    blocks = [f" {{\n{print_region(inner, depth + 1)}{pad}}}" for inner in regions(op)]
    while len(blocks) > 1 and blocks[-1] == f" {{\n{pad}}}":
        blocks.pop()
    return f"{pad}{print_head(op)}{''.join(blocks)}\n"


def print_head(op: Op) -> str:
    """The op without its regions."""
    results: list[str] = []
    shown: list[str] = []
    for name, kind in fields_of(type(op)):
        held = getattr(op, name)
        if kind == "result":
            results += [_definition(v) for v in ((held,) if isinstance(held, Value) else held)]
        elif kind == "bind":
            if not _is_default(op, name, held):
                shown.append(f"{name}={_definitions(held)}")
        elif kind != "region" and not _is_default(op, name, held):
            shown.append(f"{name}={_literal(held)}")
    left = f"{', '.join(results)} = " if results else ""
    return f"{left}{op_name(type(op))}({', '.join(shown)})"


def _is_default(op: Op, name: str, held: Any) -> bool:
    default = type(op).__dataclass_fields__[name].default
    return type(held) is type(default) and held == default


def _definition(value: Value) -> str:
    return f"{value}: {value.type}"


def _definitions(held: Value | tuple[Value, ...]) -> str:
    return _definition(held) if isinstance(held, Value) else _tuple([_definition(v) for v in held])


def _tuple(shown: list[str]) -> str:
    return f"({shown[0]},)" if len(shown) == 1 else f"({', '.join(shown)})"


def _literal(held: Any) -> str:
    if isinstance(held, tuple):
        items: tuple[Any, ...] = held  # pyright: ignore[reportUnknownVariableType]
        return _tuple([_literal(h) for h in items])
    if isinstance(held, str):
        return json.dumps(held)
    return repr(held) if isinstance(held, (bool, int, float)) or held is None else str(held)
