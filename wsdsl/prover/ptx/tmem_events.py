"""The events of tensor memory, as codegen is to emit them, and their letters in PTX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

from wsdsl.ir import ops
from wsdsl.ir.analysis.smem_descriptors import ATOM, VERSION, layout_of, low_half
from wsdsl.ir.analysis.tcgen05_instructions import STORED, at_once, instructions, stored_shape
from wsdsl.ir.hardware.block_scale_factors import (
    TILE_COLUMNS,
    scale_columns,
    stored_at_once,
    word_columns,
)
from wsdsl.ir.hardware.scale_factor_atoms import BYTES, ROWS
from wsdsl.ir.op import Op, Value
from wsdsl.ir.types import Accumulator, Columns, Shared, TensorMemory
from wsdsl.prover.ptx.expected_paths import HALVES, TMEM, Fill, of_warps
from wsdsl.prover.ptx.register_values import BASE
from wsdsl.prover.ptx.sync_events import UNKNOWN, Letter
from wsdsl.prover.ptx.sync_trace_builder import TraceBuilder

FIRST_WARP = (1 << 32) - 1
"""Threads, as bits."""
PREFIX = "tcgen05."
IN_TENSOR = ", a in tensor memory"
RING = "tensor memory[]"
"""All of its slots are looked at together."""


def operand_event(made: TraceBuilder, op: Op, operand: Value, step: int, version: int = 0) -> None:
    """Which descriptor the step has of an operand: its low half is the sum that `to` tells."""
    of = made.operands[operand]
    held, array = layout_of(of), made.shared[of.shared]
    low = low_half(held, BASE + array.offset + of.offset + held.steps[step])
    starts = made.of_warpgroups(of.start)
    apart = (None if x is None else x * held.per_start >> 4 for x in starts for _ in range(4))
    _descriptor(made, op, (of.shared, of.state), low, held.high | version, [*apart])


def _descriptor(
    made: TraceBuilder,
    op: Op,
    of: tuple[Value, Value],
    low: int,
    high: int,
    by_warp: Sequence[int | None],
) -> None:
    shared, state = of
    kind = shared.type_as(Shared)
    start, stride = HALVES + low, kind.bytes >> 4
    ring = f"operands in {shared.name}[]"
    for further in {x for x in by_warp if x is not None}:
        places = range(start + further, start + further + kind.num * stride, stride)
        made.places.operands |= dict.fromkeys(places, ring)
    asked = state if kind.num > 1 else None
    fill = Fill(state=asked, start=start, stride=stride, further=of_warps(by_warp))
    made.emit(op, "operand", str(high), ring, fill=fill)


def tensor_events(made: TraceBuilder, op: Op, first_warpgroup: int) -> None:
    def emit(kind: str, sums: Value, state: Value, at: int, detail: str = "") -> None:
        """Of what acts on an item's columns from `at` on, each warp on its own lanes."""
        item, kind_of = made.columns[sums], sums.type_as(Columns)
        start, half, apart = TMEM + item.first + at, getattr(op, "half", 0), getattr(op, "apart", 0)
        own = isinstance(op, ops.Tcgen05Ld | ops.Tcgen05St | ops.StoreScaleFactors)
        columns = [(group - first_warpgroup) * apart + (half << 20) for group in range(8)]
        lanes = [own * (x + (warp << 21)) for x in columns for warp in range(4)]
        state_of = state if kind_of.num > 1 else None
        fill = Fill(state=state_of, start=start, stride=kind_of.columns, further=of_warps(lanes))
        made.emit(op, PREFIX + kind, detail, RING, fill=fill)

    group = f".cta_group::{getattr(op, 'cta_group', 1)}"
    match op:
        case ops.Tcgen05Alloc(result=Value(type=TensorMemory(columns=columns))):
            made.places.words.add(op.offset)
            relinquish = f"{PREFIX}relinquish_alloc_permit{group}", "", None
            allocate = f"{PREFIX}alloc{group}", str(columns), Fill(start=op.offset)
            _by_first_warp(made, op, allocate, relinquish)
        case ops.Tcgen05Dealloc(memory=Value(type=TensorMemory(columns=columns))):
            _by_first_warp(made, op, (f"{PREFIX}dealloc{group}", str(columns), Fill(start=TMEM)))
        case ops.TmemColumns():
            made.columns[op.result] = op
        case ops.Tcgen05Mma():
            known = made.known.get(op.accumulate)
            flag = "p" if known is None else str(int(known))
            issued = instructions(op)
            for step, own in enumerate(issued):
                kind, there = f"mma{group}.kind::{own.kind}", IN_TENSOR if op.a_state else ""
                detail = f"{'1' if step else flag}, {own.descriptor}{there}"
                emit(kind, op.sums, op.state, op.column, detail)
                if op.a_state is not None:
                    at = op.a_column + step * op.a_columns // len(issued)
                    emit(kind, op.a, op.a_state, at, "operand 1")
                else:
                    operand_event(made, op, op.a, step, VERSION)
                operand_event(made, op, op.b, step, VERSION)
                if op.scales is not None and op.scale_state is not None:
                    emit(kind, op.scales, op.scale_state, own.a_scale, "operand 4")
                    emit(kind, op.scales, op.scale_state, own.b_scale, "operand 5")
        case ops.Tcgen05Commit():
            cta = made.of_ranks(op.multicast)
            fill = Fill(made.places.barriers[op.barriers], op.state, cta=cta)
            many = ".multicast::cluster" if op.multicast is not None else ""
            made.emit(op, f"{PREFIX}commit{group}.mbarrier::arrive::one{many}", fill=fill)
        case ops.Tcgen05Ld(result=Value(type=Accumulator(columns=columns))):
            for at, width in at_once(columns):
                emit(f"ld.16x256b.x{width // 8}", op.sums, op.state, op.column + at)
        case ops.Tcgen05St():
            shape = stored_shape(op)
            for at, width in at_once(op.width):
                kind = f"st.{shape}.x{width // STORED[shape]}"
                emit(kind, op.columns, op.state, op.column + at)
        case ops.Tcgen05WaitLd():
            made.emit(op, f"{PREFIX}wait::ld")
        case ops.StoreScaleFactors():
            for columns in word_columns(op.rows, op.words):
                made.emit(op, "ld.shared")
                at = op.column + columns.start
                for count in stored_at_once(len(columns)):
                    emit(f"st.32x32b.x{count}", op.scales, op.state, at)
                    at += count
        case ops.Tcgen05Cp():
            for word, atom in product(range(op.words), range(op.rows // ROWS)):
                at = op.column + scale_columns(op.rows, word) + TILE_COLUMNS * atom
                emit(f"cp{group}.32x128b.warpx4", op.scales, op.state, at)
                place = made.shared[op.shared].offset + op.offset + (atom * op.words + word) * BYTES
                of = op.shared, op.shared_state
                _descriptor(made, op, of, BASE + place >> 4, ATOM | VERSION, (0,) * 32)
        case ops.Tcgen05WaitSt():
            made.emit(op, f"{PREFIX}wait::st")
        case ops.Tcgen05Fence():
            order = "after" if op.after else "before"
            made.emit(op, f"{PREFIX}fence::{order}_thread_sync")
        case _:
            pass


def _by_first_warp(made: TraceBuilder, op: Op, *letters: tuple[str, str, Fill | None]) -> None:
    before = made.now
    made.now = made.silent(before, threads=FIRST_WARP)
    for kind, detail, fill in letters:
        made.emit(op, kind, detail, fill=fill)
    own = made.silent(made.now)
    made.now = made.silent(own, made.silent(before, threads=~FIRST_WARP))


def tensor_letter(
    kind: str, args: Sequence[str], operand: int, constant: Callable[[str], int | None]
) -> tuple[Letter, str, str]:
    """Of an instruction without what is neutral, with the field that an operand says (of a product
    the one asked for), and that; `constant`: what a register holds, if that can be told.
    """
    operation = kind.removeprefix(PREFIX).partition(".")[0]
    if operation in ("alloc", "dealloc"):
        return Letter(kind, args[-1]), "to", args[0]
    if operation in ("ld", "st", "cp"):
        return Letter(kind, "", RING), "to", args[-1 if operation == "ld" else 0]
    if operand > 0:
        return Letter(kind, f"operand {operand}", RING), "to", args[operand]
    if operation == "mma":
        shown = args[-1] if args[-1] in ("0", "1") else "p"
        scaled = ".block_scale" in kind
        how = constant(args[3]) if len(args) == 5 + 2 * scaled else None
        there = IN_TENSOR if args[1].startswith("[") else ""
        detail = f"{shown}, {UNKNOWN if how is None else how}{there}"
        return Letter(kind, detail, RING), "to", args[0]
    return Letter(kind), "barrier" if operation == "commit" else "", args[0] if args else ""
