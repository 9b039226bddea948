"""Block scale factors on their way to TMEM, where MMAs read them (TILE).

    %a_scale: load -> scale; SMEM f8e8m0[m, k]; k, pipeline 0 (stages)
    %a_scale: scale -> mma; TMEM f8e8m0[m, k]; k, pipeline 2 (scales)

In GMEM the scale factors of a row are consecutive, as in the kernel's source, and TMA copies a box
that begins at a multiple of 16 bytes of a row; or they are in atoms. The threads of the partition
`scale` write the scale factors of a k-tile to a stage in TMEM, with zeros for blocks beyond the end
of K, where operands are zeros. There are two stages: threads write one while MMAs read the other.
Atoms are copied by the tensor cores instead, unless most atoms of an operand are padding.
"""

import dataclasses
import math
from collections.abc import Iterable
from typing import Protocol

from wsdsl.ir.analysis.scale_factor_indices import in_atoms
from wsdsl.ir.hardware.block_scale_factors import WORD, scale_columns
from wsdsl.ir.hardware.scale_factor_atoms import BLOCKS, SHAPE, atoms_of
from wsdsl.ir.hardware.scale_factor_atoms import ROWS as ATOM_ROWS
from wsdsl.ir.op import Kernel
from wsdsl.ir.ops import Load
from wsdsl.ir.types import Axis, SharedTile, Sizes, Tile
from wsdsl.lowering.axes import loop_variable
from wsdsl.lowering.edge import Edge
from wsdsl.lowering.product_operands import operand_scales
from wsdsl.lowering.scale_loads import ScaleLoad
from wsdsl.record import record
from wsdsl.schedule import Schedule

BUFFERED = 2
"""Stages of scale factors."""


@record
class BlockScales(ScaleLoad):
    """`places` has the axis across, in single rows, and the contraction axis, in blocks."""

    def box(self, sizes: Sizes) -> tuple[int, ...]:
        found = [1 if place is None else sizes[place[0].as_axis.name] for place in self.places]
        # A k-tile begins at a multiple of what it has.
        own = found[-1] // self.load.block
        before = self.unit - math.gcd(self.unit, own)
        found[-1] = -(-(before + own) // self.unit) * self.unit
        return tuple(found)


@record
class AtomScales(ScaleLoad):
    """Scale factors in atoms (`ir/hardware/scale_factor_atoms.py`), which TMEM takes unchanged."""

    def box(self, sizes: Sizes) -> tuple[int, ...]:
        *outer, last = self.places
        rows = [1 if at is None else atoms_of(sizes[at[0].as_axis.name]) for at in outer]
        assert last is not None
        return *rows, sizes[last[0].as_axis.name] // last[1], *SHAPE


def block_scales(load: Load) -> BlockScales | AtomScales:
    *others, last = load.index
    every, block = (ATOM_ROWS, BLOCKS * load.block) if in_atoms(load) else (1, load.block)
    across = [(v, every) if isinstance(v.type, Axis) else None for v in others]
    kind = AtomScales if in_atoms(load) else BlockScales
    return kind(load, (*across, (last, block)))


def with_scale_path(kernel: Kernel, given: Schedule, sizes: Sizes) -> Schedule:
    """How scales come to tensor memory: by bytes that are copied, and those of them that are of
    use."""
    loads = [op for op in kernel.of(Load) if op.result in operand_scales(kernel)]
    if given.sf_load or not loads:
        return given
    copied = all(in_atoms(op) and _fill_atoms(op, given, sizes) for op in loads)
    return dataclasses.replace(given, sf_load="cp" if copied else "st")


def _fill_atoms(load: Load, given: Schedule, sizes: Sizes) -> bool:
    """Whether tiles are whole atoms, and more than half of all rows are of the tensor."""
    rows = next(v.as_axis for v in load.index if isinstance(v.type, Axis))
    asked = given.tile or {}
    tile = asked.get(rows.name, asked.get(loop_variable(rows.name), ATOM_ROWS))
    size = sizes.get(rows.dim, ATOM_ROWS)
    return tile % ATOM_ROWS == 0 and 2 * size > ATOM_ROWS * -(-size // ATOM_ROWS)


def columns_of_scales(tile: Tile | SharedTile, block: int, sizes: Sizes) -> int:
    """Count the columns of TMEM of a tile whose last axis is the contraction axis."""
    rows, summed = tile.axes
    return scale_columns(sizes[rows], sizes[summed] // (WORD * block))


class Group(Protocol):
    """Edges that share a stage."""

    edges: list[Edge]

    @property
    def ring(self) -> int: ...


def stores_scales(groups: Iterable[Group]) -> bool:
    """Whether threads write scales to tensor memory."""
    return any(edge.producer == "scale" for group in groups for edge in group.edges)


def scale_block(groups: Iterable[Group], ring: int) -> int:
    """Return the elements per block of a pipeline of scale factors in TMEM; 0 for other
    pipelines.
    """
    edges = (edge for group in groups if group.ring == ring for edge in group.edges)
    return next((edge.block for edge in edges if edge.producer == "scale"), 0)
