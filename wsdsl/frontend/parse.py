"""Text -> untyped syntax tree, or a ParseError."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from functools import cache
from operator import itemgetter
from pathlib import Path
from threading import Lock
from typing import Any, cast

import lark
from lark.exceptions import UnexpectedCharacters, UnexpectedEOF, UnexpectedToken
from lark.grammar import Rule
from lark.lark import Lark, PostLex
from lark.lexer import TerminalDef, Token
from lark.tree import Tree

from wsdsl.diagnostics import Finding, Loc, ParseError
from wsdsl.frontend import explain, syntax
from wsdsl.frontend.build import Builder, Kind
from wsdsl.frontend.source import Source

_one_at_a_time = Lock()  # the layout keeps the state of one parse


def parse(source: Source, kind: Kind | None = None) -> syntax.Module:
    """A file or string of kernels and functions; of `kind` if no decorators are in the text."""
    builder = Builder(source, kind)
    try:
        module = builder.module(_tree(source))
    except RecursionError:
        raise ParseError(too_deep(source.file, builder.at)) from None
    if builder.findings:
        raise ParseError(sorted(builder.findings, key=_place))
    return module


def too_deep(file: str, loc: Loc | None = None) -> Finding:
    message = "an expression or a block is nested too deeply"
    return Finding(message if loc else f"{file}: {message}", loc, "give parts of it names")


def _place(finding: Finding) -> tuple[int, int]:
    return (finding.loc.line, finding.loc.column) if finding.loc else (0, 0)


def _tree(source: Source) -> Tree[Token]:
    with _one_at_a_time:
        lark, layout = parser()
        layout.base = source.indentation
        text = source.text if source.text.endswith("\n") else source.text + "\n"
        untyped: Any = lark
        try:
            return cast("Tree[Token]", untyped.parse(text))
        except UnexpectedToken as e:
            token = cast(Token, e.token)
            behind = text[token.end_pos or len(text) :]
            message, hint = explain.unexpected(token, e.accepts or e.expected, layout.seen, behind)
            raise ParseError(_at(source, token, message, hint)) from None
        except UnexpectedCharacters as e:
            message, hint = explain.strange(text[e.pos_in_stream or 0])
            loc = source.loc(e.line, e.column, e.line, e.column + 1)
            raise ParseError(Finding(message, loc, hint)) from None
        except LayoutError as e:
            line, column = e.token.end_line or 1, e.token.end_column or 1
            loc = source.loc(line, 1, line, column)
            hint = "line it up with a line of the block that it belongs to"
            raise ParseError(
                Finding("this line is indented like no block around it", loc, hint)
            ) from None
        except UnexpectedEOF:
            hint = "the last line is not complete"
            raise ParseError(
                Finding(f"{source.file}: the text ends too early", hint=hint)
            ) from None


def _at(source: Source, token: Token, message: str, hint: str) -> Finding:
    line, column = token.line or 1, token.column or 1
    end_line, end = token.end_line or line, token.end_column or column + 1
    if token.type == "_INDENT":  # it stands at the newline before the line that it is about
        line, column = end_line, 1
    elif token.type in ("_NEWLINE", "_DEDENT", "$END"):
        end_line, end = line, column + 1
    return Finding(message, source.loc(line, column, end_line, end), hint)


# The grammar and its LALR tables.
GRAMMAR = Path(__file__).with_name("wsdsl.lark")
TABLES = Path(__file__).with_name("wsdsl.tables.json")
TAB = 8


class LayoutError(Exception):
    """A line is indented like none of the blocks around it."""

    def __init__(self, token: Token) -> None:
        super().__init__(token)
        self.token = token


class Layout(PostLex):
    """INDENT and DEDENT from `base` columns on; keeps the tokens, for error messages."""

    # Named here, for lark drops a terminal that no rule uses.
    always_accept = ("RESERVED",)

    def __init__(self) -> None:
        self.base = 0
        self.seen: list[Token] = []

    def process(self, stream: Iterator[Token]) -> Iterator[Token]:
        self.seen = []
        levels = [self.base]
        depth = 0
        last: Token | None = None
        for last in stream:
            self.seen.append(last)
            if last.type in ("LPAR", "LSQB"):
                depth += 1
            elif last.type in ("RPAR", "RSQB"):
                depth = max(0, depth - 1)
            if last.type != "_NEWLINE":
                yield last
            elif depth == 0:
                yield last
                yield from self._layout(last, levels)
        for _ in levels[1:]:
            yield Token.new_borrow_pos("_DEDENT", "", cast(Token, last))

    def _layout(self, newline: Token, levels: list[int]) -> Iterator[Token]:
        margin = newline.rsplit("\n", 1)[1]
        indent = margin.count(" ") + margin.count("\t") * TAB
        if indent > levels[-1]:
            levels.append(indent)
            yield Token.new_borrow_pos("_INDENT", margin, newline)
            return
        while indent < levels[-1] and len(levels) > 1:
            levels.pop()
            yield Token.new_borrow_pos("_DEDENT", margin, newline)
        if indent > levels[-1]:
            raise LayoutError(newline)


def key() -> str:
    made_from = f"{lark.__version__}\n{GRAMMAR.read_text()}"
    return hashlib.sha256(made_from.encode()).hexdigest()


def build(layout: Layout | None = None) -> Lark:
    return Lark(
        GRAMMAR.read_text(),
        parser="lalr",
        lexer="basic",
        postlex=layout or Layout(),
        start="module",
        propagate_positions=True,
        maybe_placeholders=True,
    )


def tables() -> str:
    """The parser's tables as JSON."""
    built: Any = build()
    data, memo = built.memo_serialize([TerminalDef, Rule])
    del data["options"]["postlex"]
    held = {"data": data, "memo": memo, "lark": lark.__version__, "key": key()}
    return json.dumps(held, default=sorted, separators=(",", ":")) + "\n"


def _with_int_keys(pairs: list[tuple[str, Any]]) -> dict[str | int, Any]:
    return {int(k) if k.isdigit() else k: v for k, v in pairs}


def _held() -> str:
    """The tables on disk, if they are those of this grammar and this lark."""
    try:
        text = TABLES.read_text()
    except OSError:
        return ""
    return text if text.endswith(f'"key":"{key()}"}}\n') else ""


@cache
def parser() -> tuple[Lark, Layout]:
    """The parser, and its layout, whose `base` is set before a parse."""
    text = _held()
    layout = Layout()
    if not text:
        return _straight(build(layout)), layout
    held = json.loads(text, object_pairs_hook=_with_int_keys)
    # What lark's own stand-alone parsers call; the public `Lark.load` takes pickles only.
    lark_class: Any = Lark
    loaded = lark_class._load_from_dict(held["data"], held["memo"], postlex=layout)
    return _straight(loaded), layout


def _straight(made: Any) -> Lark:
    """Where a rule may be one part alone, as a name is a term is a sum, it is that part: most of
    what a parse does, for which lark looks up again where each begins and ends.
    """
    callbacks = made.parser.parser.parser.callbacks
    for rule in callbacks:
        parts = rule.expansion if isinstance(rule, Rule) and rule.options.expand1 else ()
        dropped = any(getattr(part, "filter_out", False) for part in parts)
        if len(parts) == 1 and not (dropped or rule.alias or rule.options.empty_indices):
            callbacks[rule] = itemgetter(0)
    return made


# lark numbers states as its sets happen to be ordered: tables that are good are left as they are.
if __name__ == "__main__" and not _held():
    TABLES.write_text(tables())
