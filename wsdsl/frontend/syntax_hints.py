"""Why the parser stopped, in a user's words."""

import re
from collections.abc import Iterable

from lark.lexer import Token

from wsdsl.frontend.entities import WORDS
from wsdsl.frontend.foreign import meant
from wsdsl.ir.types import DTYPES

BARE = {*WORDS, *DTYPES, "kernel", "function"}
_BEFORE = "check in Python, before the kernel is called"
RESERVED = {
    "and": "combine conditions in parentheses with `&`: (a > 0) & (b > 0)",
    "or": "combine conditions in parentheses with `|`: (a > 0) | (b > 0)",
    "not": "negate a condition with `~`: ~(a > 0)",
    "is": "compare with ==",
    "None": "remove it: tiles broadcast by axis name, without [:, None]",
    "while": "loop over a dimension: `for k in tiles(K):` or `for b in each(B):`",
    "break": "loop over the whole dimension and mask the rest: where(index(k) < stop, x, 0)",
    "continue": "use an `if`, or where(…) for elements",
    "lambda": "write a function with `def` under @function outside the kernel",
    "class": "define only kernels and functions",
    "yield": "store results in a tensor parameter: C[m, n] = x",
    **dict.fromkeys(("assert", "raise", "try", "except", "finally"), _BEFORE),
    "with": "remove it: a kernel has no resources to release",
    "del": "remove it: a name ends with its block",
    **dict.fromkeys(("global", "nonlocal"), "store to a tensor parameter: C[m, n] = x"),
    **dict.fromkeys(("async", "await"), "remove it: the compiler overlaps loads and arithmetic"),
}
_TRANSPOSE = (
    "write functions and types without a module, exp(x) and f32[M]; write a transpose as A[k, m]: "
    "axes have names, not positions"
)
STRANGE = {
    **dict.fromkeys("{}", "remove it: there are no dicts and sets"),
    ";": "write one statement per line",
    "!": "negate a condition with `~`",
    "\\": "continue a line inside brackets",
    **dict.fromkeys("$?`", "remove it"),
}
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
        return _lacks(f"`{text}`", RESERVED[text])
    if kind == "_INDENT":
        hint = "indent it like the line before, or end that line with `:`"
        return "WS0104 this line is indented further than its block", hint
    if allowed == {"_INDENT"}:
        return "WS0105 expected an indented block after the `:`", "write `pass` in an empty block"
    bracket = _open_bracket(before)
    next_line = last is not None and (kind in ("$END", "_DEDENT") or token.line != last.end_line)
    if bracket and next_line and not wants_expression:
        return _unclosed(bracket, "this line")
    if kind in ("RPAR", "RSQB") and not bracket:
        return f"WS0106 `{text}` closes no bracket", "remove it, or open a bracket before it"
    if kind in ("RPAR", "RSQB") and _CLOSES[bracket] != text and not wants_expression:
        return _unclosed(bracket, f"the `{text}`")
    if kind == "DOT" and not wants_expression:
        return "WS0107 values have no attributes", _attribute(behind)
    if bracket == "[" and (kind == "COLON" or (last and last.type == "COLON")):
        hint = "use `:` for a whole dimension, and mask the rest: where(index(k) < 4, x, 0)"
        return _lacks("a slice", hint)
    if kind == "COLON" and bracket == "(" and not wants_expression:
        if _statement_start(before) in ("FOR", "IF", "ELIF", "DEF"):
            return _unclosed(bracket, "the `:`")
        return _lacks("`:` inside `( )`", "assign on a separate line: name = value")
    if "COLON" in allowed and kind == "_NEWLINE" and not bracket and not wants_expression:
        return _expected("`:`", token), "end a line that opens a block with `:`"
    if kind == "COLON" and _statement_start(before) == "NAME" and not bracket:
        return _lacks("a type of a variable", "write name = value")
    if kind == "EQUAL" and bracket == "[":
        return _unclosed(bracket, "the `=`")
    if kind == "EQUAL" and _statement_start(before) == "AT":
        return _lacks("an assignment to a decorator", "write `@kernel` alone on its line")
    if kind == "EQUAL" and _statement_start(before) == "DEF":
        return _lacks("a default value of a parameter", "pass it at each call")
    if kind == "EQUAL" and _statement_start(before) in ("IF", "ELIF"):
        return _lacks("`=` in a condition", "compare with ==")
    if _statement_start(before) == "FOR" and "IN" in allowed and kind != "RESERVED":
        return _expected("`in`", token), "write `for m, n in tiles(M, N):`, for example"
    if kind == "EQUAL" and not bracket:
        return _lacks("more than one `=` per line", "assign once per line, or `a, b = x, y`")
    if kind == "IF" and last is not None and last.type not in ("_NEWLINE", "_INDENT", "_DEDENT"):
        return _lacks("`… if … else …`", "use where(condition, a, b)")
    if kind == "ELSE" or kind == "ELIF":
        return f"WS0108 `{text}` follows no `if`", "remove it: a loop has no `else`"
    if kind == "FOR" and bracket:
        return _lacks("a comprehension", "write a loop, or reduce a tile with sum(x, over=k)")
    if kind == "LSQB" and wants_expression:
        return _lacks("a list", "create a tile by zeros(f32[m]) or full(…)")
    if kind == "DEF":
        return _lacks("a definition in a kernel", "move it outside, under @function")
    if kind in ("IMPORT", "FROM"):
        return _lacks("an import in a kernel", "import at the top of the file")
    if kind == "RETURN":
        return _outside("`return`", "move it into a def under @function")
    if kind in ("IN",):
        hint = "compare values with ==, or write a loop, `for m in tiles(M):`"
        return "WS0109 `in` is outside the header of a loop", hint
    if (kind == "STAR" and wants_expression) or (kind == "POWER" and wants_expression):
        return _lacks(f"unpacking by `{text}`", "write out each argument")
    if kind == "FOR":
        return _outside("a loop", "move it into a def under @kernel")
    if wants_expression:
        return _expected(
            "an expression", token
        ), "write `x + 1`, `A[m, k]` or `exp(x)`, for example"
    found = _found(token)
    if last is not None and last.type in ("NAME", "NUMBER") and kind in ("NAME", "NUMBER"):
        hint = "write one statement per line, and an operator between values"
        return f"WS0110 {found} directly follows `{last}`", hint
    words = sorted({_WORDS[a] for a in allowed if a in _WORDS})
    if not words or len(words) > 4:
        return f"WS0111 {found} cannot continue this line", "check the line left of the caret"
    listed = words[0] if len(words) == 1 else ", ".join(words[:-1]) + " or " + words[-1]
    if _statement_start(before) == "DEF":
        return _expected(listed, token), "write `def name(A: bf16[M, K], alpha: f32):`, for example"
    return _expected(listed, token), "check the line left of the caret"


