"""The events of tensor memory, as codegen is to emit them, and their letters in PTX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from wsdsl.ir import tensor_ops as t
from wsdsl.ir.block_scales import stored_at_once, word_columns
from wsdsl.ir.op import Op, Value
from wsdsl.ir.scale_atoms import ROWS
from wsdsl.ir.tensor_instructions import STORED, at_once, instructions, stored_shape
from wsdsl.ir.types import Accumulator, TensorMemory
from wsdsl.prover.skeleton_letters import UNKNOWN, Letter
from wsdsl.prover.skeleton_states import Fill, Places

FIRST_WARP = (1 << 32) - 1
"""Threads, as bits."""
PREFIX = "tcgen05."
IN_TENSOR = ", a in tensor memory"


Ask = TypeVar("Ask")


class Builder(Protocol):
    now: int
    places: Places
    known: dict[Value, int | float | bool]

    @property
    def emit(self) -> Callable[..., None]: ...
    @property
    def silent(self) -> Callable[..., int]: ...


def tensor_events(made: Builder, op: Op) -> None:
    group = f".cta_group::{getattr(op, 'cta_group', 1)}"
    match op:
        case t.AllocateTensorMemory(result=Value(type=TensorMemory(columns=columns))):
            relinquish = f"{PREFIX}relinquish_alloc_permit{group}"
            _by_first_warp(made, op, (f"{PREFIX}alloc{group}", str(columns)), (relinquish, ""))
        case t.FreeTensorMemory(memory=Value(type=TensorMemory(columns=columns))):
            _by_first_warp(made, op, (f"{PREFIX}dealloc{group}", str(columns)))
        case t.TensorProduct():
            known = made.known.get(op.accumulate)
            first = "p" if known is None else str(int(known))
            for step, own in enumerate(instructions(op)):
                flag = "1" if step else first
                detail = f"{flag}, {own.descriptor}{IN_TENSOR if op.a_state else ''}"
                made.emit(op, f"{PREFIX}mma{group}.kind::{own.kind}", detail)
        case t.TensorCommit():
            fill = Fill(made.places.barriers[op.barriers], op.state)
            many = ".multicast::cluster" if op.multicast is not None else ""
            made.emit(op, f"{PREFIX}commit{group}.mbarrier::arrive::one{many}", fill=fill)
        case t.TensorLoad(result=Value(type=Accumulator(columns=columns))):
            for _, width in at_once(columns):
                made.emit(op, f"{PREFIX}ld.16x256b.x{width // 8}")
        case t.TensorStore():
            for _, width in at_once(op.width):
                made.emit(op, f"{PREFIX}st.{stored_shape(op)}.x{width // STORED[stored_shape(op)]}")
        case t.TensorWait():
            made.emit(op, f"{PREFIX}wait::ld")
        case t.StoreScales():
            for columns in word_columns(op.rows, op.words):
                for count in stored_at_once(len(columns)):
                    made.emit(op, f"{PREFIX}st.32x32b.x{count}")
        case t.TensorCopy():
            for _ in range(op.rows // ROWS * op.words):
                made.emit(op, f"{PREFIX}cp{group}.32x128b.warpx4")
        case t.TensorStoreWait():
            made.emit(op, f"{PREFIX}wait::st")
        case t.TensorFence():
            order = "after" if op.after else "before"
            made.emit(op, f"{PREFIX}fence::{order}_thread_sync")
        case _:
            pass


def _by_first_warp(made: Builder, op: Op, *letters: tuple[str, str]) -> None:
    before = made.now
    made.now = made.silent(before, threads=FIRST_WARP)
    for kind, detail in letters:
        made.emit(op, kind, detail)
    own = made.silent(made.now)
    made.now = made.silent(own, made.silent(before, threads=~FIRST_WARP))


def tensor_letter(
    kind: str, args: Sequence[str], barrier: Ask, constant: Callable[[str], int | None]
) -> tuple[Letter, *tuple[Ask, ...]]:
    """Of an instruction without what is neutral; `barrier`: its first operand, if that is one;
    `constant`: what a register holds, if that can be told.
    """
    operation = kind.removeprefix(PREFIX).partition(".")[0]
    if operation in ("alloc", "dealloc"):
        return (Letter(kind, args[-1]),)
    if operation == "mma":
        shown = args[-1] if args[-1] in ("0", "1") else "p"
        scaled = ".block_scale" in kind
        how = constant(args[3]) if len(args) == 5 + 2 * scaled else None
        there = IN_TENSOR if args[1].startswith("[") else ""
        return (Letter(kind, f"{shown}, {UNKNOWN if how is None else how}{there}"),)
    if operation == "commit":
        return Letter(kind), barrier
    return (Letter(kind),)
