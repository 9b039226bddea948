"""Of a kernel that may start while the one in front of it runs, the PTX accesses GMEM behind
`griddepcontrol.wait` alone, but for TMA loads of tensors of `Schedule.constant`.

The SCHEDULED kernel does (ir/early_start.py). But what LLVM takes for a load of what nobody writes
(`ld.global.nc`) orders nothing for it, and no event that skeleton.py compares. So it is looked at
here where these ended up: on no path from the kernel's start does one come before a wait.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from wsdsl.diagnostics import Finding, VerifyError
from wsdsl.ir.barrier_ops import WaitPredecessor
from wsdsl.ir.early_start import constant_tensors
from wsdsl.ir.memory_ops import MakeTensorMap
from wsdsl.ir.op import Kernel

HINT = "codegen or LLVM moved it: this is a bug in wsdsl; please report it"
COMMENT = re.compile(r"//[^\n]*")
STATEMENT = re.compile(
    r"(?<![^\s;{}:])(?:"
    r"(?P<label>[$a-zA-Z_][$\w]*):(?!:)"
    r"|(?:@(?P<guard>!?[%\w]+)\s+)?"
    r"(?P<op>(?:bra|brx|call|ret|exit|trap|griddepcontrol|ldu?|st|red|atom|multimem|cp)(?:\.[\w.:]+)?)"
    r"(?=[\s;])(?P<args>[^;]*);"
    r"|(?P<table>\.branchtargets)(?P<targets>[^;]*);)"
)
COPIED = re.compile(r"^[ \t]*(?:mov|cvta)(?:\.\w+)+[ \t]+(%\w+),[ \t]*(\w+|%\w+);", re.M)
MAP = re.compile(r"\[\s*(%\w+)\s*,\s*\{")
LOAD = re.compile(r"cp\.async\.bulk\.tensor\.\dd\.(?:tile\.)?shared::cluster\.global\.")
ELSEWHERE = {"shared", "shared::cta", "shared::cluster", "param", "local", "const"}
"""State spaces that are not GMEM; an address without one may be there."""


@dataclass(frozen=True)
class Statement:
    at: int
    label: str
    guard: str
    op: str
    args: str

    @property
    def touches(self) -> bool:
        """If it may access GMEM. (What brings lines to L2 does not: all see what is there.)"""
        kind, *words = self.op.split(".")
        if kind in ("cp", "call"):
            return kind == "call" or "global" in words
        memory = kind in ("ld", "ldu", "st", "red", "atom", "multimem")
        return memory and not ELSEWHERE & {*words}


def check_early_accesses(kernel: Kernel, ptx: str) -> None:
    """Raises VerifyError with the first access to GMEM that no wait stands in front of."""
    if not any(isinstance(op, WaitPredecessor) for op in kernel.ops):
        return
    text = COMMENT.sub(lambda m: " " * len(m[0]), ptx)
    constant = constant_tensors(kernel)
    # Maps are the first parameters (codegen/signature.py).
    maps = [op.tensor.name for op in kernel.ops if isinstance(op, MakeTensorMap)]
    free = {f"{kernel.name}_param_{i}" for i, name in enumerate(maps) if name in constant}
    copies = _copies(text)
    for found in sorted(_before_waits(text), key=lambda s: s.at):
        if found.touches and _map_of(found, copies) not in free:
            line = ptx.count("\n", 0, found.at) + 1
            shown = " ".join(f"{found.op} {found.args}".split())
            message = f"`{shown}` (line {line} of the PTX) may come before `griddepcontrol.wait`"
            raise VerifyError(Finding(message, kernel.loc, HINT))


def _before_waits(text: str) -> Iterator[Statement]:
    """All that a thread may come to before it has waited."""
    statements: list[Statement] = []
    tables: dict[str, list[str]] = {}
    for m in STATEMENT.finditer(text):
        if m["table"]:
            tables[statements[-1].label] = m["targets"].replace(",", " ").split()
            continue
        made = Statement(m.start(), m["label"] or "", m["guard"] or "", m["op"] or "", m["args"])
        statements.append(made)
    places = {s.label: n for n, s in enumerate(statements) if s.label}
    seen, todo = set[int](), [0]
    while todo:
        n = todo.pop()
        if n in seen or n >= len(statements):
            continue
        seen.add(n)
        here = statements[n]
        yield here
        kind = here.op.partition(".")[0]
        targets: list[str] = []
        if kind == "bra":
            targets = [here.args.strip()]
        elif kind == "brx":
            targets = tables[here.args.rpartition(",")[2].strip()]
        todo += [places[target] for target in targets]
        leaves = kind in ("bra", "brx", "ret", "exit", "trap") or here.op == "griddepcontrol.wait"
        if here.guard or not leaves:
            todo.append(n + 1)


def _copies(text: str) -> dict[str, str]:
    """Of registers that are written once, what is copied there."""
    found: dict[str, list[str]] = {}
    for to, source in COPIED.findall(text):
        found.setdefault(to, []).append(source)
    return {to: sources[0] for to, sources in found.items() if len(sources) == 1}


def _map_of(statement: Statement, copies: dict[str, str]) -> str:
    """The parameter that has the map of a TMA load."""
    found = MAP.search(statement.args) if LOAD.match(statement.op) else None
    name = found[1] if found else ""
    while name in copies:
        name = copies[name]
    return name
