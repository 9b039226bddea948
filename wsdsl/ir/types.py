"""Types of IR values, at every level, and their one textual form (`ir/parser.py` reads it back)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal, NamedTuple, TypeVar, dataclass_transform

from wsdsl.record import record

Role = Literal["rows", "columns", ""]
Layout = Literal["accumulator", "operand"]


THREADS, WARPS = 128, 4
"""Of a warpgroup, which holds a fragment."""


class Lanes(NamedTuple):
    """How the threads of a warpgroup share the rows of a fragment: `across` of them hold one row,
    each `vector` adjacent columns, and again as many further on. Of up to 32 they are lanes of
    one warp, and each warp has a quarter of the rows; of 64 or 128 they are those of two or four
    warps, which share columns. If they are `striped`, adjacent columns are in adjacent threads, and
    a thread's columns are `across` apart. A thread has `tall` adjacent rows each.
    """

    vector: int = 2
    across: int = 4
    striped: bool = False
    tall: int = 1

    @property
    def apart(self) -> int:
        """Columns from one element of a thread to its next one."""
        return self.across if self.striped else 1

    def warp_of(self, columns: Any) -> Any:
        """Which of the warps that share rows has these columns (a number, or an array of them)."""
        within = columns % self.columns
        thread = within % self.across if self.striped else within // self.vector
        return thread // 32 % self.warps

    @property
    def rows(self) -> int:
        """Of one access of a warp."""
        return max(1, 32 // self.across)

    def row(self, number: int) -> int:
        """One of a thread's rows, less its first one."""
        return number // self.tall * self.tall * self.rows + number % self.tall

    @property
    def columns(self) -> int:
        return self.vector * self.across

    @property
    def warps(self) -> int:
        """That share columns."""
        return max(1, self.across // 32)

    def held(self, rows: int) -> int:
        """Rows of one thread, of a fragment's."""
        return max(1, rows * self.across // THREADS)

    def of_warp(self, rows: int) -> int:
        """Rows of one warp, of a fragment's."""
        return max(1, rows * self.warps // 4)


Sizes = Mapping[str, int]
"""Elements by the name of a dimension or an axis."""
TypeT = TypeVar("TypeT")


@dataclass_transform(frozen_default=True)
def ir_type(form: str) -> Callable[[type[TypeT]], type[TypeT]]:
    """A frozen dataclass whose text is `form`, formatted with the type."""

    def made(cls: type[TypeT]) -> type[TypeT]:
        cls.__str__ = lambda self: form.format(type=self)
        return record(cls)

    return made


ACCUMULATOR = Lanes()
"""Those of a wgmma's accumulator."""


@record
class DType:
    """An element type: `kind` is float, int, uint or bool; `bits` its storage width: floats of six
    bits have a byte each, whose upper two bits do not count.
    """

    name: str
    kind: str
    bits: int

    def __str__(self) -> str:
        return self.name

    @property
    def bytes(self) -> int:
        """Storage bytes of one element; 4-bit types are packed, two to a byte."""
        return max(1, self.bits // 8)

    def size(self, elements: int) -> int:
        """Return the storage bytes of elements of a line."""
        return -(-elements * self.bits // 8)

    def count(self, size: int) -> int:
        """How many elements of a line `size` bytes hold."""
        return size * 8 // self.bits

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def significant_bits(self) -> int:
        """Of a float: how many its significand has, with the one that is not stored."""
        return FLOATS[self.name][0]

    @property
    def step(self) -> float:
        """The least distance between two values of a float."""
        significant, exponent, _ = FLOATS[self.name]
        return 2.0 ** (exponent - significant + 1)

    @property
    def is_integer(self) -> bool:
        return self.kind in ("int", "uint")

    @property
    def limits(self) -> tuple[Any, Any]:
        """The least and the greatest value: infinities of a float type."""
        signed = self.kind == "int"
        integers = -(1 << self.bits - 1) if signed else 0, (1 << self.bits - signed) - 1
        return (-math.inf, math.inf) if self.is_float else integers


DTYPES: dict[str, DType] = {
    d.name: d
    for d in (
        DType("f32", "float", 32),
        DType("tf32", "float", 32),
        DType("f16", "float", 16),
        DType("bf16", "float", 16),
        DType("f8e4m3", "float", 8),
        DType("f8e5m2", "float", 8),
        DType("f8e8m0", "float", 8),
        DType("f6e2m3", "float", 8),
        DType("f6e3m2", "float", 8),
        DType("f4e2m1", "float", 4),
        DType("i32", "int", 32),
        DType("i16", "int", 16),
        DType("i8", "int", 8),
        DType("i4", "int", 4),
        DType("u32", "uint", 32),
        DType("u16", "uint", 16),
        DType("u8", "uint", 8),
        DType("u4", "uint", 4),
        DType("bool", "bool", 8),
    )
}
LARGEST_F32 = (2.0 - 2.0**-23) * 2.0**127
FLOATS = {
    "f32": (24, -126, LARGEST_F32), "tf32": (11, -126, LARGEST_F32), "f16": (11, -14, 65504.0),
    "bf16": (8, -126, (2.0 - 2.0**-7) * 2.0**127), "f8e4m3": (4, -6, 448.0),
    "f8e5m2": (3, -14, 57344.0), "f8e8m0": (1, -127, 2.0**127), "f6e2m3": (4, 0, 7.5),
    "f6e3m2": (3, -2, 28.0), "f4e2m1": (2, 0, 6.0),
}  # fmt: skip
"""Significant bits, the least exponent of a normal number, and the largest finite one."""
F32, F16, BF16 = DTYPES["f32"], DTYPES["f16"], DTYPES["bf16"]
I32, BOOL = DTYPES["i32"], DTYPES["bool"]


@record
class Tile:
    """A tile with named axes (TILE, PARTITIONED), or a scalar when there are none (any level)."""

    dtype: DType
    axes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(self.axes)}]" if self.axes else str(self.dtype)


@record
class Tensor:
    """A tensor in GMEM; a dimension is a name or a fixed size, the last one is contiguous. Its last
    two dimensions may be `packed`: in blocks, each in the order of fragments
    (`ir/hardware/packed_layout.py`).
    """

    dtype: DType
    dims: tuple[str | int, ...]
    packed: bool = False

    def __str__(self) -> str:
        packed = " packed" if self.packed else ""
        return f"tensor<{self.dtype}[{', '.join(map(str, self.dims))}]{packed}>"


@record
class Axis:
    """The current tile of dimension `dim` along the axis `name`, or all of it (`whole`).

    `size` (elements per tile; 0 until `assign_tile_sizes`) and `role` (does the axis run along the
    rows or the columns of a warpgroup's fragments; "" until `assign_roles`) come in lowering. With
    several `widths` each launch has tiles of `size`, or of 8, 16, ... elements fewer.
    """

    name: str
    dim: str
    size: int = 0
    role: Role = ""
    widths: int = 1

    def __str__(self) -> str:
        size = f" by {self.size}" if self.size else ""
        role = f" {self.role}" if self.role else ""
        widths = f" in {self.widths} widths" if self.widths > 1 else ""
        return f"axis<{self.name} of {self.dim}{size}{role}{widths}>"


@ir_type("ring")
class Ring:
    """A pipeline (PARTITIONED)."""


@ir_type("slot")
class Slot:
    """One pipeline stage while a partition has it (PARTITIONED)."""


@record
class SharedTile:
    """A tile in a pipeline stage (PARTITIONED)."""

    dtype: DType
    axes: tuple[str, ...]

    def __str__(self) -> str:
        return f"smem<{self.dtype}[{', '.join(self.axes)}]>"


@record
class Fragment:
    """A part of a tile in the registers of one warpgroup (SCHEDULED).

    rows is 64, or 1 when the value is the same in every row; so are columns. Warp w has rows
    16w to 16w + 15, and its `lanes` share them. By those of a wgmma accumulator lane l has rows
    16w + l/4 and 16w + l/4 + 8, of them columns 8j + 2(l%4) and the one after. In the layout of a
    wgmma's left operand, to which an op converts it, it holds as many columns as fill a register:
    of 16 bits the same two, of 8 bits 16j + 4(l%4) and the three after. By other lanes fragments
    are held that no product makes or takes, since whole vectors are what memory wants; they may
    have fewer rows, a power of two.
    """

    dtype: DType
    rows: int
    columns: int
    layout: Layout = "accumulator"
    lanes: Lanes = ACCUMULATOR

    def __str__(self) -> str:
        layout = "" if self.layout == "accumulator" else f" {self.layout}"
        if self.lanes != ACCUMULATOR:
            layout = f" lanes {self.lanes.vector}x{self.lanes.across}"
            layout += " striped" if self.lanes.striped else ""
            layout += f" tall {self.lanes.tall}" if self.lanes.tall > 1 else ""
        return f"frag<{self.dtype}[{self.rows}x{self.columns}]{layout}>"

    @property
    def as_operand(self) -> Fragment:
        """The same elements as wgmma takes them."""
        return replace(self, layout="operand")


@ir_type("acc<{type.dtype}[{type.rows}x{type.columns}]>")
class Accumulator:
    """A fragment that wgmma, or a load from tensor memory, may still be writing; only `wgmma` and
    the wait for it may take it.
    """

    dtype: DType
    rows: int
    columns: int


@ir_type("state")
class State:
    """Pipeline state: a stage and the parity of the phase to wait for (SCHEDULED)."""


@ir_type("mbarrier<{type.num}>")
class Barriers:
    """An array of `num` mbarriers, one a stage (SCHEDULED)."""

    num: int


@ir_type("shared<{type.bytes} x {type.num}>")
class Shared:
    """`num` items of `bytes` bytes each in SMEM (SCHEDULED)."""

    bytes: int
    num: int


@ir_type("tensor_memory<{type.columns}>")
class TensorMemory:
    """Columns of tensor memory, in all lanes (SCHEDULED)."""

    columns: int


@ir_type("columns<{type.columns} x {type.num}>")
class Columns:
    """`num` items of `columns` columns each in tensor memory (SCHEDULED)."""

    columns: int
    num: int


@ir_type("tensor_map")
class TensorMap:
    """A CUtensorMap in the kernel's parameters (SCHEDULED)."""


@ir_type("matrix_descriptor")
class MatrixDescriptor:
    """The tensor cores' 64-bit description of an operand in SMEM (SCHEDULED)."""


Type = (
    Tile
    | Tensor
    | Axis
    | Ring
    | Slot
    | SharedTile
    | Fragment
    | Accumulator
    | State
    | Barriers
    | Shared
    | TensorMemory
    | Columns
    | TensorMap
    | MatrixDescriptor
)
KnownT = TypeVar("KnownT")


@record
class Value:
    """An SSA value; names are unique in a kernel."""

    name: str
    type: Type

    def __hash__(self) -> int:
        return hash(self.name)  # A name has one type, and the hash of a string is remembered.

    def __str__(self) -> str:
        return f"%{self.name}"

    def type_as(self, kind: type[KnownT]) -> KnownT:
        """The type of a value, which is known to be of this class."""
        assert isinstance(self.type, kind)
        return self.type

    @property
    def as_tile(self) -> Tile:
        """The type of what is known to be a tile, or a scalar; so with the others."""
        assert isinstance(self.type, Tile)
        return self.type

    @property
    def axes(self) -> tuple[str, ...]:
        """The axes of a tile; of scalars and other values none."""
        return self.type.axes if isinstance(self.type, Tile) else ()

    @property
    def is_tile(self) -> bool:
        """Whether it is a tile with axes; scalars have none."""
        return bool(self.axes)

    @property
    def as_axis(self) -> Axis:
        assert isinstance(self.type, Axis)
        return self.type

    @property
    def as_tensor(self) -> Tensor:
        assert isinstance(self.type, Tensor)
        return self.type

    @property
    def as_fragment(self) -> Fragment:
        assert isinstance(self.type, Fragment)
        return self.type
