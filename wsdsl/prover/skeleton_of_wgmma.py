"""What the letter of a wgmma says: its shape, types and operands."""

from __future__ import annotations

from wsdsl.ir import fragment_ops as f
from wsdsl.ir.types import DTYPES, Accumulator, Fragment
from wsdsl.ir.wgmma import PTX_NAMES, k_step, may_be_mn_major


def wgmma_told(op: f.Wgmma, step: int, known: float | None) -> str:
    """Of one of its instructions; `known`: whether the first accumulates, if that can be told."""
    assert isinstance(op.acc.type, Accumulator)
    flag = "1" if step else "p" if known is None else str(int(known))
    a, b = (DTYPES[name] for name in op.dtypes)
    total = {"i32": "s32"}.get(op.acc.type.dtype.name, op.acc.type.dtype.name)
    names = f"{total}.{PTX_NAMES[a.name]}.{PTX_NAMES[b.name]}"
    shape = f"m64n{op.num_columns}k{k_step(a)}.{names}"
    registers, rest = isinstance(op.a.type, Fragment), [] if a.is_integer else [1, 1]
    if may_be_mn_major(a):
        majors = [op.a_k_major] * (not registers) + [op.b_k_major]
        rest += [int(not k_major) for k_major in majors]
    return ", ".join([f"{shape} {'{a}' if registers else 'a'}", "b", flag, *map(str, rest)])
