"""Find ptxas and run it."""

import re
import subprocess
import tempfile
from pathlib import Path

from wsdsl.artifact.artifact import Assembled, Resources
from wsdsl.artifact.versions import find_nvdisasm, find_ptxas, ptxas_version
from wsdsl.codegen.ptxas_diagnostics import check, remarks
from wsdsl.diagnostics import CompileError, Finding
from wsdsl.ir.hardware.target import H200, Target
from wsdsl.ir.op import Kernel


class AssembleError(CompileError):
    """ptxas rejects the PTX. `assemble_checked` finds the line of the source."""

    def __init__(self, log: str, ptxas: str) -> None:
        self.log = log
        hint = f"report this bug in wsdsl ({ptxas}, {ptxas_version(ptxas)})"
        super().__init__(Finding(f"WS0622 ptxas rejects the PTX:\n{log.strip()}", hint=hint))


def assemble(ptx: str, path: str | None = None, target: Target = H200) -> Assembled | None:
    """Assemble PTX. None without ptxas: the driver assembles then."""
    ptxas = find_ptxas(path)
    if ptxas is None:
        return None
    with tempfile.TemporaryDirectory(prefix="wsdsl-") as folder:
        source, cubin = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
        source.write_text(ptx)
        command = [ptxas, f"-arch={target.arch}", "-v", str(source), "-o", str(cubin)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError as e:
            hint = "set WSDSL_PTXAS to another ptxas"
            raise CompileError(f"WS0623 cannot run {ptxas}: {e}", hint=hint) from e
        log = f"{done.stdout}{done.stderr}".replace(str(source), "kernel.ptx")
        if done.returncode or not cubin.exists():
            raise AssembleError(log, ptxas)
        return Assembled(cubin.read_bytes(), read_resources(log, ptxas_version(ptxas)), log, ptx)


def assemble_checked(
    kernel: Kernel, ptx: str, path: str | None = None, *, allow_spills: bool = False
) -> Assembled | None:
    """`assemble` and `check`; rejected PTX is reported by its source line, too. None: no ptxas."""
    try:
        assembled = assemble(ptx, path, kernel.target)
    except AssembleError as e:
        findings = list(remarks(kernel, ptx, e.log))
        if not findings:
            raise
        raise CompileError(findings) from e
    if assembled is not None:
        check(kernel, assembled, allow_spills=allow_spills)
    return assembled


def disassemble(cubin: bytes) -> str:
    """Disassemble to SASS. CompileError without nvdisasm."""
    tool = find_nvdisasm()
    if tool is None:
        hint = "run pip install nvidia-cuda-nvdisasm"
        raise CompileError("WS0624 nvdisasm is not installed", hint=hint)
    with tempfile.TemporaryDirectory(prefix="wsdsl-") as folder:
        path = Path(folder, "kernel.cubin")
        path.write_bytes(cubin)
        done = subprocess.run([tool, "-c", str(path)], capture_output=True, text=True, check=False)
    if done.returncode:
        message = f"WS0625 nvdisasm fails: {done.stderr.strip()}"
        raise CompileError(message, hint="run pip install -U nvidia-cuda-nvdisasm")
    return done.stdout


def read_resources(log: str, version: str) -> Resources:
    def number(pattern: str) -> int:
        result = re.search(pattern, log)
        return int(result[1]) if result else 0

    return Resources(
        registers=number(r"Used (\d+) registers"),
        smem_bytes=number(r"(\d+) bytes smem"),
        spill_store_bytes=number(r"(\d+) bytes spill stores"),
        spill_load_bytes=number(r"(\d+) bytes spill loads"),
        stack_bytes=number(r"(\d+) bytes stack frame"),
        ptxas_version=version,
    )
