"""Operands that a partition of threads makes in SMEM, `Schedule(operand_transform="smem")`."""

import dataclasses
from typing import Any, Literal

import ml_dtypes
import numpy as np
import pytest

from tests.case_data import right_and_proved
from tests.case_table import Case
from tests.decoded_kernels import BY_TENSOR, DECODED, FIXED, SCHEDULES
from tests.kernels import CASES as LOADED
from tests.prover.test_mutants import missed_in_case
from tests.test_mutations import without
from wsdsl import Schedule, parse
from wsdsl.diagnostics import CompileError, ProofError, ScheduleError
from wsdsl.ir.op import Kernel, Region
from wsdsl.ir.ops import FenceAsyncProxy, LoadPanels, MbarrierArrive, Partition, WgmmaMmaAsync
from wsdsl.ir.rewriter import walk, with_regions
from wsdsl.prover.prove import prove


@pytest.mark.sampled(8)
@pytest.mark.parametrize("schedule", SCHEDULES, ids=repr)
@pytest.mark.parametrize("name", [name for name in DECODED if name not in FIXED])
def test_right_and_proved(name: str, schedule: Schedule) -> None:
    right_and_proved(DECODED[name], schedule)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", BY_TENSOR)
def test_places_by_tensor(name: str) -> None:
    case, chosen = DECODED[name], list[object]()
    for decode in (None, *BY_TENSOR[name]):
        right_and_proved(case, Schedule(operand_transform=decode))
        chosen.append(case.kernel.schedule(Schedule(operand_transform=decode), **case.sizes))
    # What can not be in registers is made in SMEM where nothing is said: as the first one says.
    assert (chosen[0] == chosen[1]) == (name != "scaled")


@pytest.mark.parametrize("cast", ["f16", "bf16", "tf32", "f32"])
@pytest.mark.parametrize("a", ["f8e4m3", "f8e5m2", "i8"])
def test_a_cast_says_what_is_multiplied(a: str, cast: str) -> None:
    """The type of the cast is the type of the MMA; of f32, which no MMA takes, it is fp8."""
    text = f"""
@kernel
def f(A: {a}[M, K], B: f8e5m2[N, K], C: f32[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += cast(A[m, k], {cast}) @ cast(B[n, k], {cast})
        C[m, n] = acc
"""
    made = parse(text).f
    if cast != "f32":
        assert {op.dtype for op in made.compile(M=64, N=64, K=256).scheduled.of(WgmmaMmaAsync)} == {
            cast
        }
    elif a == "i8":
        with pytest.raises(CompileError, match="f32"):
            made.compile()
    else:
        assert {op.dtype for op in made.compile(M=64, N=64, K=256).scheduled.of(WgmmaMmaAsync)} == {
            a
        }


WHOLE = """
@kernel
def f(Q: bf16[M, D], X: bf16[S, D], t: bf16[S], Y: f32[M, D]):
    for m in tiles(M):
        acc = zeros(f32[m, D])
        for s in tiles(S):
            p = Q[m, :] @ X[s, :]
            acc += cast(p, bf16) @ (full(bf16[D, s], 1.0) + t[s])
        Y[m, :] = acc
"""


def test_an_operand_along_a_dimension_that_it_is_not_loaded_along() -> None:
    q, x, t = (np.arange(n).reshape(-1, 8) % 3 - 1.0 for n in (72 * 8, 136 * 8, 136))
    y = np.zeros((72, 8), np.float32)
    made = parse(WHOLE).f.compile(M=72, S=136, D=8)
    made.simulate(*(v.astype(ml_dtypes.bfloat16) for v in (q, x, t.reshape(-1))), y)
    assert (y == (q @ x.T) @ (1.0 + t.reshape(-1, 1) + np.zeros((1, 8)))).all() and made.prove()


def _decoding() -> Kernel:
    schedule = Schedule(
        operand_transform="smem",
        tile=dict(m=64, n=64, k=64),
        consumers=1,
        stages=2,
        mode="cooperative",
        scheduler="grid",
    )
    case = DECODED["widened"]
    return case.kernel._compile(schedule, case.sizes, ()).scheduled


def test_what_synchronises_decoding_is_needed() -> None:
    kernel = _decoding()
    (partition,) = (op for op in kernel.of(Partition) if op.role == "decode")
    fences = [op for op in walk(partition.body) if isinstance(op, FenceAsyncProxy)]
    assert fences
    for op in fences:
        with pytest.raises(ProofError):
            prove(without(kernel, op))
    assert missed_in_case("widened", kernel) == []


def test_a_slot_is_read_before_it_is_given_back() -> None:
    kernel = _decoding()

    def early(region: Region) -> Region:
        """Arrivals in front of what reads the slot."""
        reads = [i for i, op in enumerate(region) if isinstance(op, LoadPanels)]
        region = tuple(with_regions(op, early) for op in region)
        if not reads:
            return region
        (given_back,) = [
            op for op in region if isinstance(op, MbarrierArrive) and "empty" in op.barriers.name
        ]
        rest = [op for op in region if op is not given_back]
        return (*rest[: reads[0]], given_back, *rest[reads[0] :])

    with pytest.raises(ProofError, match=r"still read|may overwrite"):
        prove(dataclasses.replace(kernel, body=early(kernel.body)))


