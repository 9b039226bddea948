"""Of a kernel that may start while the one before it runs, the PTX accesses GMEM behind
`griddepcontrol.wait` alone, but for loads of tensors of `Schedule.pdl_independent`.

The SCHEDULED kernel does (ir/analysis/early_start.py). But what LLVM takes for a load of what no
thread writes (`ld.global.nc`) orders nothing for it, and no event that check_ptx.py compares. So it
is looked at here where these ended up: on no path from the kernel's start does one come before a
wait.
"""

import re
from collections.abc import Iterator, Sequence

from wsdsl.diagnostics import VerifyError
from wsdsl.ir.analysis.early_start import constant_tensors
from wsdsl.ir.op import Kernel
from wsdsl.ir.ops import GriddepWait
from wsdsl.prover.ptx.ptx_trace import Token, tokens_of, without_comments
from wsdsl.reachability import reached

HINT = "report this bug in wsdsl: codegen or LLVM moved the access"
STATEMENT = re.compile(
    r"(?<![^\s;{}:])(?:"
    r"(?P<label>[$a-zA-Z_][$\w]*):(?!:)"
    r"|(?:@(?P<guard>!?[%\w]+)\s+)?"
    r"(?P<op>(?:bra|brx|call|ret|exit|trap|griddepcontrol|ldu?|st|red|atom|multimem|cp)(?:\.[\w.:]+)?)"
    r"(?=[\s;])(?P<args>[^;]*);"
    r"|(?P<table>\.branchtargets)(?P<targets>[^;]*);)"
)
DEFINITION = re.compile(
    r"^[ \t]*(?:@!?%?\w+[ \t]+)?([a-z][\w.:]*)[ \t]+(%\w+|\{[^}]*\})(?:\|%?\w+)?,[ \t]*([^;]*);",
    re.M,
)
PARAMETER = re.compile(r"\w+_param_(\d+)")
REGISTER = re.compile(r"%\w+")
ADDRESS = re.compile(r"\[\s*(%\w+)\s*\+?\s*-?\d*\s*\]")
MAP = re.compile(r"\[\s*(%\w+)\s*,\s*\{")
LOAD = re.compile(r"cp\.async\.bulk\.tensor\.\dd\.(?:tile\.)?shared::cluster\.global\.")
ELSEWHERE = {"shared", "shared::cta", "shared::cluster", "param", "local", "const"}
"""State spaces that are not GMEM; an address without one may be there."""


def _touches(statement: Token) -> bool:
    """Whether it may access GMEM. A prefetch to L2 does not: it changes no contents."""
    kind, *words = statement.op.split(".")
    if kind in ("cp", "call"):
        return kind == "call" or ("global" in words and "prefetch" not in words)
    memory = kind in ("ld", "ldu", "st", "red", "atom", "multimem")
    return memory and not ELSEWHERE & {*words}


def check_early_accesses(kernel: Kernel, ptx: str, owners: Sequence[str]) -> None:
    """Raises VerifyError with the first access to GMEM without a wait before it. `owners`:
    of each parameter the tensor, if it is its address or map.
    """
    if not any(isinstance(op, GriddepWait) for op in kernel.ops):
        return
    text = without_comments(ptx)
    constant = constant_tensors(kernel)
    early = sorted((s for s in _before_waits(text) if _touches(s)), key=lambda s: s.at)
    made = _definitions(text) if early else {}
    for found in early:
        tensors = {owners[n] for n in _parameters(found, made)} - {""}
        if not tensors or tensors - constant:
            line = ptx.count("\n", 0, found.at) + 1
            shown = " ".join(f"{found.op} {found.args}".split())
            message = f"WS0963 `{shown}` (line {line} of the PTX) may precede `griddepcontrol.wait`"
            raise VerifyError(message, kernel.loc, HINT)


def _before_waits(text: str) -> Iterator[Token]:
    """All that a thread may come to before it has waited."""
    tables: dict[str, list[str]] = {}
    statements = list(tokens_of(text, STATEMENT, tables))
    places = {s.label: n for n, s in enumerate(statements) if s.label}

    def after(n: int) -> Iterator[int]:
        here = statements[n]
        kind = here.op.partition(".")[0]
        if kind == "bra":
            yield places[here.args.strip()]
        elif kind == "brx":
            yield from (places[x] for x in tables[here.args.rpartition(",")[2].strip()])
        leaves = kind in ("bra", "brx", "ret", "exit", "trap") or here.op == "griddepcontrol.wait"
        if n + 1 < len(statements) and (here.guard or not leaves):
            yield n + 1

    return (statements[n] for n in reached([0] if statements else [], after))


def _definitions(text: str) -> dict[str, str]:
    """Operands of each register; a loaded value says nothing about its address."""
    found: dict[str, str] = {}
    for op, to, operands in DEFINITION.findall(text):
        if not op.startswith(("ld", "atom")) or op.startswith("ld.param"):
            for name in REGISTER.findall(to):
                found[name] = f"{found.get(name, '')} {operands}"
    return found


def _parameters(statement: Token, made: dict[str, str]) -> set[int]:
    """Those from which a load's address or map is computed; none of what does not only load."""
    by_tma, plain = LOAD.match(statement.op), statement.op.startswith("ld")
    found = (MAP if by_tma else ADDRESS).search(statement.args) if by_tma or plain else None
    names = reached([found[1]] if found else [], lambda x: REGISTER.findall(made.get(x, "")))
    return {int(n) for name in names for n in PARAMETER.findall(made.get(name, ""))}
