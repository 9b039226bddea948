"""The grid: indices of CTAs, clusters and warpgroups, and registers per thread."""

from __future__ import annotations

from dataclasses import replace

from wsdsl.codegen import nvvm
from wsdsl.codegen.emission_context import Context
from wsdsl.codegen.value_registers import Scalar
from wsdsl.ir import ops
from wsdsl.ir.op import OneResult
from wsdsl.ir.types import I32


def convert_setmaxnreg(c: Context, op: ops.Setmaxnreg) -> None:
    nvvm.setmaxnreg(c.w, op.count, op.increase)
    c.place = replace(c.place, registers=op.count)


def convert_launch_grid(c: Context, op: ops.LaunchGrid) -> None:
    """The runtime reads the grid; the kernel has no code for it."""


def convert_launch_narrowing(c: Context, op: ops.LaunchNarrowing) -> None:
    c.held[op.result] = Scalar(c.narrower, I32, nonnegative=True)


def convert_cta_index(c: Context, op: OneResult) -> None:
    _special_register(c, op, "ctaid.x")


def convert_num_ctas(c: Context, op: OneResult) -> None:
    _special_register(c, op, "nctaid.x")


def convert_cluster_index(c: Context, op: OneResult) -> None:
    _special_register(c, op, "clusterid.x")


def convert_num_clusters(c: Context, op: OneResult) -> None:
    _special_register(c, op, "nclusterid.x")


def convert_cta_rank(c: Context, op: OneResult) -> None:
    _special_register(c, op, "cluster.ctarank")


def _special_register(c: Context, op: OneResult, name: str) -> None:
    c.held[op.result] = Scalar(nvvm.special_register(c.w, name), I32, nonnegative=True)


def convert_warpgroup_index(c: Context, op: ops.WarpgroupIndex) -> None:
    c.held[op.result] = Scalar(c.own_warpgroup(), I32, nonnegative=True)
