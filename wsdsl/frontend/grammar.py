"""The parser for wsdsl.lark, and the text layout that a context-free grammar cannot describe.

Building an LALR parser takes 0.2 s, loading its tables 0.01 s; so the tables are stored next to the
grammar, with hashes of the grammar and the version of lark. If these differ, the tables are built
in memory. `python -m wsdsl.frontend.grammar` writes them.
"""

import hashlib
import json
from collections.abc import Iterator
from functools import cache
from operator import itemgetter
from pathlib import Path
from typing import Any, cast

import lark
from lark.grammar import Rule
from lark.lark import Lark, PostLex
from lark.lexer import TerminalDef, Token

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

    # lark drops a terminal that no rule uses.
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
    made_from = f"{lark.__version__}\n{GRAMMAR.read_text(encoding='utf-8')}"
    return hashlib.sha256(made_from.encode()).hexdigest()


def build(layout: Layout | None = None) -> Lark:
    return Lark(
        GRAMMAR.read_text(encoding="utf-8"),
        parser="lalr",
        lexer="basic",
        postlex=layout or Layout(),
        start="module",
        propagate_positions=True,
        maybe_placeholders=True,
    )


def tables() -> str:
    """Return the parser's tables as JSON."""
    built: Any = build()
    data, memo = built.memo_serialize([TerminalDef, Rule])
    del data["options"]["postlex"]
    held = {"data": data, "memo": memo, "lark": lark.__version__, "key": key()}
    return json.dumps(held, default=sorted, separators=(",", ":")) + "\n"


def _held() -> str:
    """Return the tables on disk, if they are those of this grammar and this lark."""
    try:
        text = TABLES.read_text(encoding="utf-8")
    except OSError:
        return ""
    return text if text.endswith(f'"key":"{key()}"}}\n') else ""


@cache
def parser() -> tuple[Lark, Layout]:
    """Return the parser, and its layout, whose `base` is set before a parse."""
    text = _held()
    layout = Layout()
    if not text:
        return _straight(build(layout)), layout
    held = json.loads(
        text, object_pairs_hook=lambda own: {int(k) if k.isdigit() else k: v for k, v in own}
    )
    # Called by lark's stand-alone parsers; the public `Lark.load` takes pickles only.
    lark_class: Any = Lark
    loaded = lark_class._load_from_dict(held["data"], held["memo"], postlex=layout)
    return _straight(loaded), layout


def _straight(made: Any) -> Lark:
    """Replace the callback of rules with one part, such as `term` as a `sum`, by that part: lark
    would compute the span of each again, which takes most of the time of a parse.
    """
    callbacks = made.parser.parser.parser.callbacks
    for rule in callbacks:
        parts = rule.expansion if isinstance(rule, Rule) and rule.options.expand1 else ()
        dropped = any(getattr(part, "filter_out", False) for part in parts)
        if len(parts) == 1 and not (dropped or rule.alias or rule.options.empty_indices):
            callbacks[rule] = itemgetter(0)
    return made


# lark numbers states by the order of sets, which varies: valid tables are not rewritten.
if __name__ == "__main__" and not _held():
    TABLES.write_text(tables(), encoding="utf-8")
