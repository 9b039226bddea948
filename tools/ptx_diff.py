"""Two texts of PTX: whether they are the same but for names, and what differs if not."""

from __future__ import annotations

import difflib
import re
from collections import Counter

NAME = re.compile(r"(%(?:p|rs|rd|rq|r|fd|f|hh|h|b))\d+\b|\$L\w+")
COUNT = re.compile(r"(\.reg\s.*)<\d+>")


def normalised(ptx: str) -> list[str]:
    """Lines with registers and labels numbered in the order in which they appear, without how many
    there are of each class.
    """
    known: dict[str, str] = {}
    used: Counter[str] = Counter()

    def renamed(found: re.Match[str]) -> str:
        old = found[0]
        if old not in known:
            kind = found[1] or "$L"
            used[kind] += 1
            known[old] = f"{kind}{used[kind]}"
        return known[old]

    return [NAME.sub(renamed, COUNT.sub(r"\1<>", line)).rstrip() for line in ptx.splitlines()]


def summary(base: str, head: str) -> str:
    """What differs of two normalised texts in one line: opcodes, by how many there are of each."""
    old, new = normalised(base), normalised(head)
    counted = Counter(filter(None, map(_opcode, new)))
    counted.subtract(Counter(filter(None, map(_opcode, old))))
    changed = sorted((op for op, n in counted.items() if n), key=lambda op: (-abs(counted[op]), op))
    if changed:
        told = ", ".join(f"{op} {counted[op]:+}" for op in changed[:6])
        return told + (f", {len(changed) - 6} more" if len(changed) > 6 else "")
    lines = [line for line in difflib.unified_diff(old, new, n=0) if line[:1] in "+-"]
    where = sorted({_opcode(line[1:]) for line in lines if not line.startswith(("+++", "---"))})
    where = [opcode or "labels or comments" for opcode in where]
    return f"as many of each opcode; other order or operands: {', '.join(where[:6])}"


def difference(name: str, base: str, head: str) -> str:
    """A unified diff of the normalised texts."""
    lines = difflib.unified_diff(
        normalised(base), normalised(head), f"base/{name}", f"head/{name}", lineterm=""
    )
    return "\n".join(lines)


def _opcode(line: str) -> str:
    """Empty for what is no instruction: comments, labels, braces, declarations of registers."""
    words = line.split()
    if words and words[0].startswith("@"):
        words = words[1:]
    word = words[0].rstrip(";") if words else ""
    return "" if word.startswith(("//", "$", "{", "}", ".reg")) or word.endswith(":") else word
