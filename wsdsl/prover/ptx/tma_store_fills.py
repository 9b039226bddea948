"""The places in SMEM that TMA stores read, warp by warp."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from wsdsl.ir import ops
from wsdsl.ir.hardware.wgmma_shapes import PTX_NAMES, k_step, may_be_mn_major
from wsdsl.ir.ops import StorePartials, TmaStore
from wsdsl.ir.types import DTYPES, Accumulator, Fragment, Shared
from wsdsl.prover.ptx.expected_paths import Fill, Places, of_warps


def store_fills(
    op: TmaStore, box_bytes: int, start: int, items: Sequence[int | None]
) -> Iterator[tuple[list[int], Fill]]:
    """Which warps of a warpgroup copy a box, and from where, one after the other; of panels that
    are copied in part not all warps have as many. `items`: that of each warpgroup.
    """
    size, boxes = op.shared.type_as(Shared).bytes, [*op.boxes(box_bytes)]
    of_warp = [[held.bytes.start for held in boxes if held.warp == warp] for warp in range(4)]
    for n in range(max(map(len, of_warp))):
        apart = [own[n] if n < len(own) else None for own in of_warp]
        of_each = [None if i is None or x is None else i * size + x for i in items for x in apart]
        warps = [warp for warp, x in enumerate(apart) if x is not None]
        yield warps, Fill(start=start, further=of_warps(of_each))


def wgmma_told(op: ops.Wgmma, step: int, known: float | None) -> str:
    """Of one of its instructions; `known`: whether the first accumulates, if that can be told."""
    flag = "1" if step else "p" if known is None else str(int(known))
    a, b = (DTYPES[name] for name in op.dtypes)
    total = op.acc.type_as(Accumulator).dtype.name
    total = {"i32": "s32"}.get(total, total)
    names = f"{total}.{PTX_NAMES[a.name]}.{PTX_NAMES[b.name]}"
    shape = f"m64n{op.num_columns}k{k_step(a)}.{names}"
    registers, rest = isinstance(op.a.type, Fragment), [] if a.is_integer else [1, 1]
    if may_be_mn_major(a):
        majors = [op.a_k_major] * (not registers) + [op.b_k_major]
        rest += [int(not k_major) for k_major in majors]
    return ", ".join([f"{shape} {'{a}' if registers else 'a'}", "b", flag, *map(str, rest)])


WORD = 4


def partial_fills(
    op: StorePartials, places: Places, start: int, first: int, groups: int
) -> Iterator[tuple[tuple[int, ...], Fill]]:
    """Which lanes send, and what: one for each of a thread's words. Lanes that share a row send to
    one CTA each. All warpgroups share columns, or `each` has rows of its own; they are so many from
    the `first` of the CTA's on.
    """
    assert op.barriers is not None
    items, kind = places.barriers[op.barriers], op.x.as_fragment
    lanes, part = kind.lanes, WORD * kind.rows
    rows, across = WORD * lanes.of_warp(kind.rows), min(32, lanes.across)
    own = [w % lanes.warps * part + w // lanes.warps * rows for w in range(4)]
    apart = (op.each or lanes.warps) * part
    by_warp = [x + g * apart for g in range(groups) for x in own]
    part *= lanes.warps if op.each else lanes.warps * groups

    def further(tid: int, rank: int) -> int | None:
        return by_warp[tid // 32 - 4 * first] + part * rank + WORD * (tid % 32 // across)

    for begin, n in product(range(0, op.ctas, across), range(lanes.held(kind.rows))):
        yield (
            tuple(lane for lane in range(32) if begin + lane % across < op.ctas),
            Fill(
                items,
                op.state,
                start=start + WORD * n * lanes.rows,
                stride=op.shared.type_as(Shared).bytes,
                further=further,
                cta=lambda tid, _, begin=begin: begin + tid % across,
            ),
        )
