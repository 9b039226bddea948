"""Scales of blocks on their way to tensor memory, where products take them.

    %a_scale: load -> scale; SMEM f8e8m0[m, k]; k, ring 0 (stages)
    %a_scale: scale -> mma; TMEM f8e8m0[m, k]; k, ring 2 (scales)

They lie in global memory as the text says, a row's one behind the other. TMA brings a box of them,
which begins at a multiple of 16 bytes of a row. The threads of the partition `scale` write to a
slot of tensor memory what a k-tile needs, and zeros for blocks beyond the end of K, which are
multiplied by zeros. There are two slots: those of one k-tile are written while products take the
other's.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from wsdsl.ir.block_scales import WORD, scale_columns
from wsdsl.ir.scale_atoms import BLOCKS, SHAPE, in_atoms
from wsdsl.ir.scale_atoms import ROWS as ATOM_ROWS
from wsdsl.ir.tile_ops import Load
from wsdsl.ir.types import Axis, SharedTile, Tile
from wsdsl.lowering.edge import Edge
from wsdsl.lowering.scale_loads import ScaleLoad

BUFFERED = 2
"""Slots of scales."""


@dataclass(frozen=True)
class BlockScales(ScaleLoad):
    """`places` has the axis across, of single rows, and the one that is summed over, of blocks."""

    def box(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        found = [1 if place is None else sizes[place[0].as_axis.name] for place in self.places]
        # A k-tile begins at a multiple of what it has.
        own = found[-1] // self.load.block
        before = self.unit - math.gcd(self.unit, own)
        found[-1] = -(-(before + own) // self.unit) * self.unit
        return tuple(found)


@dataclass(frozen=True)
class AtomScales(ScaleLoad):
    """The same of atoms (`ir/scale_atoms.py`), which tensor memory takes as they are."""

    def box(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        atoms = [1 if at is None else sizes[at[0].as_axis.name] // at[1] for at in self.places]
        return *atoms, *SHAPE


def block_scales(load: Load) -> BlockScales | AtomScales:
    *others, last = load.index
    every, block = (ATOM_ROWS, BLOCKS * load.block) if in_atoms(load) else (1, load.block)
    across = [(v, every) if isinstance(v.type, Axis) else None for v in others]
    kind = AtomScales if in_atoms(load) else BlockScales
    return kind(load, (*across, (last, block)))


def columns_of_scales(tile: Tile | SharedTile, block: int, sizes: Mapping[str, int]) -> int:
    """Of tensor memory, of a tile whose last axis is the one that is summed over."""
    rows, summed = tile.axes
    return scale_columns(sizes[rows], sizes[summed] // (WORD * block))


class Group(Protocol):
    """Of edges that share a slot."""

    edges: list[Edge]

    @property
    def ring(self) -> int: ...


def stores_scales(groups: Iterable[Group]) -> bool:
    """Whether threads write scales to tensor memory."""
    return any(edge.producer == "scale" for group in groups for edge in group.edges)


def scale_block(groups: Iterable[Group], ring: int) -> int:
    """Elements of the blocks whose scales a ring in tensor memory has; 0 if it has none."""
    edges = (edge for group in groups if group.ring == ring for edge in group.edges)
    return next((edge.block for edge in edges if edge.producer == "scale"), 0)
