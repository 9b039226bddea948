"""Numbers as they are written."""

from __future__ import annotations

import math
import re

from wsdsl.frontend import syntax as s
from wsdsl.frontend.entities import Number

# More than any element type holds; Python itself refuses to read very long ones.
MAX_DIGITS = 80
NUMBERS_HINT = "as in 10, 0x1F, 1e-3; the widest float is f32, up to 3.4e38, and `inf` is infinity"


def number(text: str) -> int | float | None:
    """None if it is too long, is `0x` without digits, or more than a float can be."""
    text = text.replace("_", "").lower()
    if len(text) > MAX_DIGITS or text in ("0x", "0b", "0o"):
        return None
    if text[:2] in ("0x", "0b", "0o"):
        return int(text, 0)
    value = float(text) if re.search(r"[.e]", text) else int(text)
    return None if value == math.inf else value


def constant(expr: s.Expr) -> Number | None:
    """What a line of a file gives a name to."""
    if isinstance(expr, s.Number):
        return expr.value
    if isinstance(expr, s.Unary) and expr.op == "-" and isinstance(expr.operand, s.Number):
        return -expr.operand.value
    return None
