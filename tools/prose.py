"""Check prose against tools/prose_words.txt: `python -m tools.prose` (or `make lint`).

Checked are Markdown and, in Python files, docstrings, comments, string literals and names of tests;
not code blocks, inline code and link targets. A string literal without a space is an identifier,
one of several lines that is not a docstring is data. tools/prose_allowed.txt limits the findings of
each file.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
import textwrap
from bisect import bisect
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

from tools.size import ROOT, files

WORDS, ALLOWED = "tools/prose_words.txt", "tools/prose_allowed.txt"
CHECKED = re.compile(
    r"[^/]*\.md|(?:docs|benchmarks|examples)/.*\.md|(?:wsdsl|tests|tools|benchmarks|examples)/.*\.py"
)
# Group 2 is a comment with the lines of comments below it; string literals are skipped.
COMMENTS = re.compile(
    r'("""|\'\'\')(?:\\.|[^\\])*?\1|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|(#.*(?:\n *#.*)*)'
)
BLOCKS = re.compile(
    r"^ *(```|~~~).*?^ *\1$|(?:\A|(?<=\n\n)) {4,}\S[^\n]*(?:\n+ {4,}[^\n]*)*", re.M | re.S
)
CODE = re.compile(r"(`+)[^\n]*?\1|\]\([^)\n]*\)|https?://\S+")
CELL = re.compile(r"(?<!\\)\|\s*")
ITEM = re.compile(r"^(?: $|(?:[-*+>]|#+|\d+\.)\s+)")
GENERATED = re.compile(r"Merge |Revert |fixup! |squash! ")
SUBJECT = re.compile(r"[a-z][\w ,./-]*: [a-z]")

# Lines with their numbers; a paragraph starts after START.
Lines = Iterator[tuple[int, str]]
START = ".\n"
Patterns = list[tuple[re.Pattern[str], str]]


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.prose")
    parser.add_argument("--update", action="store_true", help="lower the counts of " + ALLOWED)
    parser.add_argument("--moved", nargs=2, action="append", default=[], metavar=("OLD", "NEW"))
    parser.add_argument("--subject", type=Path, metavar="FILE", help="check a commit message only")
    options = parser.parse_args(arguments)
    entries = re.findall(r"^([^#\n].*)\t(.*)$", (root / WORDS).read_text(), re.M)
    patterns = [(re.compile(pattern, re.I | re.M), advice) for pattern, advice in entries]
    if options.subject:
        errors = subject_errors(options.subject.read_text(), patterns)
        print(*errors, sep="\n", end="\n" if errors else "")
        return bool(errors)
    found = {
        path: [f"{path}:{words}" for words in find(path, (root / path).read_text(), patterns)]
        for path in filter(CHECKED.fullmatch, files(root))
    }
    allowed = read_allowed((root / ALLOWED).read_text())
    for old, new in options.moved:
        allowed[new] = allowed.pop(old, 0)
    if options.update or options.moved:
        allowed = {path: min(count, len(found.get(path, ()))) for path, count in allowed.items()}
        lines = [f"{count} {path}\n" for path, count in sorted(allowed.items()) if count]
        (root / ALLOWED).write_text("".join(lines))
    failed = False
    for path in sorted({*found, *allowed}):
        here, limit = found.get(path, []), allowed.get(path, 0)
        failed |= len(here) != limit
        if len(here) > limit:
            print(*here, f"{path} has {len(here)} findings; {limit} are allowed", sep="\n")
        elif len(here) < limit:
            print(f"{path} has {len(here)} findings, not {limit}: run {parser.prog} --update")
    return failed


def read_allowed(text: str) -> dict[str, int]:
    return {path: int(count) for count, path in (line.split(" ", 1) for line in text.splitlines())}


def find(path: str, text: str, patterns: Patterns) -> list[str]:
    """Return the findings in one file as `line: matched words -> suggestion`."""
    lines = [*(python_prose(text) if path.endswith(".py") else markdown(text, 1))]
    ends = [*accumulate(len(line) for _, line in lines)]
    prose = CODE.sub(lambda code: "`" * len(code[0]), "".join(line for _, line in lines))
    found = [
        (lines[bisect(ends, match.end() - 1)][0], f"{match[0].strip(' .:;')} -> {advice}")
        for pattern, advice in patterns
        for match in pattern.finditer(prose)
    ]
    return [f"{line}: {words}" for line, words in sorted(found)]


def markdown(text: str, first: int) -> Lines:
    """Yield the lines of Markdown outside blocks of code; list items and table cells start anew."""
    text = "\n" + BLOCKS.sub(lambda block: "\n" * block[0].count("\n"), text)
    for number, line in enumerate(text.splitlines(), first - 1):
        line = line.strip().replace("**", "") + " "
        yield number, (CELL if line.startswith("|") else ITEM).sub(START, line)


def python_prose(text: str) -> Lines:
    literals = set[ast.AST]()
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Expr(value=ast.Constant(value=str(docstring))):
                literals.add(node.value)
                indented = " " * node.col_offset + docstring
                yield from markdown(textwrap.dedent(indented), node.lineno)
            case ast.JoinedStr(values=values):
                literals.update(values)
                parts = (v.value if isinstance(v, ast.Constant) else "{}" for v in values)
                yield from literal(node, "".join(map(str, parts)))
            case ast.Constant(value=str(string)) if node not in literals:
                yield from literal(node, string)
            case ast.FunctionDef(name=name) if name.startswith("test_"):
                yield node.lineno, START + name.removeprefix("test_").replace("_", " ")
            case _:
                pass
    for match in COMMENTS.finditer(text):
        if match[2]:
            comment = re.sub(r"^ *# ?", "", match[2], flags=re.M)
            yield from markdown(comment, 1 + text.count("\n", 0, match.start()))


def literal(node: ast.expr, string: str) -> Lines:
    if " " in string and "\n" not in string.rstrip():
        yield node.lineno, START + string.strip()


def subject_errors(message: str, patterns: Patterns) -> list[str]:
    subject = next((line for line in message.splitlines() if line and line[0] != "#"), "")
    if GENERATED.match(subject):
        return []
    errors = [f"subject:{words}" for words in find("subject", subject, patterns)]
    if len(subject) > 72:
        errors.append(f"subject has {len(subject)} characters; 72 are allowed")
    if not SUBJECT.match(subject):
        errors.append("subject is not `area: change`")
    return errors


if __name__ == "__main__":
    sys.exit(main())
