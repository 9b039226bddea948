"""Tiles as a launch of known sizes has them, where each chooses their width."""

from __future__ import annotations

from collections.abc import Mapping

from wsdsl.ir.narrowing import narrowings, quickest
from wsdsl.ir.types import Axis
from wsdsl.lowering.cooperation import cluster_along, cluster_size
from wsdsl.lowering.model.workload import Work
from wsdsl.schedule import Schedule


def at_launch(work: Work, schedule: Schedule, tile: Mapping[str, int]) -> Mapping[str, int]:
    """Elements of a tile along every axis, of which `tile` has the widest."""
    if (schedule.widths or 1) == 1 or schedule.cuts_tiles:
        return tile
    axes = [loop.index.type for loop in work.nest if isinstance(loop.index.type, Axis)]
    found = next((axis for axis in axes if work.roles[axis.name] == "columns"), None)
    if found is None or tile[found.name] <= narrowings(schedule.widths or 1)[-1]:
        return tile  # It is refused.
    sides = tuple((a.dim, tile[a.name] * cluster_along(schedule, a.name)) for a in axes)
    room = work.target.cluster_room(cluster_size(schedule))
    narrower = quickest(sides, axes.index(found), schedule.widths or 1, work.size, room)
    return {**tile, found.name: tile[found.name] - narrower}
