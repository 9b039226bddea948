"""LLVM IR text to PTX, in this process."""

import re
from functools import cache
from typing import Any

from wsdsl.diagnostics import CompileError
from wsdsl.ir.hardware.target import H200, Target

MIXED_INTEGERS = re.compile(r"\.s32\.(s8\.u8|u8\.s8) ")
PTX_OF_MIXED = 84
"""wgmma of i8 with u8 came with CUDA 12.4."""

PASSES = ("instruction_combine", "simplify_cfg")
"""Passes over the generated text: fold constants and divisions, remove dead code and branches that
are decided. NVPTX's pipeline runs CSE afterwards. Left out on purpose: loop-invariant code motion,
which hoists per-thread constants out of the persistent loop into registers that the accumulators
need; unrolling and rotation, since loops are emitted in their final form; SROA, since loops carry
values in phi nodes already.
"""


@cache
def _target_machine(arch: str, ptx: int) -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple("nvptx64-nvidia-cuda")
    return target.create_target_machine(cpu=arch, features=f"+ptx{ptx}", opt=3)


def emit_ptx(text: str, target: Target = H200) -> str:
    """Compile LLVM IR to PTX. CompileError if LLVM rejects it: a bug of wsdsl, or edited IR."""
    import llvmlite.binding as llvm

    least = PTX_OF_MIXED if MIXED_INTEGERS.search(text) else 0
    machine = _target_machine(target.llvm_arch or target.arch, max(target.ptx, least))
    try:
        module = llvm.parse_assembly(text)
        module.verify()
    except RuntimeError as e:
        raise CompileError(f"WS0621 LLVM rejects its IR: {e}", hint="report this bug") from e
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    options.loop_unrolling = False
    builder = llvm.create_pass_builder(machine, options)
    passes: Any = llvm.create_new_module_pass_manager()
    for name in PASSES:
        getattr(passes, f"add_{name}_pass")()
    passes.run(module, builder)
    ptx: str = machine.emit_assembly(module)
    return _renamed(ptx, target) if target.llvm_arch else ptx


def _renamed(ptx: str, target: Target) -> str:
    """Rename the target for a GPU that LLVM treats as another one."""
    version = f"{target.ptx_header // 10}.{target.ptx_header % 10}"
    ptx = re.sub(r"(?m)^\.version .*$", f".version {version}", ptx, count=1)
    return re.sub(rf"(?m)^\.target {target.llvm_arch}\b", f".target {target.arch}", ptx, count=1)
