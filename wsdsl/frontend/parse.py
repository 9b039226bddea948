"""Text -> untyped syntax tree, or a ParseError."""

from threading import Lock
from typing import Any, cast

from lark.exceptions import UnexpectedCharacters, UnexpectedEOF, UnexpectedToken
from lark.lexer import Token
from lark.tree import Tree

from wsdsl.diagnostics import Finding, Loc, ParseError
from wsdsl.frontend import syntax, syntax_hints
from wsdsl.frontend.build import Builder, Kind
from wsdsl.frontend.grammar import LayoutError, parser
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
    message = f"WS0100 an expression or a block{'' if loc else f' of {file}'} is nested too deeply"
    return Finding(message, loc, "assign inner expressions to names")


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
            message, hint = syntax_hints.unexpected(
                token, e.accepts or e.expected, layout.seen, behind
            )
            raise ParseError(_at(source, token, message, hint)) from None
        except UnexpectedCharacters as e:
            message, hint = syntax_hints.strange(text[e.pos_in_stream or 0])
            loc = source.loc(e.line, e.column, e.line, e.column + 1)
            raise ParseError(message, loc, hint) from None
        except LayoutError as e:
            line, column = e.token.end_line or 1, e.token.end_column or 1
            loc = source.loc(line, 1, line, column)
            message = "WS0101 the indentation of this line matches no enclosing block"
            raise ParseError(message, loc, "indent it like the lines of its block") from None
        except UnexpectedEOF:
            message = f"WS0102 {source.file} ends within a statement"
            raise ParseError(message, hint="complete the last line") from None


def _at(source: Source, token: Token, message: str, hint: str) -> Finding:
    line, column = token.line or 1, token.column or 1
    end_line, end = token.end_line or line, token.end_column or column + 1
    if token.type == "_INDENT":  # it stands at the newline before the line that it is about
        line, column = end_line, 1
    elif token.type in ("_NEWLINE", "_DEDENT", "$END"):
        end_line, end = line, column + 1
    return Finding(message, source.loc(line, column, end_line, end), hint)
