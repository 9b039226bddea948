"""LLVM operands of each IR value, or facts known at compile time."""

from __future__ import annotations

import re
from typing import NamedTuple

from wsdsl.codegen.addresses.lane_indices import Lanewise
from wsdsl.ir.types import ACCUMULATOR, DType, Lanes
from wsdsl.record import record


@record
class Scalar:
    """One LLVM operand. `known` is its value if that is a constant; `nonnegative` if it cannot be
    below 0, which makes divisions cheap and saves a bounds check. `origin`, if there is one, is a
    scalar from which this one differs by the constant `offset`. It is a multiple of `multiple`.
    """

    text: str
    dtype: DType
    known: int | float | bool | None = None
    nonnegative: bool = False
    origin: Scalar | None = None
    offset: int = 0
    multiple: int = 1


@record
class Affine:
    """Elements `base + offsets[i]` of an i32 fragment: one register for all of them, and for the
    fragments that differ from it by constants. `nonnegative`: neither base nor offsets are below 0.
    The base is at most `most`, where that is known, and a multiple of `unit`. `lanes`: the indices
    by thread, where they are known.
    """

    base: str
    offsets: tuple[int, ...]
    nonnegative: bool
    most: int | None = None
    unit: int = 1
    lanes: Lanewise | None = None


class Shape(NamedTuple):
    """Of a fragment; a scalar's is 1 x 1."""

    rows: int
    columns: int
    lanes: Lanes = ACCUMULATOR


@record
class Raised:
    """16-bit floats that were 4-bit integers: pairs plus `offset`, the bits of two floats whose
    mantissas have room for such integers and their differences; no `texts` where they are not in
    pairs.
    """

    offset: int = 0
    texts: tuple[str, ...] = ()


@record
class Nibbles:
    """Of bytes that were integers of 4 bits: the `words` of these; each is moved up by `shift`, and
    has the bits of `kept`.
    """

    words: tuple[str, ...]
    shift: int = 0
    kept: int = 15


@record
class Reconversion:
    """bf16 values of the `times`-th conversion: neither LLVM nor ptxas sees that it equals the
    earlier ones, since they cannot fold `zero`, which is 0.
    """

    zero: str
    times: int


@record
class Registers:
    """Registers of a fragment or accumulator in one thread, see `fragment_registers.py`.

    16-bit floats with more than one column are held as packed pairs, i32; 8-bit elements as pairs
    in an i16; 4-bit ones in the halves of an i32, as bits 0 to 3 and 16 to 19, with anything in the
    others. Of 8 bits `spread` may have each pair in bytes 0 and 2 of an i32, too, with anything in
    the others. `affine` fragments have no registers until somebody needs them.
    """

    dtype: DType
    rows: int
    columns: int
    lanes: Lanes
    texts: tuple[str, ...] = ()
    affine: Affine | None = None
    spread: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    """Words of a packed tensor that the registers were made of, where they are at hand: of 8 bits
    with two pairs each, as bytes 0 and 2, and 1 and 3; of 4 bits with four, as nibbles i and i + 4.
    """
    raised: Raised | None = None
    nibbles: Nibbles | None = None
    reconversion: Reconversion | None = None

    @property
    def shape(self) -> Shape:
        return Shape(self.rows, self.columns, self.lanes)


@record
class StateAt:
    """Pipeline state: stage and parity, i32 each."""

    stage: str
    parity: str


@record
class SharedAt:
    """Items in SMEM: `num` of `bytes` bytes from `offset` on; mbarriers are items of 8 bytes."""

    offset: int
    bytes: int
    num: int
    label: str
    arrivals: int = 0

    @property
    def comment(self) -> str:
        """The label as a comment in PTX, without characters that would end it."""
        return "// " + re.sub(r"[^\w .-]", "_", self.label)


@record
class ColumnsAt:
    """Items in tensor memory: `num` of `columns` columns, from the address `base` on."""

    base: str
    columns: int
    num: int


@record
class Descriptor:
    """The low half of an smem descriptor as an i32; the high half and the step are known.

    `steps[i]` is what k16 step i adds to the low half.
    """

    low: str
    high: int
    steps: tuple[int, ...]
    k_major: bool


@record
class Pointer:
    """A tensor in GMEM, or a tensor map (of a `box`): the name of the kernel's parameter."""

    text: str
    box: tuple[int, ...] = ()
    packed: bool = False
    nibbles: bool = False
    """Whether TMA takes two elements for one, of a byte."""


Storage = Scalar | Registers | StateAt | SharedAt | ColumnsAt | Descriptor | Pointer


def nonnegative(value: Storage) -> bool:
    match value:
        case Scalar():
            return value.nonnegative or value.dtype.kind == "uint"
        case Registers(affine=Affine() as affine):
            return affine.nonnegative
        case Registers():
            return value.dtype.kind == "uint"
        case _:
            return False
