"""Kernels as Python functions: their source, and the Python values of their names."""

import builtins
from numbers import Integral, Real
from types import FunctionType, ModuleType
from typing import Any

from wsdsl import annotations, language
from wsdsl.diagnostics import Loc, ParseError
from wsdsl.frontend import entities as e
from wsdsl.frontend import syntax as s
from wsdsl.frontend.build import Kind
from wsdsl.frontend.entities import WORDS, Capture, Scope
from wsdsl.frontend.foreign import meant
from wsdsl.frontend.kernel_source import Written
from wsdsl.frontend.parse import parse
from wsdsl.frontend.source import Source
from wsdsl.ir.types import DTYPES

NOTHING = object()
NOWHERE = Loc("<python>", 0, 0, 0)


def definition_of(written: Written, kind: Kind) -> tuple[s.Definition, Scope]:
    """Parse a function's source. ParseError if Python has no source."""
    name = written.fn.__name__
    if written.odd_line:
        line, first = written.odd_line, written.first_line
        loc = Loc(written.file, first, 1, len(line) + 1, line)
        raise ParseError(f"WS0134 `{name}` is not a def", loc, f"write it as a def under @{kind}")
    if not written.text:
        hint = "define it in a file, or pass its source to wsdsl.parse"
        raise ParseError(f"WS0135 Python has no source of `{name}`", hint=hint)
    module = parse(Source(written.file, written.text, written.first_line), kind)
    (definition,) = module.definitions.values()
    module.definitions.clear()
    return definition, Scope(module, _capture(written, _in_annotations(written.fn, definition)))


def _in_annotations(fn: FunctionType, definition: s.Definition) -> dict[str, Any]:
    """Return the values of names in the parameters' types: closures lack local variables that only
    annotations use."""
    found: dict[str, Any] = {}
    for p in definition.params:
        held, written = fn.__annotations__.get(p.name), p.annotation
        if isinstance(held, annotations.TensorType) and isinstance(written, s.Subscript):
            for entry, dim in zip(written.entries, held.dims):
                if isinstance(entry, s.Name):
                    found[entry.name] = dim
            if isinstance(written.base, s.Name):
                found[written.base.name] = held.element
    return found


def _capture(written: Written, annotated: dict[str, Any]) -> Capture:
    functions: dict[int, e.FunctionRef] = {}

    def capture(name: str) -> e.Entity | None:
        found = annotated.get(name, written.names.get(name, NOTHING))
        if isinstance(found, language.Function):
            if id(found) not in functions:
                inlined = definition_of(written.function(found), "function")
                functions[id(found)] = e.FunctionRef(*inlined)
            return functions[id(found)]
        return None if found is NOTHING else _entity(name, found)

    return capture


def _entity(name: str, held: Any) -> e.Entity | None:
    """Return the entity of a Python object in a kernel."""
    if isinstance(held, annotations.Dim):
        return e.DimName(held.name)
    if isinstance(held, (bool, int, float)):
        return e.Literal(held, loc=NOWHERE)
    if isinstance(held, Integral):  # NumPy's
        return e.Literal(int(held), loc=NOWHERE)
    if isinstance(held, Real):
        return e.Literal(float(held), loc=NOWHERE)
    if isinstance(held, type) and issubclass(held, annotations.Tile) and held.__name__ in DTYPES:
        return e.TypeName(DTYPES[held.__name__])
    word = getattr(held, "__name__", "")
    if getattr(held, "__module__", "") == language.__name__ and word in WORDS:
        return e.Builtin(word)
    if any(held is b for b in (builtins.sum, builtins.max, builtins.min, builtins.abs)):
        return e.Builtin(word)
    if held is builtins.bool:
        return e.TypeName(DTYPES["bool"])
    if getattr(builtins, name, NOTHING) is held:
        return None
    what = "a module" if isinstance(held, ModuleType) else f"of type {type(held).__name__}"
    hint = "use only numbers, dims and @functions from outside the kernel"
    if isinstance(held, FunctionType):
        hint = f"put @function above `def {held.__name__}`"
    elif word in WORDS or name in WORDS:
        hint = f"import it from wsdsl: from wsdsl import {word if word in WORDS else name}"
    elif told := meant(word) or meant(name):
        hint = told
    elif hasattr(held, "__array__") or hasattr(held, "__dlpack__"):
        hint = "pass the array as a parameter"
    return e.Foreign(f"WS0136 `{name}` is {what}, which a kernel cannot use", hint)
