"""Reads back what `ir/printer.py` wrote: `parse_kernel(str(k)) == k`, at every level."""

from __future__ import annotations

import json
import re
from dataclasses import MISSING
from functools import cache
from pathlib import Path
from typing import Any, NoReturn, get_type_hints

from lark import Lark, Token, Tree, UnexpectedInput
from lark.exceptions import UnexpectedEOF, UnexpectedToken

from wsdsl.deprecation import current_fields
from wsdsl.diagnostics import Loc, ParseError, WsdslError
from wsdsl.ir import ops as ops  # Registers all ops.
from wsdsl.ir import types as t
from wsdsl.ir.op import FORMER_NAMES, LEVELS, OPS, Kernel, Op, Region, Value
from wsdsl.ir.op_fields import fields_of
from wsdsl.ir.verify.attribute_ranges import fits, shown
from wsdsl.schedule import Schedule

DOCS = "compare with docs/ir.md"
MAX_NESTED = 100
"""Braces and parentheses in each other."""


@cache
def grammar() -> Lark:
    text = Path(__file__).with_name("ir.lark").read_text(encoding="utf-8")
    return Lark(text, parser="lalr", maybe_placeholders=True)


def parse_kernel(text: str, file: str = "<ir>") -> Kernel:
    """Parse the text of a kernel. ParseError with line and caret: bad syntax, op or field."""
    _check_nesting(text, file)
    try:
        tree = grammar().parse(text)
    except UnexpectedInput as e:
        ended = isinstance(e, UnexpectedToken) and e.token.type == "$END"
        if ended or isinstance(e, UnexpectedEOF):
            lines = text.rstrip().splitlines() or [""]
            loc = _loc(lines, file, len(lines), len(lines[-1]), len(lines[-1]) + 1)
            raise ParseError("WS0200 the IR ends within a block", loc, "add a `}`") from e
        loc = _loc(text.splitlines(), file, e.line, e.column, e.column + 1)
        raise ParseError("WS0201 this is not IR", loc, DOCS) from e
    return _Reader(text, file).kernel(tree.children[0])


def _check_nesting(text: str, file: str) -> None:
    depth = 0
    for found in re.finditer(r'"(?:[^"\\]|\\.)*"|#[^\n]*|[(){}]', text):
        depth += {"(": 1, "{": 1, ")": -1, "}": -1}.get(found[0], 0)
        if depth > MAX_NESTED:
            line = text.count("\n", 0, found.start()) + 1
            column = found.start() - text.rfind("\n", 0, found.start())
            loc = _loc(text.splitlines(), file, line, column, column + 1)
            message = f"WS0202 a nesting depth of {depth} exceeds {MAX_NESTED}"
            raise ParseError(message, loc, "remove nested braces or parentheses")


def _loc(lines: list[str], file: str, line: int, column: int, end: int) -> Loc:
    return Loc(file, line, column, end, lines[line - 1] if 0 < line <= len(lines) else "")


