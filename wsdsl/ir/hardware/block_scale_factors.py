"""Block scale factors of tcgen05.mma, and their layout in tensor memory.

A word has the scales of four blocks of a row, the first one lowest. Row i has its words in lane
i % 32 of each quarter of the lanes, in columns i / 32 on; from one word of a row to its next one
lie the columns of all rows, in whole tiles of 128.
"""

from __future__ import annotations

from wsdsl.ir.types import F32, DType
from wsdsl.record import record

ROWS = 128
"""Of the left operand of each MMA with scale factors, in one CTA."""
COLUMN_STEP = 8
WORD = 4
"""Scales in a cell."""
TILE_ROWS, TILE_COLUMNS = 128, 4
"""Rows of a tile, and columns of their words."""
WARP_ROWS = 32


@record
class Kind:
    """`.kind` and `.block` of an instruction, elements of K that it takes, and the codes of what
    it multiplies and of its scales in its descriptor.
    """

    name: str
    block: int
    k: int
    scale: str
    types: tuple[tuple[str, int], ...]
    scale_code: int

    @property
    def ptx(self) -> str:
        return f"{self.name}.block_scale.block{self.block}"

    def code(self, dtype: str) -> int | None:
        return dict(self.types).get(dtype)

    @property
    def word(self) -> int:
        """Elements of K whose scales are a word."""
        return WORD * self.block

    def scale_of(self, step: int) -> tuple[int, int]:
        """The word that has the scales of an instruction, and which of its bytes is the first."""
        return divmod(step * (self.k // self.block), WORD)


E2M1 = (("f4e2m1", 1),)
KINDS = (
    Kind("mxf8f6f4", 32, 32, "f8e8m0", (("f8e4m3", 0), ("f8e5m2", 1)), 1),
    Kind("mxf4", 32, 64, "f8e8m0", E2M1, 1),
    Kind("mxf4nvf4", 16, 64, "f8e8m0", E2M1, 1),
    Kind("mxf4nvf4", 16, 64, "f8e4m3", E2M1, 0),
)
"""Those of f8e4m3 are read without a sign."""


def kind_of(a: str, b: str, scale: str, block: int) -> Kind | None:
    """Return the instruction for operands of two types with such block scale factors."""
    for kind in KINDS:
        if (kind.scale, kind.block) == (scale, block) and None not in (kind.code(a), kind.code(b)):
            return kind
    return None


def are_scaled(a: DType, b: DType) -> DType | None:
    """Return the accumulator's dtype of scaled operands; None without an instruction for them."""
    return F32 if any(kind_of(a.name, b.name, k.scale, k.block) for k in KINDS) else None


def scale_columns(rows: int, words: int) -> int:
    """Return the columns of tensor memory of an operand's scale factors."""
    return words * TILE_COLUMNS * -(-rows // TILE_ROWS)


def word_columns(rows: int, words: int) -> list[range]:
    """Return the columns of an operand's words, in order."""
    firsts = (scale_columns(rows, word) for word in range(words))
    return [range(first, first + -(-rows // WARP_ROWS)) for first in firsts]


def scaled_descriptor(
    kind: Kind, a: DType, b: DType, columns: int, byte: int, rows: int = ROWS
) -> int:
    """Of an MMA with K-major operands and `rows` rows of all CTAs; both scales begin at the
    same `byte` of their words."""
    first, second = kind.code(a.name), kind.code(b.name)
    assert first is not None and second is not None
    fields = (
        (byte, 4),
        (first, 7),
        (second, 10),
        (columns >> 3, 17),
        (kind.scale_code, 23),
        (rows >> 7, 27),
        (byte, 29),
    )
    return sum(value << at for value, at in fields)


def stored_at_once(columns: int) -> list[int]:
    """Return the columns of each instruction that writes them: powers of two."""
    return [1 << bit for bit in reversed(range(8)) if columns >> bit & 1]
