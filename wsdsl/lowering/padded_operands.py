"""Operands with scales that the tensor cores take in groups which no copy makes of a tensor."""

from __future__ import annotations

from wsdsl.ir.factors import Makers, factored
from wsdsl.ir.tile_ops import Contract

GROUPS = {
    "f6e2m3": "16 elements in 12 bytes of 16, and a tensor of them has a byte for each",
    "f6e3m2": "16 elements in 12 bytes of 16, and a tensor of them has a byte for each",
    "f4e2m1": "16 elements in 8 bytes of 16 beside others than f4e2m1, which no copy makes yet",
}
"""How they lie in SMEM for kind::mxf8f6f4."""
ALL_OF_ITS_VALUES = "declare it as f8e4m3, which has all of its values"


def padded_operands(op: Contract, made: Makers) -> str:
    """What is wrong with a product with scales of blocks of such operands; empty of others."""
    sides = factored(op, made, lambda a, b: op.result.as_tile.dtype)
    held = [tile.as_tile.dtype.name for tile, _ in sides or ()]
    found = [name for name in dict.fromkeys(held) if name in GROUPS]
    if not found or set(held) == {"f4e2m1"}:
        return ""
    name = found[0]
    return f"`@` of {name} with scales is not lowered: the tensor cores take {GROUPS[name]}"