def _lacks(construct: str, hint: str) -> tuple[str, str]:
    return f"WS0112 {construct} is not supported", hint


def _outside(construct: str, hint: str) -> tuple[str, str]:
    return f"WS0113 {construct} is outside a def", hint


def _unclosed(bracket: str, before: str) -> tuple[str, str]:
    hint = f"close it with `{_CLOSES[bracket]}`"
    return f"WS0114 `{bracket}` is not closed before {before}", hint


def _expected(words: str, token: Token) -> str:
    return f"WS0115 expected {words}, found {_found(token)}"


def _attribute(behind: str) -> str:
    """The hint for `np.dot(…)`, `x.sum()` and `A.T`."""
    found = re.match(r"\w+", behind)
    name = found[0] if found else ""
    if name in ("T", "mT"):
        return _TRANSPOSE
    return meant(name) or (f"write `{name}` without a module" if name in BARE else _TRANSPOSE)


def strange(character: str) -> tuple[str, str]:
    """Message and hint for a character that starts no token."""
    if character in "\"'":
        return "WS0116 a string is not closed", "close it with the quotes that opened it"
    shown = f"`{character}`" if character.isprintable() else ascii(character)
    return _lacks(f"the character {shown}", STRANGE.get(character, "use A-Z a-z 0-9 _ in names"))


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
