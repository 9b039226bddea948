"""Which tensors are stored through SMEM, and what each warp copies of a piece from there."""

from wsdsl.ir.hardware.gmem_limits import ADDED_ATOMICALLY
from wsdsl.ir.hardware.swizzle import line_swizzle
from wsdsl.ir.hardware.tma_box import TMA_ALIGN
from wsdsl.ir.op import Kernel, Region, Value, once, walk
from wsdsl.ir.ops import AxisAt, ForTiles, Store
from wsdsl.ir.types import Axis
from wsdsl.lowering.builder import INT
from wsdsl.lowering.register_layout import holds_vectors
from wsdsl.lowering.register_tiles import Shape, Shapes
from wsdsl.record import record

WARP_ROWS = 16
LEAST_BYTES = 4096
"""A warp's quarter of an item begins at a multiple of 1024 bytes."""


@record
class Panel:
    """What a warp copies of a piece: the `box`, of which warps follow each other along `row_dim`,
    and `lines` of `line` bytes in SMEM. They are columns if it is `transposed`; `joined`: those of
    the four warps are lines of 128 bytes that all of them write, not each its own of 32.
    """

    box: tuple[int, ...]
    row_dim: int
    lines: int
    line: int
    transposed: bool
    joined: bool

    @property
    def bytes(self) -> int:
        return self.lines * self.line

    @property
    def swizzle(self) -> str:
        return line_swizzle(self.line)


def panel_of(op: Store, width: int, warp_rows: int = WARP_ROWS) -> Panel:
    """Of a piece of so many columns; of two, whose rows lie between each other's, a warp has 32."""
    dtype, transposed = op.dtype, op.last is not None and op.last.role == "rows"
    joined = transposed and dtype.bits == 16 and width % 32 == 0 and warp_rows == WARP_ROWS
    # Of joined panels' lines, which have all 64 rows, each warp copies a quarter.
    rows, columns = (4 * WARP_ROWS, width // 4) if joined else (warp_rows, width)
    roles = roles_of(op)
    box = tuple({"rows": rows, "columns": columns}.get(role or "", 1) for role in roles)
    lines = columns if transposed else rows
    row_dim = roles.index("columns" if joined else "rows")
    return Panel(box, row_dim, lines, box[-1] * dtype.bytes, transposed, joined)


def item_bytes(op: Store, shape: Shape) -> int:
    """Of four warps' panels of the widest piece."""
    size = 4 * panel_of(op, max(shape.widths), shape.apart).bytes
    return -(-size // LEAST_BYTES) * LEAST_BYTES


def roles_of(op: Store) -> tuple[str | None, ...]:
    return tuple(v.type.role if isinstance(v.type, Axis) else None for v in op.index)


def shape_of(op: Store, shapes: Shapes) -> Shape:
    return shapes.of(tuple(axis.name for axis in op.axes))


def staged_tensors(kernel: Kernel, region: Region, shapes: Shapes) -> set[Value]:
    """All stores of a tensor go through SMEM, or none. Those that TMA does not take only if they
    consist of lines of whole units: else threads place them.
    """
    panels = stored_as_panels(kernel)
    stores = [op for op in walk(region) if isinstance(op, Store) and op.tensor in panels]
    return {op.tensor for op in stores} - {
        op.tensor
        for op in stores
        if op.tensor.name in kernel.unaligned
        and any(_line(op, n, shape_of(op, shapes)) % TMA_ALIGN for n in shape_of(op, shapes).widths)
    }


def _line(op: Store, width: int, shape: Shape) -> int:
    return panel_of(op, width, shape.apart).line


@once
def stored_as_panels(kernel: Kernel) -> frozenset[Value]:
    """Tensors all stores of which are of tiles of rows and columns, one of them contiguous: threads
    and TMA do not wait for each other. Threads that hold vectors store them as they are.
    """
    if holds_vectors(kernel):
        return frozenset()
    stores = kernel.of(Store)
    others = (op.tensor for op in stores if not _is_panel(kernel, op))
    return frozenset(op.tensor for op in stores).difference(others)


@once
def clipped_axes(kernel: Kernel) -> tuple[frozenset[str], frozenset[str]]:
    """Axes whose tiles may end before the dimension does, and those whose may begin anywhere."""
    clipped, shifted = set[str](), set[str]()
    for op in kernel.of(ForTiles, AxisAt):
        axis = op.index.type if isinstance(op, ForTiles) else op.result.type
        assert isinstance(axis, Axis)
        ends = op.clipped if isinstance(op, ForTiles) else op.stop is not None
        if ends or op.first is not None:
            clipped.add(axis.name)
        if op.shifted:
            shifted.add(axis.name)
    return frozenset(clipped), frozenset(shifted)


def _is_panel(kernel: Kernel, op: Store) -> bool:
    dtype, axes = op.dtype, op.axes
    clipped, shifted = clipped_axes(kernel)
    if clipped & {a.name for a in axes} or (axes and axes[-1].name in shifted):
        # TMA ends with the tensor, and begins at multiples of 16 bytes.
        return False
    return (
        {a.role for a in axes} == {"rows", "columns"}
        and all(isinstance(v.type, Axis) or v.type == INT for v in op.index)
        and op.last is not None
        and (dtype.name in ADDED_ATOMICALLY if op.accumulate else dtype.bits >= 8)
        and len(op.index) <= 5
        and op.tensor in kernel.params
    )
