"""Arrays of scales in atoms (`ir/scale_atoms.py`), by operations of the module that made them."""

from __future__ import annotations

from typing import Any

from wsdsl.diagnostics import Finding, LaunchError
from wsdsl.ir.scale_atoms import BLOCKS, ROWS, SHAPE
from wsdsl.runtime.packed import bytes_of, contiguous, transposed, with_zeros


def pack_scales(array: Any) -> Any:
    """An array of scales [rows, blocks], of one byte each, in atoms that zeros fill up."""
    if len(array.shape) < 2 or not all(array.shape) or array.itemsize != 1:
        told = f"scales are arrays of rows and blocks, of one byte each, not {tuple(array.shape)}"
        raise LaunchError(Finding(told))
    *outer, rows, blocks = array.shape
    raw = contiguous(array).view(bytes_of(array))
    raw = with_zeros(raw, [(0, -rows % ROWS), (0, -blocks % BLOCKS)])
    atoms = -(-rows // ROWS), -(-blocks // BLOCKS)
    cut = [*outer, atoms[0], BLOCKS, ROWS // BLOCKS, atoms[1], BLOCKS]
    first = len(outer)
    order = [*range(first), *(first + i for i in (0, 3, 2, 1, 4))]
    made = contiguous(transposed(raw.reshape(cut), order))
    return made.reshape([*outer, *atoms, *SHAPE]).view(array.dtype)
