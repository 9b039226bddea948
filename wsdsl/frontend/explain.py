"""Why the parser stopped, in a user's words."""

from __future__ import annotations

import re
from collections.abc import Iterable

from lark.lexer import Token

from wsdsl.frontend.foreign import meant
from wsdsl.frontend.scope import WORDS
from wsdsl.ir.types import DTYPES

BARE = {*WORDS, *DTYPES, "kernel", "function"}

RESERVED = {
    "and": "`&` combines conditions, each in parentheses: (a > 0) & (b > 0)",
    "or": "`|` combines conditions, each in parentheses: (a > 0) | (b > 0)",
    "not": "`~` negates a condition: ~(a > 0)",
    "is": "compare with ==",
    "None": "tiles broadcast by axis name, without [:, None]",
    "while": "a loop walks a dimension: `for k in tiles(K):` or `for b in each(B):`",
    "break": "a loop walks all of its dimension; mask the rest: where(index(k) < stop, x, 0)",
    "continue": "use an `if`, or where(…) for elements",
    "lambda": "write a function with `def` under @function outside the kernel",
    "class": "only kernels and functions can be defined",
    "yield": "store results in a tensor parameter: C[m, n] = x",
    "assert": "check in Python, before the kernel is called",
    "raise": "check in Python, before the kernel is called",
    "try": "check in Python, before the kernel is called",
    "except": "check in Python, before the kernel is called",
    "finally": "check in Python, before the kernel is called",
    "with": "a kernel has no resources to hold",
    "del": "a name ends with its block; nothing has to be deleted",
    "global": "a kernel changes its tensor parameters only: C[m, n] = x",
    "nonlocal": "a kernel changes its tensor parameters only: C[m, n] = x",
    "async": "the compiler overlaps loads and arithmetic by itself",
    "await": "the compiler overlaps loads and arithmetic by itself",
}
_TRANSPOSE = (
    "functions and types are written bare, exp(x) and f32[M]; axes have names, not positions: a "
    "transpose is A[k, m]"
)
_CLOSES = {"(": ")", "[": "]"}
_WORDS = {
    "NAME": "a name",
    "NUMBER": "a number",
    "_NEWLINE": "the end of the line",
    "_INDENT": "an indented block",
    "_DEDENT": "the end of the block",
    "$END": "the end of the text",
    "COMPARE": "a comparison",
    "AUGMENTED": "`+=`",
    "STRING": "a string",
    "COLON": "`:`",
    "COMMA": "`,`",
    "LPAR": "`(`",
    "RPAR": "`)`",
    "LSQB": "`[`",
    "RSQB": "`]`",
    "EQUAL": "`=`",
    "DEF": "`def`",
    "IN": "`in`",
    "IMPORT": "`import`",
}


