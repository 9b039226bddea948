"""The grid: indices of CTAs, clusters and warpgroups, and registers per thread."""

from collections.abc import Callable
from dataclasses import replace

from wsdsl.codegen import nvvm
from wsdsl.codegen.emission_context import Context
from wsdsl.codegen.value_registers import Scalar
from wsdsl.ir import ops
from wsdsl.ir.op import OneResult
from wsdsl.ir.types import I32


def convert_setmaxnreg(c: Context, op: ops.Setmaxnreg) -> None:
    name = f"llvm.nvvm.setmaxnreg.{'inc' if op.increase else 'dec'}.sync.aligned.u32"
    c.w.call(name, "void", [("i32", str(op.count))])
    c.place = replace(c.place, registers=op.count)


def convert_launch_grid(c: Context, op: ops.LaunchGrid) -> None:
    """The runtime reads the grid; the kernel has no code for it."""


def convert_launch_narrowing(c: Context, op: ops.LaunchNarrowing) -> None:
    c.values[op.result] = Scalar(c.narrower, I32, nonnegative=True)


def _special_register(name: str) -> Callable[[Context, OneResult], None]:
    def convert(c: Context, op: OneResult) -> None:
        c.values[op.result] = Scalar(nvvm.special_register(c.w, name), I32, nonnegative=True)

    return convert


convert_cta_index = _special_register("ctaid.x")
convert_num_ctas = _special_register("nctaid.x")
convert_cluster_index = _special_register("clusterid.x")
convert_num_clusters = _special_register("nclusterid.x")
convert_cta_rank = _special_register("cluster.ctarank")


def convert_warpgroup_index(c: Context, op: ops.WarpgroupIndex) -> None:
    c.values[op.result] = Scalar(c.own_warpgroup(), I32, nonnegative=True)
