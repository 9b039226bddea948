"""Products whose sums lie in tensor memory: the same text for sm_100a and sm_103a."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.case_data import check, expected, inputs, right_and_proved, simulated
from tests.case_table import matmul_text
from tests.corpus.texts import TEXTS
from tests.decoded_kernels import DECODED
from tests.generated.trial import attempts
from tests.kernels import CASES
from tests.tensor_memory import columns_of, scheduled
from wsdsl import Schedule, ScheduleError, parse
from wsdsl.diagnostics import ProofError
from wsdsl.ir import ops
from wsdsl.ir.op import Op
from wsdsl.ir.ops import Iota, MakeTensorMap, Partition
from wsdsl.ir.rewriter import rewrite
from wsdsl.ir.types import DTYPES, Columns
from wsdsl.lowering.pipeline import lower, scheduled_tile
from wsdsl.prover.prove import prove
from wsdsl.simulator.reference.arithmetic import numpy_dtype

LOWERED = (
    "mn_major", "two_products", "two_loops", "accumulated_in_nest", "batched", "reduce_narrow",
    "product_tf32", "product_f8e5m2_f8e4m3", "product_u8_i8", "scale",
)  # fmt: skip
ASKED: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in LOWERED),
    ("gemm", dict(tile=dict(m=128, n=64))),
    ("epilogue", dict(tile=dict(m=128, n=64))),
    ("row_softmax", dict(tile=dict(m=128, n=64))),
    ("gathered_bias", dict(tile=dict(m=128, n=64))),
    # Rows of results lie along their last dimension.
    ("gemm", dict(mma_m="n", tile=dict(n=128, m=48))),
    ("product_tf32", dict(mma_m="n", tile=dict(n=128, m=48))),
    ("product_f8e4m3", dict(mma_m="n", tile=dict(n=128, m=48))),
    # Pairs of CTAs multiply together.
    ("gemm", dict(cta_group=2, tile=dict(m=128, n=256))),
    ("gemm", dict(cta_group=2, mma_m="n", tile=dict(n=128, m=64))),
    ("mn_major", dict(cta_group=2, tile=dict(m=128, n=128))),
    ("two_products", dict(cta_group=2, tile=dict(m=128, n=64))),
    ("product_tf32", dict(cta_group=2, tile=dict(m=128, n=96))),
    ("product_u8_i8", dict(cta_group=2, tile=dict(m=128, n=96))),
    ("batched", dict(cta_group=2, tile=dict(m=128))),
    ("two_loops", dict(cta_group=2, tile=dict(m=128, n=64))),
    # CTAs of a cluster load for each other, and a warpgroup of its own loads constant operands.
    ("epilogue", dict(cluster=dict(m=2, n=2))),
    ("gemm", dict(pdl_independent=("B",))),
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("name", "asked"), ASKED)
def test_values_are_right_and_the_kernel_is_proved(name: str, asked: dict[str, Any]) -> None:
    """A pair lies along the rows of the products."""
    schedule = right_and_proved(CASES[name], Schedule(arch="sm_100a", **asked)).schedule
    assert "cta_group" not in asked or schedule.cluster == {asked.get("mma_m", "m"): 2}


@pytest.mark.parametrize(("k", "more"), [(0, 72), (136, 0), (0, 0)])
def test_sums_that_nothing_is_added_to_are_zeros(k: int, more: int) -> None:
    simulated(CASES["two_loops"], Schedule(arch="sm_100a"), K=k, L=more)


OF_AN_EXPERT = """
@kernel
def of_an_expert(A: bf16[M, K], B: bf16[E, N, K], experts: i32[T], C: f32[M, N]):
    for n in tiles(N):
        for m in tiles(M, by=128):
            acc = zeros(f32[m, n])
            expert = 0
            if experts[0] > 1:
                expert = experts[(end(m) - 1) // 128]
            for k in tiles(K):
                acc += A[m, k] @ B[expert, n, k]
            C[m, n] = acc
"""


def test_pairs_are_left_to_kernels_that_they_suit() -> None:
    sizes, own = dict(M=4096, N=4096, K=4096), parse(OF_AN_EXPERT).of_an_expert
    for kernel, asked in (
        (DECODED["widened"].kernel, {}),
        (CASES["gemm"].kernel, dict(cta_group=1)),
        (own, dict(mma_m="m")),
    ):
        tile = replace(kernel.tile_ir, schedule=Schedule(arch="sm_100a", **asked))
        chosen = scheduled_tile(tile, sizes).schedule
        assert chosen is not None and chosen.cluster is None and chosen.cta_group != 2


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", ["widened", "both", "normalised", "across", "eight_bits"])
def test_operands_are_made_in_shared_memory_if_nobody_says_where(name: str) -> None:
    right_and_proved(DECODED[name], Schedule(arch="sm_100a"))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("gemm", dict(tile=dict(m=256, n=64))),
        ("epilogue", dict(tile=dict(m=256, n=64))),
        ("two_products", dict(tile=dict(m=256, n=64))),
        ("mn_major", dict(tile=dict(m=256, n=64))),
        ("gemm", dict(tile=dict(m=128, n=128), consumer_split="n")),
        ("gemm", dict(tile=dict(n=256, m=48), mma_m="n")),
        ("mn_major", dict(tile=dict(m=32, n=128), mma_m="n", consumer_split="m")),
    ],
)
def test_two_warpgroups_that_share_a_tile(name: str, asked: dict[str, Any]) -> None:
    """128 rows each, of which a thread starts products one after the other; or half of the columns
    of 128.
    """
    kernel = right_and_proved(CASES[name], Schedule(arch="sm_100a", consumers=2, **asked)).scheduled
    assert {op.rows for op in kernel.of(ops.Tcgen05Mma)} == {128}
    assert all(op.apart for op in kernel.of(ops.Tcgen05Ld))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("scaled", dict(operand_transform=dict(W="tmem"), mma_m="n", tile=dict(n=128, m=64))),
        ("both", dict(operand_transform=dict(A="tmem"), tile=dict(m=128, n=64))),
        ("across", dict(operand_transform="tmem", mma_m="n", tile=dict(n=64))),
        ("part", dict(operand_transform="tmem", mma_m="n", tile=dict(n=128, m=32))),
    ],
)
def test_operands_are_decoded_into_tensor_memory(name: str, asked: dict[str, Any]) -> None:
    """In the lanes of the rows of products, of 64 and of 128."""
    compiled = right_and_proved(DECODED[name], Schedule(arch="sm_100a", **asked))
    assert sum(op.a_state is not None for op in compiled.scheduled.of(ops.Tcgen05Mma)) == 1
    assert compiled.scheduled.of(ops.Tcgen05St)


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("scaled", dict(operand_transform=dict(W="tmem"))),
        ("both", dict(operand_transform="tmem")),
        ("eight_bits", dict(operand_transform="tmem", mma_m="n")),
        ("scaled", dict(operand_transform="tmem", mma_m="n", cta_group=2)),
    ],
)
def test_what_can_not_lie_there_is_refused(name: str, asked: dict[str, Any]) -> None:
    """Beside the rows of products, of fewer bits, and of a pair."""
    schedule = Schedule(arch="sm_100a", **asked)
    with pytest.raises(ScheduleError, match="this operand cannot be in TMEM") as caught:
        lower(DECODED[name].with_schedule(schedule))
    assert "Schedule.mma_m" in str(caught.value)


def test_each_cta_of_a_pair_loads_and_holds_half_of_what_both_want() -> None:
    kernel = scheduled("gemm", n=256, pair=2)
    boxes = {op.tensor.name: op.box for op in kernel.of(MakeTensorMap)}
    assert boxes["A"] == boxes["B"] == (128, 64)
    (product,) = kernel.of(ops.Tcgen05Mma)
    assert (product.rows, product.columns, product.cta_group) == (128, 256, 2)


@pytest.mark.parametrize(
    "asked",
    [dict(arch="sm_100a"), dict(arch="sm_90a", mode="pingpong", operand_transform="smem")],
    ids=repr,
)
def test_operands_that_no_thread_loads_into_slots(asked: dict) -> None:
    """Of rows that TMA does not take both are decoded: there is no load warpgroup, of which another
    warp could multiply, or bring what an epilogue reads.
    """
    made = parse(
        matmul_text(
            "made(X: i8[M, K], W: i8[N, K], r: f32[M, N], Y: f32[M, N])",
            "cast(X[m, k], bf16) @ cast(W[n, k], bf16)",
            "Y[m, n] = acc + r[m, n]",
        )
    ).made
    x, w = (np.arange(rows * 40, dtype=np.int32).reshape(rows, 40) % 7 - 3 for rows in (70, 72))
    r, y = np.ones((70, 72), np.float32), np.zeros((70, 72), np.float32)
    made.simulate(x.astype(np.int8), w.astype(np.int8), r, y, schedule=Schedule(**asked))
    np.testing.assert_array_equal(y, x @ w.T + 1)


def test_operands_that_threads_copy() -> None:
    """Then no warp of the load warpgroup is left for the thread that multiplies."""
    case = CASES["gemm"]
    arrays = inputs(case, M=65, N=67, K=71)
    call = case.kernel.resolve(tuple(arrays.values()))
    compiled = case.kernel.compiled_for(call, Schedule(arch="sm_100a"))
    compiled.simulate_call(call)
    check(case, arrays, expected(case, arrays))
    assert compiled.certificate is not None
    sizes = {p.role: p.num_warps for p in compiled.scheduled.of(Partition)}
    assert sizes == {"load": 4, "mma": 4, "compute": 4}


def test_two_sums_of_a_tile_share_a_slot() -> None:
    kernel = scheduled("two_products", n=192)
    assert columns_of(kernel) == {"sums": Columns(384, 1)}
    assert {op.column for op in kernel.of(ops.Tcgen05Mma)} == {0, 192}
    (taken,) = kernel.of(ops.Tcgen05Alloc)
    assert str(taken.result.type) == "tensor_memory<512>"


def test_sums_read_after_a_loop_share_no_slot_with_those_in_it() -> None:
    """Threads release the first accumulator after the loop, whose iterations need slots."""
    text = """
@kernel
def made(A: bf16[M, D], B: bf16[N, D], X: bf16[L, D], Y: f32[M, N]):
    for m, n in tiles(M, N):
        first = A[m, :] @ B[n, :]
        total = zeros(f32[m])
        for l in tiles(L):
            total += sum(A[m, :] @ X[l, :], over=l)
        Y[m, n] = first * total
"""
    (outcome,) = attempts(text, 0, given=(Schedule(arch="sm_100a", tile=dict(l=16)),))
    assert outcome.kind == "ok", outcome


def test_a_whole_dimension_of_two_operands_that_are_decoded() -> None:
    """No partition but the one that decodes has an op for it."""
    text = """
@kernel
def made(X: f8e4m3[D, M], W: i8[D, N], Y: f32[M, N]):
    for m, n in tiles(M, N):
        Y[m, n] = cast(X[:, m], bf16) @ cast(W[:, n], bf16)
"""
    x, w = np.eye(64, 70).astype(numpy_dtype(DTYPES["f8e4m3"])), np.ones((64, 48), np.int8)
    y = np.zeros((70, 48), np.float32)
    parse(text).made.simulate(x, w, y, schedule=Schedule(arch="sm_100a"))
    assert np.array_equal(y, x.T.astype(np.float32) @ w.astype(np.float32))


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        (dict(cluster=dict(k=2)), "a cluster along the contraction axis is"),
        (dict(scheduler="split_k", splits=2), "split_k"),
        (dict(mode="pingpong"), "pingpong"),
        (dict(tile=dict(m=192)), "must be 64 or 128"),
        (dict(tile=dict(m=256), consumers=1), "must be 64 or 128"),
        (dict(tile=dict(m=128), consumers=2), "must be 256 \\(128 per consumer"),
        (dict(tile=dict(m=192), consumers=3), "consumers=3 is not lowered"),
        (dict(cta_group=2, tile=dict(m=256), consumers=2), "with cta_group=2 is not lowered"),
        (dict(cta_group=2, cluster=dict(n=2)), "a pair of CTAs along M"),
        (dict(cta_group=2, cluster=dict(m=4)), "a pair of CTAs along M"),
        (dict(cta_group=2, tile=dict(m=64)), "must be 128: Schedule.cta_group"),
        (dict(cta_group=2, tile=dict(n=48)), "a multiple of 32: "),
        (dict(cta_group=2, multicast=True), "CTAs do not multicast"),
        (dict(cta_group=2, arch="sm_90a"), "needs a matmul in tensor"),
        (dict(tile=dict(m=128, n=40)), "a multiple of 16: "),
        (dict(registers=dict(load=40, compute=232)), "registers is not lowered"),
    ],
    ids=repr,
)
def test_a_schedule_that_is_not_lowered_is_refused(schedule: dict, words: str) -> None:
    asked = Schedule(**dict(arch="sm_100a") | schedule)
    with pytest.raises(ScheduleError, match=words):
        lower(CASES["gemm"].with_schedule(asked))


def test_results_are_added_where_they_are_read() -> None:
    """Each warp reads the rows that it stores by TMA, in two halves of a tile's; rows of another
    warp it may not."""
    text = matmul_text(
        "added(A: bf16[M, K], B: bf16[N, K], C: f32[M, N])",
        "A[m, k] @ B[n, k]",
        "C[m, n] = C[m, n] + acc",
    )
    asked = Schedule(arch="sm_100a", tile=dict(m=128, n=64))
    kernel = lower(replace(parse(text).added.tile_ir, schedule=asked))
    prove(kernel)

    def packed(op: Op) -> tuple[Op]:
        return (replace(op, apart=16) if isinstance(op, Iota) else op,)

    with pytest.raises(ProofError, match="before it is read by"):
        prove(replace(kernel, body=rewrite(kernel.body, packed)))


def test_products_need_no_registers_at_launch() -> None:
    """Beside a load warpgroup, one that decodes and one that clears."""
    parts = parse(
        """
@kernel
def parts(A: bf16[R, M], B: i8[R, N], start: i32[G1], C: f32[G, M, N]):
    for g in each(G):
        for m, n in tiles(M, N):
            acc = zeros(f32[m, n])
            for r in tiles(start[g], start[g + 1], of=R):
                acc += A[r, m] @ cast(B[r, n], bf16)
            C[g, m, n] = acc
"""
    ).parts
    asked = Schedule(arch="sm_100a", tile=dict(m=128, n=256))
    kernel = lower(replace(parts.tile_ir, schedule=asked))
    assert sum(p.num_warps for p in kernel.of(Partition)) == 16


def test_scattered_rows_of_which_warps_have_other_rows_between() -> None:
    text, sizes = TEXTS["scattered"]
    asked = Schedule(arch="sm_100a", tile=dict(m=128, n=64))
    assert parse(text).scattered.compile(schedule=asked, **sizes).certificate is not None
