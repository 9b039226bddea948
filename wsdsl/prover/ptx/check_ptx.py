"""The PTX synchronizes exactly as the SCHEDULED kernel does: codegen and LLVM are not trusted.

Both are read as automata whose letters are synchronizing events with their immediates and places,
and must have the same language. So no event can be lost, repeated, moved past another or be given
another count without this being seen, for all changes of LLVM to blocks and loops.
"""

import re
from collections.abc import Sequence
from contextlib import suppress

from wsdsl.diagnostics import Finding, VerifyError
from wsdsl.ir.analysis.launch_narrowing import each_width, narrowing_of
from wsdsl.ir.analysis.tile_widths import narrowings
from wsdsl.ir.op import Kernel
from wsdsl.ir.ops import Partition
from wsdsl.ir.printer import print_head
from wsdsl.prover.ptx.expected_paths import KernelPaths, Member, Skeleton
from wsdsl.prover.ptx.expected_trace import skeleton_of_kernel
from wsdsl.prover.ptx.launch_width_traces import Checked, at_width
from wsdsl.prover.ptx.loop_events import bounds_of_loops
from wsdsl.prover.ptx.ptx_paths import PtxPaths, Runs
from wsdsl.prover.ptx.ptx_trace import Program
from wsdsl.prover.ptx.register_values import ApartError
from wsdsl.prover.ptx.sampled_execution import differing_event
from wsdsl.prover.ptx.trace_equivalence import Difference, EndlessError, difference

HINT = "report this bug in wsdsl: codegen or LLVM changed the synchronization"
END = "the end of the kernel"


def check_skeleton(kernel: Kernel, ptx: str) -> None:
    """Raises VerifyError with the first event in which the PTX differs from a SCHEDULED kernel, or
    that cannot be told. Of one whose launches differ in width both are looked at by each."""
    found = narrowing_of(kernel)
    checked = list[Checked]() if found else None
    widths = narrowings(found.widths) if found else (None,)
    for each, columns in zip(each_width(kernel), widths, strict=True):
        own = ptx if columns is None else at_width(ptx, columns)
        if own is None:
            message = "WS0964 no parameter of the PTX gives the tile width of a launch"
            raise VerifyError(message, kernel.loc, HINT)
        _check(each, own, checked)


def _check(kernel: Kernel, ptx: str, checked: list[Checked] | None) -> None:
    """LLVM may ask for each of several loops of the same bounds if it runs, or once for all."""
    try:
        _check_one(kernel, ptx, False, checked)
    except VerifyError:
        bounds = [bounds_of_loops(own.body) for own in kernel.body if isinstance(own, Partition)]
        if all(len({*of}) == len(of) for of in bounds):
            raise
        with suppress(VerifyError):
            return _check_one(kernel, ptx, True, checked)
        raise  # the difference from the first skeleton


def _check_one(kernel: Kernel, ptx: str, together: bool, checked: list[Checked] | None) -> None:
    """`checked`: facts compared at other widths, if there are several."""
    skeleton, places = skeleton_of_kernel(kernel, together)
    launched = re.search(r"\.reqntid (\d+)", ptx)
    if launched is None or int(launched[1]) != places.num_threads:
        has = launched[0] if launched else "no .reqntid"
        message = f"WS0965 expected .reqntid {places.num_threads}, the PTX has {has}"
        raise VerifyError(message, kernel.loc, HINT)
    runs = Runs(Program(ptx, places), places.ranks)
    own = Checked(skeleton, runs, [*runs.classes(skeleton.ways)], None if checked is None else {})
    if not any(one.like(own) for one in checked or ()):
        for everybody, members in own.classes:
            try:
                _compare(kernel, own, everybody, members)
            except ApartError:
                for tid, rank in members:
                    _compare(kernel, own, 1 << tid, [(tid, rank)])
        if checked is not None:
            checked.append(own)
    if found := differing_event(kernel, runs.program, places.ranks):
        op, message = found
        raise VerifyError(f"WS0966 {message}", op.loc if op else kernel.loc, HINT)


def _compare(kernel: Kernel, own: Checked, everybody: int, members: Sequence[Member]) -> None:
    skeleton, runs = own.skeleton, own.runs
    left, right = KernelPaths(skeleton, everybody, members), PtxPaths(runs, everybody, members)
    try:
        met = None if own.met is None else own.met.setdefault(everybody, set())
        found = difference(left, right, met)
    except EndlessError:
        message = "WS0967 expected pipeline stages, the PTX has registers that count without end"
        raise VerifyError(message, kernel.loc, HINT) from None
    if found is not None:
        lines = runs.program.text.splitlines()
        raise VerifyError(_finding(kernel, skeleton, found, lines, members[0][0]))


def _finding(
    kernel: Kernel, skeleton: Skeleton, found: Difference, lines: list[str], tid: int
) -> Finding:
    missing = [a for a in found.left if a not in found.right]
    extra = [a for a in found.right if a not in found.left]
    nodes = [node for a in missing or found.left for node in sorted(found.left[a])]
    expected = [
        f"{a} ({print_head(op)})" if (op := skeleton.origins[min(found.left[a])]) else str(a)
        for a in missing or found.left
    ]
    present = [f"{a} {_line(min(found.right[a]), lines)}" for a in extra or found.right]
    if found.ends[0] and (not missing or found.ends[0] != found.ends[1]):
        expected.append(END)
    if found.ends[1] and (not extra or found.ends[0] != found.ends[1]):
        present.append(END)
    place = "".join(f", after {_line(n, lines)}" for n in sorted(found.before[1]))
    message = f"WS0968 expected {_either(expected)} here, the PTX has {_either(present)}{place}"
    message += f" (thread {tid})"
    ops = (skeleton.origins[node] for node in [*nodes, *sorted(found.before[0])])
    locs = [op.loc for op in ops if op is not None and op.loc is not None]
    return Finding(message, locs[0] if locs else kernel.loc, HINT)


def _line(number: int, lines: list[str]) -> str:
    return f"(line {number}: {lines[number - 1].strip()})"


def _either(shown: list[str]) -> str:
    return " or ".join(dict.fromkeys(shown)) or "nothing"
