"""Kernels after those of the tests: attention, decode, backward, grouped, chained, norms of an MMA.

variants.txt has their texts, edits, sizes and expected rejections.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks import pattern_texts
from tests.corpus.entries import Entry
from tests.corpus.texts import TEXTS
from tests.kernels import CASES
from wsdsl import Schedule

FILE = Path(__file__).with_suffix(".txt")
SIZES = dict(B=2, H=16, KV=4, S=4096, T=4096, D=128, E=64, TP=128, M=4096, N=2048, K=4096, P=8192)
SIZES |= dict(B1=9, G=8, G1=9, KB=32, NB=16)
FIELDS = {field.name for field in dataclasses.fields(Schedule)}


def entries() -> Iterator[Entry]:
    texts = {name: case.text for name, case in CASES.items()}
    texts |= {name: text for name, (text, _) in TEXTS.items()}
    texts |= {name: f"@kernel{text}" for name, text in pattern_texts.TEXTS.items()}
    for section in FILE.read_text().split("\n== ")[1:]:
        head, *lines = section.splitlines()
        name, _, base = head.partition(": ")
        text = texts.get(base, "")
        for line in lines:
            old, is_edit, new = line.partition(" =>")
            if line.startswith("--"):
                yield _entry(name, text, line[2:])
            elif is_edit:
                old, new = (part.replace("\\n", "\n") for part in (old, new.removeprefix(" ")))
                assert old in text, f"{name}: {old!r} is not in the text"
                text = text.replace(old, new)
            else:
                text += f"{line}\n"
        texts[name] = text


def _entry(name: str, text: str, line: str) -> Entry:
    line, _, rejected = line.partition("! ")
    words = dict(word.split("=") for word in line.split())
    dims = re.findall(r"\b[A-Z]\w*\b(?=[^\[]*\])", text.partition("):")[0])
    threads: Any = words.get("threads", "none")
    return Entry(
        "/".join((name, *line.split())),
        text,
        {dim: int(words.get(dim, SIZES[dim])) for dim in dict.fromkeys(dims)},
        {field: value for field, value in words.items() if field in FIELDS},
        tuple(threads.split(",")) if threads not in ("none", "all") else threads,
        rejected=rejected,
    )
