"""What an op is: a frozen dataclass whose fields say, by annotation, what they are.

`Value` (or None, or a tuple of them) fields are operands, `result()` fields define values,
`binds()` fields define the arguments of the op's regions, tuples of ops are regions, and anything
else is an attribute. Printer, parser, walker and `replace` know nothing more about any op.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar, Literal

from wsdsl.diagnostics import Loc
from wsdsl.ir.types import Type
from wsdsl.schedule import Schedule

Level = Literal["tile", "partitioned", "scheduled"]
LEVELS: tuple[Level, ...] = ("tile", "partitioned", "scheduled")
FieldKind = Literal["operand", "result", "bind", "region", "attribute"]


@dataclass(frozen=True, slots=True)
class Value:
    """An SSA value; names are unique in a kernel."""

    name: str
    type: Type

    def __str__(self) -> str:
        return f"%{self.name}"


def result() -> Any:
    """A field that the op defines: a Value, or a tuple of Values."""
    return field(metadata={"kind": "result"})


def results() -> Any:
    """Like `result`, for a tuple of values that is empty when left out."""
    return field(default=(), metadata={"kind": "result"})


def binds() -> Any:
    """A field whose values are defined at the start of the op's region."""
    return field(metadata={"kind": "bind"})


def bound_arguments() -> Any:
    """Like `binds`, for a tuple of values that is empty when left out."""
    return field(default=(), metadata={"kind": "bind"})


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Op:
    """Base of all ops. `levels` says where the op may stand; `loc` takes no part in equality.

    Equality, hash and repr are written here once: as dataclasses make them, for each of some
    seventy classes, they cost a tenth of the time in which a kernel is compiled.
    """

    levels: ClassVar[tuple[Level, ...]] = ()
    loc: Loc | None = field(default=None)

    def _fields(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name, _ in fields_of(type(self)))

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self is other or self._fields() == other._fields()

    def __hash__(self) -> int:
        return hash((type(self), self._fields()))

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name, _ in fields_of(type(self)))
        return f"{type(self).__name__}({shown})"


Region = tuple[Op, ...]


@cache
def op_name(cls: type[Op]) -> str:
    """ForTiles -> for_tiles."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()


@cache
def fields_of(cls: type[Op]) -> tuple[tuple[str, FieldKind], ...]:
    """(name, kind) of every field but `loc`, in declaration order."""
    found: list[tuple[str, FieldKind]] = []
    for f in dataclasses.fields(cls):
        annotation = str(f.type)
        if f.name == "loc":
            continue
        if "kind" in f.metadata:
            kind: FieldKind = f.metadata["kind"]
        elif "Value" in annotation:
            kind = "operand"
        elif annotation == "Region":
            kind = "region"
        else:
            kind = "attribute"
        found.append((f.name, kind))
    return tuple(found)


def _values(op: Op, kind: FieldKind) -> Iterator[Value]:
    for name, k in fields_of(type(op)):
        if k == kind:
            held = getattr(op, name)
            if isinstance(held, Value):
                yield held
            elif held is not None:
                yield from held


def operands(op: Op) -> tuple[Value, ...]:
    return tuple(_values(op, "operand"))


def results_of(op: Op) -> tuple[Value, ...]:
    return tuple(_values(op, "result"))


def bound(op: Op) -> tuple[Value, ...]:
    return tuple(_values(op, "bind"))


def regions(op: Op) -> tuple[Region, ...]:
    return tuple(getattr(op, name) for name, k in fields_of(type(op)) if k == "region")


@dataclass(frozen=True)
class Kernel:
    """A kernel at one level. `params` are tensors and scalars; their order is the call's.

    `sizes` fixes dimensions at compile time (those that are taken whole); `unaligned` names tensors
    whose address or row stride is no multiple of 16 bytes, which TMA cannot take; `schedule` is
    what the user chose, and the whole choice from `choose_schedule` on.
    """

    name: str
    level: Level
    params: tuple[Value, ...]
    body: Region
    sizes: tuple[tuple[str, int], ...] = ()
    unaligned: tuple[str, ...] = ()
    schedule: Schedule | None = None
    loc: Loc | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        from wsdsl.ir.printer import print_kernel

        return print_kernel(self)
