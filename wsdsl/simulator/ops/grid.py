"""Indices of CTAs, clusters and warpgroups, and registers per thread."""

from collections.abc import Callable
from operator import attrgetter

from wsdsl.ir import ops
from wsdsl.ir.op import Op
from wsdsl.simulator.warpgroup import Blocked, Steps, Warpgroup


def setmaxnreg(wg: Warpgroup, op: ops.Setmaxnreg) -> Steps:
    cta = wg.cta
    if op.count % 8 or not 24 <= op.count <= 256:
        wg.fail(op, f"setmaxnreg needs a multiple of 8 from 24 to 256, not {op.count} registers")
    if op.increase != (op.count >= wg.registers) and op.count != wg.registers:
        more = "more" if op.increase else "fewer"
        wg.fail(op, f"{op.count} registers per thread are not {more} than {wg.registers}")
    taken = op.count - wg.registers
    if taken > cta.free_registers:
        yield Blocked(
            op,
            lambda: taken <= cta.free_registers,
            lambda: (
                f"{taken} more registers per thread (now {wg.registers}); the pool of the CTA has "
                f"{cta.free_registers}"
            ),
        )
    wg.effect(op, "wait" if op.increase else "arrive", "registers", wg.everyone)
    cta.free_registers -= taken
    wg.registers = op.count


def run_launch_grid(wg: Warpgroup, op: ops.LaunchGrid) -> None:
    """The launch has read the grid."""


def _attribute(path: str) -> Callable[[Warpgroup, Op], int]:
    read: Callable[[Warpgroup], int] = attrgetter(path)
    return lambda wg, _: read(wg)


value_of_cta_index = _attribute("cta.index")
value_of_num_ctas = _attribute("cta.grid_size")
value_of_cluster_index = _attribute("cta.cluster.index")
value_of_num_clusters = _attribute("cta.cluster.grid_clusters")
value_of_cta_rank = _attribute("cta.rank")
value_of_warpgroup_index = _attribute("rank")
