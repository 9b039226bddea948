"""The PTX synchronises exactly as the SCHEDULED kernel does: codegen and LLVM are not trusted.

Both are read as automata whose letters are synchronising events with their immediates and places,
and must have the same language. So no event can be lost, repeated, moved past another or be given
another count without this being seen, whatever LLVM does to blocks and loops.
"""

from __future__ import annotations

import re

from wsdsl.diagnostics import Finding, VerifyError
from wsdsl.ir.op import Kernel, Op
from wsdsl.ir.printer import print_head
from wsdsl.prover.skeleton_language import UNKNOWN, Difference, Graph, Letter, States, difference
from wsdsl.prover.skeleton_of_kernel import skeleton_of_kernel
from wsdsl.prover.skeleton_of_ptx import skeleton_of_ptx

HINT = "codegen or LLVM changed the synchronisation: this is a bug in wsdsl; please report it"
END = "the end of the kernel"


def check_skeleton(kernel: Kernel, ptx: str) -> set[tuple[str, str]]:
    """Raises VerifyError with the first event in which the PTX differs from a SCHEDULED kernel.

    Returns what is `undecided`, and was not compared.
    """
    wanted, places = skeleton_of_kernel(kernel)
    launched = re.search(r"\.reqntid (\d+)", ptx)
    if launched is None or int(launched[1]) != places.num_threads:
        has = launched[0] if launched else "no .reqntid"
        message = f"expected .reqntid {places.num_threads}, the PTX has {has}"
        raise VerifyError(Finding(message, kernel.loc, HINT))
    got = skeleton_of_ptx(ptx, places)
    unknown = undecided(got) | undecided(wanted)
    if unknown:
        wanted, got = wanted.without(unknown), got.without(unknown)
    found = difference(wanted, got, places.num_threads)
    if found is not None:
        raise VerifyError(_finding(kernel, wanted, got, found, ptx.splitlines()))
    return unknown


def undecided(graph: Graph) -> set[tuple[str, str]]:
    """Fields of events that are not told: they are compared in no event of the kind."""
    return {
        (letter.kind, name)
        for letter in graph.named()
        for name in ("barrier", "to")
        if getattr(letter, name) == UNKNOWN
    }


def _finding(
    kernel: Kernel, wanted: Graph, got: Graph, found: Difference, lines: list[str]
) -> Finding:
    missing = [a for a in found.left if a not in found.right]
    extra = [a for a in found.right if a not in found.left]
    expected = [_op(wanted, a, found.left) for a in missing or found.left]
    present = [_line(got, a, found.right, lines) for a in extra or found.right]
    if found.ends[0] and (not missing or found.ends[0] != found.ends[1]):
        expected.append(END)
    if found.ends[1] and (not extra or found.ends[0] != found.ends[1]):
        present.append(END)
    after = [got.origins[n] for n in sorted(found.before[1])]
    place = "".join(
        f", after line {n}: {lines[n - 1].strip()}" for n in after if isinstance(n, int)
    )
    message = f"expected {_either(expected)} here, the PTX has {_either(present)}{place}"
    message += f" (thread {found.thread})"
    ops = [wanted.origins[n] for a in missing or found.left for n in sorted(found.left.get(a, ()))]
    ops += [wanted.origins[n] for n in sorted(found.before[0])]
    locs = [op.loc for op in ops if isinstance(op, Op) and op.loc is not None]
    return Finding(message, locs[0] if locs else kernel.loc, HINT)


def _op(graph: Graph, letter: Letter, moves: dict[Letter, States]) -> str:
    ops = [graph.origins[n] for n in sorted(moves[letter])]
    shown = [print_head(op) for op in ops if isinstance(op, Op)]
    return f"{letter} ({shown[0]})" if shown else str(letter)


def _line(graph: Graph, letter: Letter, moves: dict[Letter, States], lines: list[str]) -> str:
    number = next(
        n for n in (graph.origins[m] for m in sorted(moves[letter])) if isinstance(n, int)
    )
    return f"{letter} (line {number}: {lines[number - 1].strip()})"


def _either(shown: list[str]) -> str:
    return " or ".join(dict.fromkeys(shown)) or "nothing"