class _Reader:
    def __init__(self, text: str, file: str) -> None:
        self.lines, self.file = text.splitlines(), file
        self.values: dict[str, Value] = {}

    def fail(self, at: Any, message: str, hint: str = DOCS) -> NoReturn:
        raise ParseError(message, self.loc(at), hint)

    def loc(self, at: Any) -> Loc:
        """Of a token: a tree has no place of its own, which would be most of the work to keep."""
        end = at.end_column if at.end_line == at.line else at.column + 1
        return _loc(self.lines, self.file, at.line, at.column, end)

    def kernel(self, tree: Any) -> Kernel:
        name, level, *rest = tree.children
        if str(level) not in LEVELS:
            self.fail(level, f"WS0203 unknown level `{level}`", f"use one of {', '.join(LEVELS)}")
        *params, sizes, unaligned, schedule, body = rest
        held = tuple(self.define(p) for p in params if p is not None)
        return Kernel(
            name=str(name),
            level=next(known for known in LEVELS if known == str(level)),
            params=held,
            sizes=self.fitting(name, sizes, tuple[tuple[str, int], ...]) if sizes else (),
            unaligned=self.fitting(name, unaligned, tuple[str, ...]) if unaligned else (),
            schedule=self.call(schedule.children[0]) if schedule else None,
            body=self.block(body),
            loc=self.loc(name),
        )

    def block(self, tree: Any) -> Region:
        return tuple(self.op(child) for child in tree.children)

    def op(self, tree: Any) -> Op:
        children = [c for c in tree.children if c is not None]
        defined = [c for c in children if isinstance(c, Tree) and c.data == "define"]
        name = next(c for c in children if isinstance(c, Token))
        cls = OPS.get(str(name), FORMER_NAMES.get(str(name)))
        if cls is None:
            self.fail(name, f"WS0204 unknown op `{name}`")
        kinds = dict(fields_of(cls))
        held: dict[str, Any] = {}
        # Uses come before definitions, so that an op cannot refer to its own results.
        for field in (c for c in children if isinstance(c, Tree) and c.data == "field"):
            key = field.children[0]
            if kinds.get(str(key)) not in ("operand", "bind", "attribute"):
                self.fail(key, f"WS0205 `{name}` has no field `{key}`")
            held[str(key)] = self.fitting(key, field, _hints(cls)[str(key)])
        found = [self.define(d) for d in defined]
        for key, kind in kinds.items():
            if kind == "result":
                single = not str(cls.__dataclass_fields__[key].type).startswith("tuple")
                if single and len(found) != 1:
                    self.fail(name, f"WS0206 `{name}` defines one value, not {len(found)}")
                held[key] = found[0] if single else tuple(found)
                found = []
        if found:
            self.fail(name, f"WS0207 `{name}` defines no value")
        blocks = [c for c in children if isinstance(c, Tree) and c.data == "block"]
        names = [key for key, kind in kinds.items() if kind == "region"]
        if not bool(names) <= len(blocks) <= len(names):
            self.fail(name, f"WS0208 `{name}` has {len(names)} regions, not {len(blocks)}")
        for key, region in zip(names, blocks, strict=False):
            held[key] = self.block(region)
        try:
            return cls(**held, loc=self.loc(name))
        except TypeError:
            fields = cls.__dataclass_fields__
            missing = [k for k in kinds if k not in held and fields[k].default is MISSING]
            self.fail(name, f"WS0209 `{name}` lacks {', '.join(missing)}")

    def fitting(self, at: Any, tree: Any, hint: Any) -> Any:
        held = self.field(tree.children[-1])
        if not fits(held, hint):
            self.fail(at, f"WS0210 `{at}` is {shown(type(held))}; expected {shown(hint)}")
        return held

    def field(self, tree: Any) -> Any:
        if isinstance(tree, Tree) and tree.data == "define":
            return self.define(tree)
        if isinstance(tree, Tree) and tree.data == "defines":
            return tuple(self.define(d) for d in tree.children if d is not None)
        return self.literal(tree)

    def define(self, tree: Any) -> Value:
        name, kind = tree.children
        value = Value(str(name)[1:], self.type(kind))
        if value.name in self.values:
            self.fail(name, f"WS0211 {name} is defined twice", "rename one of the values")
        self.values[value.name] = value
        return value

    def literal(self, tree: Any) -> Any:
        children = [c for c in tree.children if c is not None]
        match tree.data:
            case "integer":
                return int(children[0])
            case "real":
                return float(children[0])
            case "string":
                try:
                    return json.loads(children[0], strict=False)
                except ValueError as error:
                    message = f"WS0212 invalid string: {error}"
                    self.fail(children[0], message, "write a backslash as \\\\")
            case "true" | "false" | "none" | "empty":
                return {"true": True, "false": False, "none": None, "empty": ()}[tree.data]
            case "tuple":
                return tuple(self.literal(c) for c in children)
            case "use":
                name = str(children[0])[1:]
                if name not in self.values:
                    message = f"WS0213 %{name} is used before it is defined"
                    self.fail(children[0], message, "define it in an earlier line")
                return self.values[name]
            case _:
                return self.type(tree)

    def call(self, tree: Any) -> Any:
        name, *arguments = tree.children
        made: dict[str, Any] = {}
        for argument in (a for a in arguments if a is not None):
            key, value = argument.children
            made[str(key)] = self.call(value) if value.data == "call" else self.literal(value)
        if str(name) == "dict":
            return made
        if str(name) != "Schedule":
            self.fail(name, f"WS0214 expected Schedule(...) or dict(...), not {name}")
        try:
            return Schedule(**current_fields(made))
        except TypeError:
            unknown = [k for k in made if k not in Schedule.__dataclass_fields__]
            message = f"WS0215 Schedule has no field {', '.join(unknown)}"
            self.fail(name, message, "remove it, or compare with docs/schedules.md")
        except WsdslError as e:
            self.fail(name, f"WS0216 invalid Schedule: {e.findings[0].message}", e.findings[0].hint)

    def dtype(self, name: Any) -> t.DType:
        if str(name) not in t.DTYPES:
            hint = f"use one of {', '.join(t.DTYPES)}"
            self.fail(name, f"WS0217 unknown element type `{name}`", hint)
        return t.DTYPES[str(name)]

    def type(self, tree: Any) -> t.Type:
        c = tree.children
        match tree.data:
            case "scalar":
                return t.Tile(self.dtype(c[0]))
            case "tile":
                return t.Tile(self.dtype(c[0]), tuple(map(str, c[1:])))
            case "tensor":
                *named, packed = c[1:]
                dims = tuple(int(d) if d.type == "SIZE" else str(d) for d in named)
                return t.Tensor(self.dtype(c[0]), dims, packed is not None)
            case "axis":
                role: Any = str(c[3]) if c[3] else ""
                return t.Axis(str(c[0]), str(c[1]), int(c[2] or 0), role, int(c[4] or 1))
            case "shared_tile":
                return t.SharedTile(self.dtype(c[0]), tuple(map(str, c[1:])))
            case "accumulator":
                return t.Accumulator(self.dtype(c[0]), *_shape(c[1]))
            case "fragment":
                lanes = t.ACCUMULATOR
                if c[3]:
                    lanes = t.Lanes(*_shape(c[3]), bool(c[4]), int(c[5] or 1))
                layout: Any = "operand" if c[2] else "accumulator"
                return t.Fragment(self.dtype(c[0]), *_shape(c[1]), layout, lanes)
            case _:  # Named like its class, with nothing but numbers.
                return getattr(t, tree.data.title().replace("_", ""))(*map(int, c))


def _shape(text: object) -> tuple[int, int]:
    rows, columns = map(int, str(text).split("x"))
    return rows, columns


_hints = cache(get_type_hints)