@pytest.mark.parametrize(
    ("case", "decode", "told"),
    [
        (
            DECODED["both"],
            dict(Q="smem"),
            "operand_transform names `Q`, .*\n.*\n.*\n.*choose from: A, B",
        ),
        (
            DECODED["scaled"],
            dict(W="smem", s="registers"),
            "differs for (W, s|s, W), inputs of one operand",
        ),
        (LOADED["gemm"], "smem", 'operand_transform is "smem", and no operand'),
        (LOADED["attention"], "smem", "not an elementwise function"),
    ],
)
def test_places_that_are_refused(case: Case, decode: Any, told: str) -> None:
    with pytest.raises(ScheduleError, match=told):
        case.kernel.compile(Schedule(operand_transform=decode), **case.sizes)


@pytest.mark.parametrize("by", [8, 24, 48])
@pytest.mark.parametrize("unaligned", [(), ("X",)])
def test_tiles_of_8_bits_begin_at_boxes(by: int, unaligned: tuple[str, ...]) -> None:
    """Threads copy them from anywhere, TMA from multiples of 16 bytes."""
    text = f"""
@kernel
def f(X: f8e5m2[K, N], A: i8[M, K], Y: f16[M, N]):
    for m in tiles(M):
        for n in tiles(N, by={by}):
            acc = zeros(f32[n, m])
            for k in tiles(K):
                acc += cast(X[k, n], f16) @ cast(A[m, k], f16)
            Y[m, n] = acc
"""
    if by % 16 == 0 or unaligned:
        assert parse(text).f._compile(None, {}, unaligned).certificate
    else:
        with pytest.raises(ScheduleError, match=r"(?s)a multiple of 16: .* by 16 bytes"):
            parse(text).f.compile()


NOT_IN_REGISTERS = {
    "both_operands_computed": (
        """
@kernel
def f(A: bf16[M, K], B: bf16[N, K], s: bf16[M], C: f32[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += (A[m, k] + s[m]) @ abs(B[n, k])
        C[m, n] = acc
""",
        7,
        "both operands of this matmul are transformed",
    ),
    "computed_operand_of_32_bits": (
        """
@kernel
def f(A: tf32[M, K], B: tf32[N, K], s: f32[K], C: f32[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += cast(abs(A[m, k]), tf32) @ B[n, k]
        C[m, n] = acc
""",
        7,
        "a transformed operand of `@` is tf32",
    ),
    "operands_on_both_sides": (
        """
@kernel
def f(A: bf16[M, K], B: bf16[N, K], C: f32[M, N], D: f32[M, N]):
    for m, n in tiles(M, N):
        one, other = zeros(f32[m, n]), zeros(f32[m, n])
        for k in tiles(K):
            one += abs(A[m, k]) @ B[n, k]
            other += A[m, k] @ abs(B[n, k])
        C[m, n] = one
        D[m, n] = other
""",
        8,
        "this transformed operand of `@` needs `n` as M",
    ),
}
"""Text, line, what is told; all of them are lowered where `operand_transform` is left out."""


@pytest.mark.parametrize("name", NOT_IN_REGISTERS)
def test_what_registers_can_not_have(name: str) -> None:
    text, line, told = NOT_IN_REGISTERS[name]
    made = parse(text, "f.ws").f
    with pytest.raises(CompileError) as caught:
        made.compile(Schedule(operand_transform="registers"))
    assert any(f.loc and f.loc.line == line and told in f.message for f in caught.value.findings)
    assert made.compile(M=128, N=128, K=128).prove()


def test_tiles_are_chosen_that_can_be_written() -> None:
    case = DECODED["widened"]
    schedule = Schedule(operand_transform="smem", scheduler="split_k", splits=2)
    chosen = case.kernel.compile(schedule=schedule, **case.sizes).schedule
    assert chosen.tile and chosen.tile["m"] % 64 == 0


def test_lines_are_whole_fragments() -> None:
    schedule = Schedule(operand_transform="smem", tile=dict(m=96))
    with pytest.raises(ScheduleError, match="multiple of 64"):
        DECODED["widened"].kernel.compile(schedule=schedule)


def test_registers_are_named_by_role() -> None:
    schedule = Schedule(operand_transform="smem", registers=dict(load=24, compute=184))
    with pytest.raises(ScheduleError, match="load, decode and compute"):
        DECODED["widened"].kernel.compile(schedule=schedule)


@pytest.mark.parametrize("mode", ["cooperative", "pingpong"])
def test_one_stage_of_several_operands_that_are_held_together(
    mode: Literal["cooperative", "pingpong"],
) -> None:
    text = """@kernel
def f(Q: bf16[M, D], K: i8[L, D], J: i8[L, D], V: bf16[L, D], Y: f32[M, D]):
    for m in tiles(M):
        acc = zeros(f32[m, D])
        for l in tiles(L):
            s = (Q[m, :] @ cast(K[l, :], bf16)) * (Q[m, :] @ cast(J[l, :], bf16))
            acc += cast(silu(s), bf16) @ V[l, :]
        Y[m, :] = acc
"""
    schedule = Schedule(stages=1, mode=mode, operand_transform="smem")
    prove(parse(text).f._compile(schedule, {"D": 16}, ()).scheduled)
