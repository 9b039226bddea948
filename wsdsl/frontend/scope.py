"""What names mean: the block's own, then the file's, what Python captured, the language's words."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from wsdsl.frontend import entities as e
from wsdsl.frontend import syntax as s
from wsdsl.frontend.foreign import meant
from wsdsl.ir.tile_ops import UNARY_FUNCTIONS
from wsdsl.ir.types import DTYPES

WORDS = (
    "tiles", "each", "end", "zeros", "full", "index", "cast", "bitcast", "where", "lookup", "sum",
    "max", "min", "argmax", "argmin", "cumsum", "topk", "fma", "mulhi", "popcount", "dims",
    *(f for f in UNARY_FUNCTIONS if f not in ("neg", "not")),
)  # fmt: skip

Capture = Callable[[str], e.Entity | None]


@dataclass(frozen=True, eq=False)
class Scope:
    """Names outside a definition's body: those of its file, and those that Python captured."""

    module: s.Module
    capture: Capture = field(default=lambda name: None)

    def find(self, name: str, node: s.Name) -> e.Entity | None:
        module = self.module
        if name in module.constants:
            return e.Literal(module.constants[name], loc=node.loc)
        if name in module.dims:
            return e.DimName(module.dims[name])
        captured = self.capture(name)
        if isinstance(captured, e.Literal):
            return e.Literal(captured.value, loc=node.loc)
        if captured is not None:
            return captured
        definition = module.definitions.get(name)
        if definition is not None and definition.kind == "function":
            return e.FunctionRef(definition, self)
        if definition is not None:
            hint = "call an @function, which several kernels can share"
            return e.Foreign(f"WS0137 a kernel cannot use kernel `{name}`", hint)
        if name in DTYPES:
            return e.TypeName(DTYPES[name])
        if name == "inf":
            return e.Literal(math.inf, loc=node.loc)
        return e.Builtin(name) if name in WORDS else None


def suggestion(
    name: str, known: Mapping[str, object], scope: Scope, *, called: bool = False
) -> str:
    """A hint for an unknown name: what may have been meant."""
    if hint := meant(name):
        return hint
    functions = (n for n, made in scope.module.definitions.items() if made.kind == "function")
    words = [*known, *WORDS, *DTYPES, *functions, *scope.module.dims]
    close = difflib.get_close_matches(name, words, n=1, cutoff=0.66)
    if close:
        return f"did you mean `{close[0]}`?"
    if called:
        return "use a function of docs/language.md, or define one under @function"
    return "assign it before this line"
