"""Programmatic dependent launch (griddepcontrol)."""

from wsdsl.ir import ops
from wsdsl.simulator.warpgroup import Warpgroup


def run_griddep_wait(wg: Warpgroup, op: ops.GriddepWait) -> None:
    wg.effect(op, "wait", "grid", wg.actors)


def run_griddep_launch_dependents(wg: Warpgroup, op: ops.GriddepLaunchDependents) -> None:
    wg.effect(op, "arrive", "grid", wg.actors)
