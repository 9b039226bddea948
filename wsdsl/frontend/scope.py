"""What names mean: the block's own, then the file's, what Python captured, the language's words."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from wsdsl.frontend import syntax as s
from wsdsl.frontend.entities import (
    Builtin,
    DimName,
    Entity,
    Foreign,
    FunctionRef,
    Literal,
    TypeName,
)
from wsdsl.ir.tile_ops import UNARY_FUNCTIONS
from wsdsl.ir.types import DTYPES

WORDS = (
    "tiles", "each", "end", "zeros", "full", "index", "cast", "bitcast", "where", "lookup", "sum",
    "max", "min", "fma", "dims", *(f for f in UNARY_FUNCTIONS if f not in ("neg", "not")),
)  # fmt: skip

OF_PYTHON = {
    "print": "look at values with k.reference(…) or k.simulate(…) on NumPy arrays",
    "range": "`for m in tiles(M):`, or `for i in each(N):`",
    "len": "a dimension's name is its size",
    "pow": "write x ** y",
    "enumerate": "index(m) gives the positions along an axis",
    "zip": "`for m, n in tiles(M, N):` walks several dimensions",
    "float": "element types have a width: f32",
    "int": "element types have a width: i32",
}

Capture = Callable[[str], Entity | None]


@dataclass(frozen=True, eq=False)
class Scope:
    """Names outside a definition's body: those of its file, and those that Python captured."""

    module: s.Module
    capture: Capture = field(default=lambda name: None)

    def find(self, name: str, node: s.Name) -> Entity | None:
        module = self.module
        if name in module.constants:
            return Literal(module.constants[name], loc=node.loc)
        if name in module.dims:
            return DimName(module.dims[name])
        captured = self.capture(name)
        if isinstance(captured, Literal):
            return Literal(captured.value, loc=node.loc)
        if captured is not None:
            return captured
        definition = module.definitions.get(name)
        if definition is not None and definition.kind == "function":
            return FunctionRef(definition, self)
        if definition is not None:
            return Foreign(f"`{name}` is a kernel", "only @functions can be called in a kernel")
        if name in DTYPES:
            return TypeName(DTYPES[name])
        if name == "inf":
            return Literal(math.inf, loc=node.loc)
        return Builtin(name) if name in WORDS else None


def suggestion(name: str, known: Mapping[str, object], scope: Scope) -> str:
    """A hint for an unknown name: what may have been meant."""
    if name in OF_PYTHON:
        return OF_PYTHON[name]
    words = [*known, *WORDS, *DTYPES, *scope.module.definitions, *scope.module.dims]
    close = difflib.get_close_matches(name, words, n=1)
    return f"did you mean `{close[0]}`?" if close else "assign it before this line"
