"""Reject machine code that spills, serializes wgmma or ignores setmaxnreg, or in which ptxas reuses
registers that a wgmma still reads.

ptxas says so in remarks about PTX; here they become findings about lines of the source. Of the last
it says nothing: its machine code is read.
"""

import re
from collections.abc import Iterator

from wsdsl.artifact.artifact import Assembled
from wsdsl.artifact.machine_code import FIXED_IN, overwritten
from wsdsl.diagnostics import CompileError, Finding, Loc
from wsdsl.ir.op import Kernel, Op
from wsdsl.ir.ops import Partition, Setmaxnreg, WgmmaMmaAsync
from wsdsl.ir.types import Accumulator, Fragment

HARMLESS = {"C7517", "C7519"}
"""A wait or fence that ptxas put where one was missing; only the place pays."""
IGNORED_LIMIT = {"C7504", "C7505", "C7507", "C7508"}
SMALLER = "use a smaller tile (Schedule.tile), more consumers, or fewer accumulators at a time"
HINTS = {
    "C7509": "report this bug in wsdsl",
    "C7510": "report this bug in wsdsl",
    "C7511": SMALLER,
    "C7512": SMALLER,
    "C7513": "compute an operand of a matmul before the loop over the matmuls of its tile",
    "C7514": "use the accumulator only after the loop over its matmuls",
    "C7515": "start from zeros(...), and change the accumulator only after its matmuls",
    "C7602": SMALLER,
}
OTHER_HINT = "change the accumulator only after the loop over its matmuls"


class SpillError(CompileError):
    """The tiles do not fit the registers; smaller ones may."""

    spilled = 0
    """Bytes, as ptxas reports them."""


class OverwrittenError(CompileError):
    """Operands of matmuls are not safe in registers; elsewhere they are."""


def check(kernel: Kernel, assembled: Assembled, *, allow_spills: bool = False) -> None:
    """Raise CompileError with a finding for everything that would make the kernel slow, SpillError
    if smaller tiles would help against all of it; OverwrittenError where results would be wrong.
    """
    if places := overwritten(assembled.cubin):
        raise OverwrittenError(_overwritten(kernel, assembled, *places.values()))
    findings = list(remarks(kernel, assembled.ptx, assembled.log))
    if not allow_spills:
        findings += _spills(kernel, assembled)
    if findings:
        if not all(f.hint.startswith(SMALLER) for f in findings):
            raise CompileError(findings)
        error = SpillError(findings)
        error.spilled = assembled.resources.spill_store_bytes
        raise error


def remarks(kernel: Kernel, ptx: str, log: str) -> Iterator[Finding]:
    """Find the source lines of ptxas' performance warnings."""
    for code, text in dict.fromkeys(re.findall(r"\((C7[56]\d\d)\) *(.*)", log)):
        if code in HARMLESS:
            continue
        reason = _reason(text)
        if code in IGNORED_LIMIT:
            yield Finding(
                f"WS0626 ptxas cannot limit the registers: {reason} [{code}]",
                _limit_loc(kernel),
                f"{SMALLER}; or give the compute role more registers (Schedule.registers)",
            )
            continue
        op = _op_at(kernel, ptx, text) or _largest_product(kernel)
        what = "has too few registers for this matmul" if code == "C7602" else "serializes matmuls"
        yield Finding(
            f"WS0627 ptxas {what}: {reason} [{code}]", _loc(op, kernel), HINTS.get(code, OTHER_HINT)
        )


def _overwritten(kernel: Kernel, assembled: Assembled, places: list[int]) -> Finding:
    op = next((op for op in kernel.of(WgmmaMmaAsync) if isinstance(op.a.type, Fragment)), None)
    return Finding(
        f"WS0628 ptxas {assembled.resources.ptxas_version} reuses registers of an operand that "
        f"this matmul still reads (at {', '.join(map(hex, places[:4]))} of the machine code)",
        _loc(op, kernel),
        f"run pip install -U nvidia-cuda-nvcc ({FIXED_IN}), or compute the operand in SMEM: "
        'Schedule(operand_transform="smem")',
    )


def _reason(text: str) -> str:
    """A remark without its preamble, and without places in the PTX."""
    text = re.sub(r"^Potential Performance Loss: (wgmma\.mma_async .*? due to )?", "", text)
    text = re.sub(r",? in (the )?function '?\w+'?( in line \d+)?|at line \d+ ", "", text)
    return re.sub(r"\s+", " ", text).strip()


def _spills(kernel: Kernel, assembled: Assembled) -> Iterator[Finding]:
    value = assembled.resources
    spilled = max(value.spill_store_bytes, value.spill_load_bytes)
    if not (spilled or value.stack_bytes):
        return
    what = f"{spilled} bytes of registers spill"
    if not spilled:
        what = f"{value.stack_bytes} bytes of stack go"
    op = _largest_product(kernel)
    shares = [f"{op.registers} in {op.role}" for op in kernel.of(Partition) if op.registers]
    budget = ", ".join(shares) or "no limit by role"
    accumulator = f"; this accumulator alone needs {_accumulator_registers(op)}" if op else ""
    yield Finding(
        f"WS0629 {what} to local memory (registers per thread: {budget}{accumulator})",
        _loc(op, kernel),
        f"{SMALLER}; or allow spills: WSDSL_ALLOW_SPILLS=1, or "
        "wsdsl.config.override(allow_spills=True)",
    )


def _accumulator_registers(op: Op | None) -> int:
    kind = op.result.type if isinstance(op, WgmmaMmaAsync) else None
    return kind.columns // 2 if isinstance(kind, Accumulator) else 0


def _largest_product(kernel: Kernel) -> Op | None:
    return max(kernel.of(WgmmaMmaAsync), key=_accumulator_registers, default=None)


def _limit_loc(kernel: Kernel) -> Loc | None:
    """Where the largest limit is set."""
    limits = [op for op in kernel.of(Setmaxnreg) if op.loc]
    return max(limits, key=lambda op: op.count).loc if limits else kernel.loc


def _loc(op: Op | None, kernel: Kernel) -> Loc | None:
    return (op.loc if op else None) or kernel.loc


def _op_at(kernel: Kernel, ptx: str, text: str) -> Op | None:
    """The product whose text in the PTX the remark's line lies in, or follows."""
    result = re.search(r"line (\d+)", text)
    if result is None:
        return None
    before = ptx.splitlines()[: int(result[1])]
    names = [m[1] for line in before if (m := re.match(r"\s*// (\S+) = wgmma$", line))]
    products = {op.result.name: op for op in kernel.of(WgmmaMmaAsync)}
    return products.get(names[-1]) if names else None
