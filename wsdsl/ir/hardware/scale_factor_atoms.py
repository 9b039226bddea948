"""Scales as cuBLAS and Triton store them: in atoms of 128 rows by 4 blocks, a row's four in a word.

A tensor of them is [row atoms, block atoms, 2, 256], of 512 bytes an atom, and the scale of row i
and block j lies in atom (i / 128, j / 4) in byte 16 (i % 32) + 4 (i % 128 / 32) + j % 4. A text
says so by its indices, in any form:

    S[index(m) // 128, index(k) // 128, index(m) % 32 // 16,
      index(m) % 16 * 16 + index(m) % 128 // 32 * 4 + index(k) // 32 % 4]

Padding after the last block must be finite: it is multiplied by zeros.
"""

from __future__ import annotations

import math
from typing import Any

ROWS, BLOCKS = 128, 4
"""Of an atom."""
SHAPE = (2, 256)
"""Of its bytes, as TMA copies them: no side of a box is longer."""
BYTES = 512


def place_of(row: Any, block: Any) -> tuple[Any, Any, Any, Any]:
    """Of a scale (numbers, or arrays of them), in a tensor of atoms."""
    byte = 16 * (row % 32) + 4 * (row % ROWS // 32) + block % BLOCKS
    return row // ROWS, block // BLOCKS, byte // SHAPE[1], byte % SHAPE[1]


def atoms_of(rows: int) -> int:
    """Return the atoms that a tile of `rows` rows reaches, which begins at a multiple of them."""
    return (ROWS - math.gcd(rows, ROWS) + rows - 1) // ROWS + 1
