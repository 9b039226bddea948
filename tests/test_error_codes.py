"""Each error has one code, which docs/errors.md lists."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from wsdsl import ScheduleError, TypeCheckError, parse
from wsdsl.diagnostics import Finding

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "errors.md"
CODE = re.compile(r"(WS\d{4}) (.+)", re.DOTALL)


def templates() -> Iterator[tuple[str, str]]:
    for path in sorted((ROOT / "wsdsl").rglob("*.py")):
        tree = ast.parse(path.read_text())
        parts = {
            id(x) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for x in node.values
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                values = (x.value if isinstance(x, ast.Constant) else "…" for x in node.values)
                text = "".join(map(str, values))
            elif (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and id(node) not in parts
            ):
                text = node.value
            else:
                continue
            if found := CODE.fullmatch(text):
                yield found[1], re.sub(r"\s+", " ", found[2]).replace("|", "\\|")


def test_codes_are_unique_and_listed(request) -> None:
    found = [*templates()]
    assert [code for code, n in Counter(code for code, _ in found).items() if n > 1] == []
    assert len(found) > 300
    head = PAGE.read_text().partition("| code |")[0]
    rows = (f"| `{code}` | {text} |" for code, text in sorted(found))
    page = head + "\n".join(["| code | message |", "|---|---|", *rows, ""])
    if request.config.getoption("--update-golden"):
        PAGE.write_text(page)
    assert PAGE.read_text() == page, "pytest tests/test_error_codes.py --update-golden"


def test_code_precedes_message() -> None:
    with pytest.raises(TypeCheckError, match=r"^<string>:4:16: WS0\d{3} ") as caught:
        _ = parse(
            "@kernel\ndef k(X: f32[M], Y: f32[M]):\n    for m in tiles(M):\n        Y[m] = X"
        ).k
    assert re.fullmatch(r"WS01\d\d", caught.value.findings[0].code)
    with pytest.raises(ScheduleError) as wrong:
        raise ScheduleError("WS0999 fact", hint="do this")
    found = Finding("fact", None, "do this", "WS0999")
    assert wrong.value.findings == ScheduleError([found, found]).findings == (found,)
