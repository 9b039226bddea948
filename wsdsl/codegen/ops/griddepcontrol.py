"""Programmatic dependent launch (griddepcontrol)."""

from wsdsl.codegen.emission_context import Context
from wsdsl.ir import ops


def convert_griddep_wait(c: Context, _: ops.GriddepWait) -> None:
    """Use PTX in partitions: loads may pass LLVM's intrinsic, which touches no memory. Before the
    partitions `sync_cta` follows the wait.
    """
    if c.place.inside:
        c.w.asm("griddepcontrol.wait;")
    else:
        c.w.call("llvm.nvvm.griddepcontrol.wait", "void")


def convert_griddep_launch_dependents(c: Context, _: ops.GriddepLaunchDependents) -> None:
    c.w.call("llvm.nvvm.griddepcontrol.launch.dependents", "void")