def unexpected(
    token: Token, expected: Iterable[str], seen: list[Token], behind: str = ""
) -> tuple[str, str]:
    """Message and hint for a token that fits no rule; `seen` are all tokens up to it, `behind` is
    the text that follows.
    """
    before = seen[:-1] if seen and seen[-1] is token else seen
    kind, text = token.type, str(token)
    allowed = set(expected)
    wants_expression = {"NAME", "NUMBER", "LPAR"} <= allowed
    last = before[-1] if before else None
    if kind in ("RESERVED", "NONE"):
        return f"`{text}` is not part of the language", RESERVED[text]
    if kind == "_INDENT":
        hint = "line it up with the line before, or end that one with `:`"
        return "this line is indented further than its block", hint
    if allowed == {"_INDENT"}:
        return "expected an indented block after the `:`", "a block that does nothing holds `pass`"
    bracket = _open_bracket(before)
    next_line = last is not None and (kind in ("$END", "_DEDENT") or token.line != last.end_line)
    if bracket and next_line and not wants_expression:
        return f"`{bracket}` is not closed before this line", _closing(bracket)
    if kind in ("RPAR", "RSQB") and not bracket:
        return f"`{text}` closes no bracket", "remove it, or open one before"
    if kind in ("RPAR", "RSQB") and _CLOSES[bracket] != text and not wants_expression:
        return f"`{text}` where `{bracket}` is open", _closing(bracket)
    if kind == "DOT" and not wants_expression:
        return "values have no attributes", _attribute(behind)
    if bracket == "[" and (kind == "COLON" or (last and last.type == "COLON")):
        return (
            "a slice is not part of the language",
            "`:` alone takes a whole dimension; mask the rest: where(index(k) < 4, x, 0)",
        )
    if kind == "COLON" and bracket == "(" and not wants_expression:
        if _statement_start(before) in ("FOR", "IF", "ELIF", "DEF"):
            return f"`{bracket}` is not closed before the `:`", _closing(bracket)
        return "`:` inside `( )`", "a name is assigned to on a line of its own: name = value"
    if "COLON" in allowed and kind == "_NEWLINE" and not bracket and not wants_expression:
        return "expected `:`, found the end of the line", "a line that opens a block ends with `:`"
    if kind == "COLON" and _statement_start(before) == "NAME" and not bracket:
        return "a type on a name inside a kernel", "types are inferred; write name = value"
    if kind == "EQUAL" and bracket == "[":
        return "`[` is not closed before the `=`", _closing(bracket)
    if kind == "EQUAL" and _statement_start(before) == "AT":
        return "a decorator cannot be assigned to", "`@kernel` stands alone on its line"
    if kind == "EQUAL" and _statement_start(before) == "DEF":
        return "a parameter with a default value", "pass it at each call"
    if kind == "EQUAL" and _statement_start(before) in ("IF", "ELIF"):
        return "`=` in a condition", "compare with =="
    if _statement_start(before) == "FOR" and "IN" in allowed and kind != "RESERVED":
        return f"expected `in`, found {_found(token)}", "as in `for m, n in tiles(M, N):`"
    if kind == "EQUAL" and not bracket:
        return "more than one `=` in a line", "assign once a line, or `a, b = x, y`"
    if kind == "IF" and last is not None and last.type not in ("_NEWLINE", "_INDENT", "_DEDENT"):
        return "`… if … else …` is not part of the language", "use where(condition, a, b)"
    if kind == "ELSE" or kind == "ELIF":
        return f"`{text}` without an `if`", "a loop has no `else`"
    if kind == "FOR" and bracket:
        return (
            "a comprehension is not part of the language",
            "write a loop, or reduce a tile with sum(x, over=k)",
        )
    if kind == "LSQB" and wants_expression:
        return "a list is not part of the language", "a tile is made by zeros(f32[m]) or full(…)"
    if kind == "DEF":
        return "a definition inside a kernel", "put the function outside, under @function"
    if kind in ("IMPORT", "FROM"):
        return "an import inside a kernel", "import at the top of the file"
    if kind == "RETURN":
        return "`return` outside a function", "put it into a def under @function"
    if kind in ("IN",):
        return "`in` belongs to a loop", "`for m in tiles(M):`; compare values with =="
    if (kind == "STAR" and wants_expression) or (kind == "POWER" and wants_expression):
        return f"`{text}` does not unpack", "write each argument out"
    if kind == "FOR":
        return "a loop outside a kernel", "put it into a def under @kernel"
    found = _found(token)
    if wants_expression:
        return f"expected an expression, found {found}", "as in `x + 1`, `A[m, k]` or `exp(x)`"
    if last is not None and last.type in ("NAME", "NUMBER") and kind in ("NAME", "NUMBER"):
        return f"{found} directly after `{last}`", "one statement a line, operators between values"
    words = sorted({_WORDS[a] for a in allowed if a in _WORDS})
    if not words or len(words) > 4:
        return f"unexpected {found}", "the line makes sense up to here; look left of the caret"
    listed = words[0] if len(words) == 1 else ", ".join(words[:-1]) + " or " + words[-1]
    if _statement_start(before) == "DEF":
        return f"expected {listed}, found {found}", "as in `def name(A: bf16[M, K], alpha: f32):`"
    return f"expected {listed}, found {found}", "look left of the caret"


def _attribute(behind: str) -> str:
    """The hint for `np.dot(…)`, `x.sum()` and `A.T`."""
    found = re.match(r"\w+", behind)
    name = found[0] if found else ""
    if name in ("T", "mT"):
        return _TRANSPOSE
    return meant(name) or (f"`{name}` is written bare" if name in BARE else _TRANSPOSE)


def _closing(bracket: str) -> str:
    return f"close it with `{_CLOSES[bracket]}`"


def strange(character: str) -> tuple[str, str]:
    """Message and hint for a character that starts no token."""
    if character in "{}":
        return "braces are not part of the language", "there are no dicts and sets"
    if character == ";":
        return "`;` is not part of the language", "one statement a line"
    if character == "!":
        return "`!` is not part of the language", "`~` negates a condition"
    if character in "\"'":
        return "a string that does not end", "close it with the quotes that opened it"
    if character == "\\":
        return "`\\` is not part of the language here", "a line goes on by itself inside brackets"
    if character in "$?`":
        return f"the character `{character}` is not part of the language", "remove it"
    shown = character if character.isprintable() else ascii(character)
    return f"the character {shown} is not part of the language", "names are made of A-Z a-z 0-9 _"


def _found(token: Token) -> str:
    if token.type == "_NEWLINE":
        return "the end of the line"
    if token.type in ("$END", "_DEDENT") or not token.strip():
        return "the end of the block" if token.type == "_DEDENT" else "the end of the text"
    return f"`{token.split(chr(10))[0]}`"


def _open_bracket(tokens: list[Token]) -> str:
    depth: list[str] = []
    for t in tokens:
        if t.type in ("LPAR", "LSQB"):
            depth.append(str(t))
        elif t.type in ("RPAR", "RSQB") and depth:
            depth.pop()
    return depth[-1] if depth else ""


def _statement_start(tokens: list[Token]) -> str:
    """The kind of the first token of the logical line that the tokens end in."""
    start = ""
    depth = 0
    for t in tokens:
        if t.type in ("LPAR", "LSQB"):
            depth += 1
        elif t.type in ("RPAR", "RSQB"):
            depth -= 1
        if t.type == "_NEWLINE" and depth <= 0:
            start = ""
        elif not start:
            start = t.type
    return start
