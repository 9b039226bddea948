"""Kernels that arrive as Python functions: their source, and what their names stand for there."""

from __future__ import annotations

import builtins
import inspect
from types import FunctionType, ModuleType
from typing import Any

from wsdsl import language
from wsdsl.diagnostics import Finding, Loc, ParseError
from wsdsl.frontend import syntax as s
from wsdsl.frontend.build import Kind
from wsdsl.frontend.entities import (
    Builtin,
    DimName,
    Entity,
    Foreign,
    FunctionRef,
    Literal,
    TypeName,
)
from wsdsl.frontend.parse import parse
from wsdsl.frontend.scope import WORDS, Scope
from wsdsl.frontend.source import Source
from wsdsl.ir.types import DTYPES

NOWHERE = Loc("<python>", 0, 0, 0)


def definition_of(fn: FunctionType, kind: Kind) -> tuple[s.Definition, Scope]:
    """Parse a function's source. ParseError if Python does not have it."""
    try:
        lines, first = inspect.getsourcelines(fn)
    except (OSError, TypeError):
        hint = "define it in a file, or give the text to wsdsl.parse"
        raise ParseError(
            Finding(f"the source of `{fn.__name__}` is not to be had", hint=hint)
        ) from None
    skipped = next((i for i, line in enumerate(lines) if line.lstrip().startswith("def ")), 0)
    file = inspect.getsourcefile(fn) or "<python>"
    source = Source(file, "".join(lines[skipped:]), max(first, 1) + skipped)
    module = parse(source, kind)
    definition = module.definitions[fn.__name__]
    module.definitions.clear()
    return definition, Scope(module, _capture(fn))


def _capture(fn: FunctionType) -> Any:
    cells = inspect.getclosurevars(fn) if fn.__closure__ else None
    closure: dict[str, Any] = dict(cells.nonlocals) if cells else {}

    def capture(name: str) -> Entity | None:
        for names in (closure, fn.__globals__):
            if name in names:
                return _entity(name, names[name])
        return _entity(name, getattr(builtins, name)) if hasattr(builtins, name) else None

    return capture


def _entity(name: str, held: Any) -> Entity | None:
    """What a Python object means in a kernel."""
    if isinstance(held, language.Dim):
        return DimName(held.name)
    if isinstance(held, language.Function):
        return FunctionRef(*definition_of(held.python, "function"))
    if isinstance(held, (bool, int, float)):
        return Literal(held, loc=NOWHERE)
    if isinstance(held, type) and issubclass(held, language.Tile) and held.__name__ in DTYPES:
        return TypeName(DTYPES[held.__name__])
    word = getattr(held, "__name__", "")
    if getattr(held, "__module__", "") == language.__name__ and word in WORDS:
        return Builtin(word)
    if held in (builtins.sum, builtins.max, builtins.min, builtins.abs):
        return Builtin(word)
    if held is builtins.bool:
        return TypeName(DTYPES["bool"])
    if getattr(builtins, name, None) is held and name not in ("print", "range", "len"):
        return None
    hints = {
        "print": "kernels print nothing; dump the IR, or store to a tensor",
        "range": "for m in tiles(M), or for i in each(N)",
        "len": "a dimension's name is its size",
    }
    what = "a module" if isinstance(held, ModuleType) else f"of type {type(held).__name__}"
    hint = hints.get(name, "numbers, dims and @functions can be used from outside")
    return Foreign(f"`{name}` is {what}, which means nothing in a kernel", hint)
