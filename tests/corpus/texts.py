"""Kernels that no other table of the tests has, and edits of kernels; texts.txt has the texts."""

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks import pattern_texts
from tests.corpus.entries import Entry
from tests.kernels import CASES
from wsdsl import Schedule

FILE = Path(__file__).with_suffix(".txt")
SIZES = dict(B=2, H=16, KV=4, S=4096, T=4096, D=128, E=64, TP=128, M=4096, N=2048, K=4096, P=8192)
SIZES |= dict(B1=9, G=8, G1=9, KB=32, NB=16)
FIELDS = {field.name for field in dataclasses.fields(Schedule)}


def _sections() -> Iterator[tuple[str, str, list[str]]]:
    """Yield the name, the text and the other lines of each section."""
    texts = {name: case.text for name, case in CASES.items()}
    texts |= {name: f"@kernel{text}" for name, text in pattern_texts.TEXTS.items()}
    for section in FILE.read_text().split("\n== ")[1:]:
        head, *lines = section.strip().splitlines()
        name, _, base = head.partition(": ")
        text, others = texts[base] if base else "\n", list[str]()
        for line in lines:
            if line.startswith(("--", "sizes ")):
                others.append(line)
            elif " =>" not in line:
                text += f"{line}\n"
            else:
                old, new = (part.replace("\\n", "\n") for part in line.split(" =>"))
                assert old in text, f"{name}: {old!r} is not in the text"
                text = text.replace(old, new.removeprefix(" "))
        texts[name] = text
        yield name, text, others


def _words(line: str) -> dict[str, str]:
    return dict(word.split("=") for word in line.split()[1:])


SECTIONS = [*_sections()]
TEXTS = {
    name: (text, {dim: int(size) for dim, size in _words(line).items()})
    for name, text, lines in SECTIONS
    for line in lines
    if line.startswith("sizes ")
}
"""By name: the text, and small sizes."""


def entries() -> Iterator[Entry]:
    for name, text, lines in SECTIONS:
        dims = re.findall(r"\b[A-Z]\w*\b(?=[^\[]*\])", text.partition("):")[0])
        for line in lines:
            if line.startswith("--"):
                line, _, rejected = line.partition("! ")
                yield _entry(name, text, [*dict.fromkeys(dims)], _words(line), rejected)


def _entry(name: str, text: str, dims: list[str], words: dict[str, str], rejected: str) -> Entry:
    threads: Any = words.get("threads", "none")
    return Entry(
        "/".join((name, *(f"{word}={value}" for word, value in words.items()))),
        text,
        {dim: int(words.get(dim, SIZES[dim])) for dim in dims},
        {field: value for field, value in words.items() if field in FIELDS},
        tuple(threads.split(",")) if threads not in ("none", "all") else threads,
        rejected=rejected,
    )
