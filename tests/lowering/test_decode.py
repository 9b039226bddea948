"""Operands that a partition of threads makes in SMEM, `Schedule(decode="shared")`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.case_data import check, expected, inputs
from tests.case_table import Case
from tests.kernels import CASES as LOADED
from tests.simulator.mutants import mutants
from wsdsl import Schedule
from wsdsl.diagnostics import CompileError, ProofError, ScheduleError, WsdslError
from wsdsl.ir.barrier_ops import ArriveBarrier
from wsdsl.ir.memory_ops import LoadPanels
from wsdsl.ir.op import Kernel, Region
from wsdsl.ir.pipeline_ops import Partition
from wsdsl.ir.printer import print_head
from wsdsl.ir.walk import walk, with_regions
from wsdsl.prover.prove import prove

KEPT: dict[str, Case] = {"widened": LOADED["widened"]}


def kept(name: str, text: str, **sizes: int) -> Any:
    def keep(expected: Any) -> Any:
        KEPT[name] = Case(text, expected, sizes)
        return expected

    return keep


@kept(
    "scaled",
    """
@kernel
def scaled(X: f16[M, K], W: i8[N, K], s: f16[N], t: f16[K], Y: f32[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += X[m, k] @ (cast(W[n, k], f16) * s[n] + t[k])
        Y[m, n] = acc
""",
    M=72, N=136, K=112,
)  # fmt: skip
def _(X: Any, W: Any, s: Any, t: Any) -> Any:
    w = (W.astype(np.float16) * s.astype(np.float16)[:, None]).astype(np.float16)
    return {"Y": X @ (w + t.astype(np.float16)).astype(np.float64).T}


@kept(
    "both",
    """
@kernel
def both(A: i8[M, K], B: i8[N, K], C: f32[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += cast(A[m, k], bf16) @ cast(B[n, k], bf16)
        C[m, n] = acc
""",
    M=72, N=136, K=112,
)  # fmt: skip
def _(A: Any, B: Any) -> Any:
    return {"C": A @ B.T}


@kept(
    "across",
    """
@kernel
def across(A: bf16[M, K], B: i8[K, N], C: f32[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += A[m, k] @ (cast(B[k, n], bf16) + 1.0)
        C[m, n] = acc
""",
    M=72, N=136, K=104,
)  # fmt: skip
def _(A: Any, B: Any) -> Any:
    return {"C": A @ (B + 1)}


@kept(
    "eight_bits",
    """
@kernel
def eight_bits(A: f8e4m3[M, K], B: u8[N, K], C: f32[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += A[m, k] @ cast(cast(B[n, k] & 7, f32) + 1.0, f8e4m3)
        C[m, n] = acc
""",
    M=72, N=136, K=112,
)  # fmt: skip
def _(A: Any, B: Any) -> Any:
    return {"C": A @ ((B.astype(int) & 7) + 1.0).T}


@kept(
    "part",
    """
@kernel
def part(X: bf16[M, K], W: i8[N, K], Y: f32[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(32, 90, of=K):
            acc += X[m, k] @ (cast(W[n, k], bf16) + 1.0)
        Y[m, n] = acc
""",
    M=72, N=136, K=112,
)  # fmt: skip
def _(X: Any, W: Any) -> Any:
    return {"Y": X[:, 32:90] @ (W[:, 32:90] + 1).T}


SCHEDULES = [
    Schedule(decode="shared"),
    Schedule(decode="shared", tile=dict(m=128, n=128), mode="cooperative", consumers=2, stages=1),
    Schedule(decode="shared", tile=dict(m=64, n=64), mode="pingpong", consumers=2),
]


@pytest.mark.parametrize("schedule", SCHEDULES, ids=repr)
@pytest.mark.parametrize("name", KEPT)
def test_right_and_proved(name: str, schedule: Schedule) -> None:
    case = KEPT[name]
    arrays = inputs(case)
    wanted = expected(case, arrays)
    compiled = case.kernel.compile(schedule=schedule)
    compiled.simulate(*arrays.values())
    check(case, arrays, wanted)
    assert compiled.certificate is not None


def _decoding() -> Kernel:
    schedule = Schedule(
        decode="shared",
        tile=dict(m=64, n=64, k=64),
        consumers=1,
        stages=2,
        mode="cooperative",
        scheduler="grid",
    )
    case = KEPT["widened"]
    return case.kernel._compile(schedule, case.sizes, ()).scheduled


def _broken(kernel: Kernel) -> Iterator[tuple[str, Kernel]]:
    """Every mutant of the decode partition's synchronisation."""
    (partition,) = (op for op in kernel.body if isinstance(op, Partition) and op.role == "decode")
    inside = {print_head(op) for op in walk(partition.body)}
    for what, mutant in mutants(kernel):
        change, _, op = what.partition(" op ")
        name = op.split(": ", 1)[1]
        if name in inside and not change.startswith("twice"):
            yield f"{change} {name}", mutant


HARMLESS = ("delete sync_warp", "delete store_shared")
"""All threads arrive for themselves; what is not written is data, which the reference shows."""


def test_what_synchronises_decoding_is_needed() -> None:
    kernel = _decoding()
    prove(kernel)
    found = list(_broken(kernel))
    for change in ("delete wait_barrier", "delete arrive_barrier", "delete fence", "parity"):
        assert any(what.startswith(change) for what, _ in found), change
    missed = [what for what, mutant in found if not _is_refused(mutant)]
    assert [what for what in missed if not what.startswith(HARMLESS)] == []


def _is_refused(kernel: Kernel) -> bool:
    try:
        prove(kernel)
    except WsdslError:
        return True
    return False


def test_a_slot_is_read_before_it_is_given_back() -> None:
    kernel = _decoding()

    def early(region: Region) -> Region:
        """Arrivals in front of what reads the slot."""
        reads = [i for i, op in enumerate(region) if isinstance(op, LoadPanels)]
        region = tuple(with_regions(op, early) for op in region)
        if not reads:
            return region
        (given_back,) = [
            op for op in region if isinstance(op, ArriveBarrier) and "empty" in op.barriers.name
        ]
        rest = [op for op in region if op is not given_back]
        return (*rest[: reads[0]], given_back, *rest[reads[0] :])

    with pytest.raises(ProofError, match=r"still read|may overwrite"):
        prove(dataclasses.replace(kernel, body=early(kernel.body)))


REFUSED = {
    "gemm": 'decode is "shared", and no operand',
    "attention": "not made of loads alone",
}


@pytest.mark.parametrize("name", REFUSED)
def test_where_nothing_is_decoded(name: str) -> None:
    case = LOADED[name]
    with pytest.raises(ScheduleError, match=REFUSED[name]):
        case.kernel.compile(schedule=Schedule(decode="shared"), **case.sizes)


def test_both_operands_need_shared_memory() -> None:
    with pytest.raises(CompileError, match=r'Schedule\(decode="shared"\)'):
        KEPT["both"].kernel.compile()


def test_tiles_are_chosen_that_can_be_written() -> None:
    case = KEPT["widened"]
    schedule = Schedule(decode="shared", scheduler="split_k", splits=2)
    chosen = case.kernel.compile(schedule=schedule, **case.sizes).schedule
    assert chosen.tile and chosen.tile["m"] % 64 == 0


def test_lines_are_whole_fragments() -> None:
    schedule = Schedule(decode="shared", tile=dict(m=96))
    with pytest.raises(ScheduleError, match="multiple of 64"):
        KEPT["widened"].kernel.compile(schedule=schedule)


def test_registers_are_named_by_role() -> None:
    schedule = Schedule(decode="shared", registers=dict(load=24, compute=184))
    with pytest.raises(ScheduleError, match="load, decode and compute"):
        KEPT["widened"].kernel.compile(schedule=schedule)
