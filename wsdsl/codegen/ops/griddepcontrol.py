"""Programmatic dependent launch (griddepcontrol)."""

from __future__ import annotations

from wsdsl.codegen import inline_ptx, nvvm
from wsdsl.codegen.emission_context import Context
from wsdsl.ir import ops


def convert_griddep_wait(c: Context, op: ops.GriddepWait) -> None:
    if c.place.inside:
        inline_ptx.griddep_wait(c.w)
    else:
        nvvm.griddep_wait(c.w)


def convert_griddep_launch_dependents(c: Context, _: ops.GriddepLaunchDependents) -> None:
    nvvm.griddep_launch_dependents(c.w)
