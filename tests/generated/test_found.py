"""Programs that were once wrong, or no answer, each by a fault of its own."""

import pytest

import wsdsl
from tests.case_table import matmul_text
from tests.generated.trial import attempts
from wsdsl import Schedule

RIGHT = {
    "a_row_that_nothing_is_loaded_along": """
@kernel
def made(X: bf16[K], W: tf32[L], Y: f16[B]):
    for b in each(B):
        total, most, sums = 0.0, -inf, 0.0
        for k in tiles(K):
            total += sum(X[k], over=k)
        for l in tiles(L):
            x = zeros(f32[l]) + total
            top = max(most, max(x, over=l))
            sums = sums * exp(most - top) + sum(exp(x - top), over=l)
            most = top
        Y[b] = sums
""",
    "turned_by_tiles_of_72": """
@kernel
def made(Y: f32[B, M, N], X: f32[N, M]):
    for b in each(B):
        for m in tiles(M, by=72):
            for n in tiles(N):
                Y[b, m, n] = X[n, m]
""",
    "ends_of_tiles_that_many_lanes_store": """
@kernel
def made(X: f32[N], Y: bf16[M, N, L], Z: f32[M, N, L], C: f32[M, N]):
    for m in each(M):
        for n in tiles(N):
            for l in tiles(L, by=16):
                Y[m, n, (end(l) - 1) // 16] = X[n]
            C[m, n] = min(Z[m, n, :], over=L)
""",
    "transposed_bytes_by_tiles_of_192": """
@kernel
def made(X: i8[N, M], W: i8[M, N], Y: i8[M, N]):
    for m in tiles(M):
        for n in tiles(N, by=192):
            Y[m, n] = X[n, m] + W[m, n]
""",
    "rows_beside_an_axis_of_no_tile": """
@kernel
def made(X: f32[M, K], perm6: i32[M], Y: u16[N, T]):
    for m in tiles(M):
        for n in tiles(N):
            total = full(f32[m], 0.0)
            for k in tiles(K):
                total += sum(X[m, k], over=k)
            Y[n, perm6[m]] = total
""",
    "whole_in_a_loop_and_behind": """
@kernel
def made(X: f32[D, N], Y: i8[N, B], W: i8[D, N], Z: f32[L]):
    for b in each(B):
        for n in tiles(N):
            least = full(f32[n], inf)
            for l in tiles(L):
                least = max(least, max(zeros(f32[l]) + min(X[:, n], over=D), over=l))
            Y[n, b] = max(W[:, n], over=D) + cast(least, i8)
""",
    "scalar_of_tf32": """
@kernel
def made(X: tf32[M, K], Y: f32[M], alpha: f32):
    for m in tiles(M):
        s = zeros(f32[m])
        for k in tiles(K):
            s += sum(X[m, k] + cast(alpha, tf32), over=k)
        Y[m] = s
""",
    "equal_loops_of_one_side": """
@kernel
def made(Z: f32[M], A: bf16[N, M], B: bf16[N, L], Y: bf16[M, N], V: bf16[N, M], U: bf16[M, L],
         W: f32[L, M]):
    for m in tiles(M):
        for n in tiles(N):
            Y[m, n] = Z[m]
        for n in tiles(N):
            V[n, m] = Z[m]
        for l in tiles(L):
            U[m, l] = Z[m]
        for l in tiles(L):
            s = zeros(f32[m, l])
            for n in tiles(N):
                s += A[n, m] @ B[n, l]
            W[l, m] = s
""",
    "whole_dimension_that_consumers_do_not_load": """
@kernel
def made(X: bf16[N, D], Y: f32[N, M]):
    for m, n in tiles(M, N):
        acc = full(f32[m, n], 0.0)
        acc += X[n, :] @ full(bf16[m, D], 0.5)
        Y[n, m] = acc
""",
    "one_tile_multiplied_and_computed_from": """
@kernel
def made(X: bf16[M, K], Z: bf16[M, K], A: bf16[L, K], B: bf16[L, K], W: bf16[N, L], Y: f32[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for l in tiles(L):
            s = zeros(f32[m, l])
            t = zeros(f32[m, l])
            for k in tiles(K):
                s += abs(X[m, k] * Z[m, k]) @ A[l, k]
                t += X[m, k] @ B[l, k]
            acc += cast(s * t, bf16) @ W[n, l]
        Y[m, n] = acc
""",
    "slot_that_threads_read_beside_products": """
@kernel
def made(X: tf32[M, D], A: tf32[L, D], B: f16[L, D], Z: f16[M, D], Y: f32[M, L], E1: f32[E]):
    for m in tiles(M):
        for l in tiles(L, by=128):
            s = full(f32[m, l], 0.0)
            t = full(f32[l, m], 0.0)
            for e in each(E):
                s += X[m, :] @ A[l, :]
                t += B[l, :] @ abs(Z[m, :])
            Y[m, l] = s + t
""",
    "zeros_of_either_sign": """
@kernel
def made(X: f32[M, D], Y: f32[M]):
    for m in tiles(M):
        Y[m] = 1.0 / max(X[m, :] * -0.0, over=D) + min(0.0, max(X[m, 0], 0.0)) * 0.0
""",
    "products_of_what_is_there_then_of_slots": """
@kernel
def made(X: i8[M, D], W: i8[N, D], U: u8[E, M, D], V: i8[N, D], Y: i32[M, N]):
    for m, n in tiles(M, N):
        s = full(i32[m, n], 0)
        for e in each(E):
            s += X[m, :] @ W[n, :]
        t = full(i32[m, n], 0)
        for e in each(E):
            t += U[e, m, :] @ V[n, :]
        Y[m, n] = min(s, 5) - t
""",
    "panels_of_what_is_there_then_products_of_slots": """
@kernel
def made(X: bf16[M, D], W: bf16[N, D], U: bf16[E, M, D], V: bf16[N, D], Y: f32[M, N]):
    for m, n in tiles(M, N):
        s = zeros(f32[m, n])
        for e in each(E):
            s += abs(X[m, :]) @ W[n, :]
        t = zeros(f32[m, n])
        for e in each(E):
            t += U[e, m, :] @ V[n, :]
        Y[m, n] = s - t
""",
    "part_to_the_end": """
@kernel
def made(X: bf16[M, K], W: bf16[N, K], Y: f32[M, N]):
    for m, n in tiles(M, N):
        acc = full(f32[m, n], 0.0)
        for k in tiles(K - 1, K, of=K):
            acc += X[m, k] @ W[n, k]
        Y[m, n] = acc
""",
    "reduced_rows_in_two_loops": """
@kernel
def made(X: f32[K, E, M], Y: f32[M]):
    for m in tiles(M):
        most = full(f32[m], -inf)
        for k in tiles(K):
            for e in each(E):
                most = max(most, max(X[k, e, m], over=k))
        Y[m] = most
""",
    "each_and_tiles": """
@kernel
def made(X: f32[D], Y: f32[B], Z: f32[L, B]):
    for b in each(B):
        Y[b] = max(X[:], over=D)
        for l in tiles(L):
            Z[l, b] = 0.0
""",
}
PARTLY = """
@kernel
def made(X: bf16[D, M], A: bf16[D, N], B: bf16[D, N], Y: f32[M, D]):
    for m in tiles(M):
        acc = zeros(f32[m, D])
        for n in tiles(N):
            s = X[:, m] @ A[:, n]
            acc += cast(s * 0.25, bf16) @ B[:, n]
        Y[m, :] = acc
"""
OPERAND = """
@kernel
def made(A: bf16[N, L], X: bf16[M], Y: f32[N, M]):
    for m, n in tiles(M, N):
        acc = full(f32[n, m], 0.0)
        for l in tiles(L, by=16):
            acc += A[n, l] @ (full(bf16[m, l], 0.0) + abs(X[m]))
        Y[n, m] = acc
"""
TEST_IN_FRONT = """
@kernel
def made(X: bf16[M, K], W: bf16[N, K], Z: f32[M, N], Y: f32[M, N], alpha: f32):
    for m, n in tiles(M, N):
        if alpha > 0.5:
            Z[m, n] = 0.0
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += X[m, k] @ W[n, k]
        Y[m, n] = acc
"""
OWN_LOOP_IN_FRONT = """
@kernel
def made(X: bf16[M, K], W: bf16[N, K], A: bf16[M, D], B: bf16[D, N], Y: f32[M, N], Z: f32[E]):
    for m, n in tiles(M, N):
        s = zeros(f32[m, n])
        t = zeros(f32[m, n])
        for e in each(E):
            s += A[m, :] @ (B[:, n] + 1.0)
        for k in tiles(K):
            t += X[m, k] @ W[n, k]
        Y[m, n] = s + t
"""
PART_OF_ITS_OWN = """
@kernel
def made(X: bf16[M, K], W: bf16[N, K], Y: f32[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(end(m), 0, of=K):
            acc += X[m, k] @ W[n, k]
        Y[m, n] = acc
"""
TAKEN_WHOLE = """
@kernel
def made(X: f16[M, D], A: f32[M, K], Q: f16[D, M], R: f16[N, D], Z: f16[M, D], B: f16[D, N],
         C: f16[D, N], Y: f32[M, D]):
    for m in tiles(M):
        total = full(f32[m], 0.0)
        for k in tiles(K):
            total += sum(A[m, k] / cast(min(X[m, :], over=D), f32), over=k)
        acc = zeros(f32[m, D])
        for n in tiles(N):
            s = Q[:, m] @ R[n, :]
            z = Z[m, :] % 3.0
            z = z * cast(total, f16)
            t = z @ B[:, n]
            acc += cast(s * t * 0.25, f16) @ C[:, n]
        Y[m, :] = acc
"""
PART_FROM_AN_ITEM = """
@kernel
def made(X: f32[B, N], Y: f32[B, N], Z: f32[B]):
    for b in each(B):
        acc = 0.0
        for n in tiles(b, N, of=N):
            acc += sum(X[b, n], over=n)
            Y[b, n] = X[b, n]
        Z[b] = acc
"""
BOOLS_OF_SHARED_ROWS = """
@kernel
def made(X: bool[D], Z: i32[M, D], Y: i32[M, D]):
    for m in tiles(M):
        Y[m, :] = where(X[:], index(m), 3) & sum(Z[m, :], over=D)
"""
PIECES_ACROSS_PANELS = matmul_text(
    "made(A: bf16[M, K], X: f32[N, K], Y: f32[M, N])",
    "A[m, k] @ cast(X[n, k], bf16)",
    "Y[m, n] = acc",
)
TWO_HEIGHTS = """
@kernel
def made(X: bf16[M, N], W: bf16[K, N], V: bf16[L, N], Y: f32[M, K], Z: f32[M, L]):
    for m in tiles(M):
        for k in tiles(K, by=128):
            acc = full(f32[k, m], 0.0)
            for n in tiles(N):
                acc += W[k, n] @ X[m, n]
            Y[m, k] = acc
        for l in tiles(L, by=64):
            acc = full(f32[l, m], 0.0)
            for n in tiles(N):
                acc += V[l, n] @ X[m, n]
            Z[m, l] = acc
"""
UNDER = {
    "pieces_across_panels": (PIECES_ACROSS_PANELS, Schedule(consumers=1, tile=dict(k=48))),
    "bools_kept_beside_shared_rows": (
        BOOLS_OF_SHARED_ROWS,
        Schedule(tile=dict(m=192), consumers=3),
    ),
    "test_in_front_of_a_turn": (TEST_IN_FRONT, Schedule(mode="pingpong", stages=4)),
    "own_loop_in_front_of_others": (OWN_LOOP_IN_FRONT, Schedule(mode="pingpong", stages=4)),
    "part_of_its_own_in_each_cta": (PART_OF_ITS_OWN, Schedule(cluster=dict(m=4))),
    "whole_dimension_in_slices": (
        PARTLY,
        Schedule(scheduler="split_k", splits=2, reduction="parallel"),
    ),
    "whole_dimension_in_a_cluster": (PARTLY, Schedule(tile=dict(n=16), cluster=dict(n=2))),
    "part_from_an_item_on": (PART_FROM_AN_ITEM, Schedule(tile=dict(n=64), scheduler="grid")),
    "row_that_an_earlier_loop_takes_whole": (TAKEN_WHOLE, Schedule(arch="sm_100a")),
    "accumulators_of_64_and_128_rows": (TWO_HEIGHTS, Schedule(arch="sm_100a")),
    "operand_of_what_does_not_change": (OPERAND, Schedule(tile=dict(m=192, n=48), consumers=3)),
}
REFUSED = {
    "ends_that_are_alike": (
        """
@kernel
def made(Y: bf16[B, MB], Z: f32[M]):
    for b in each(B):
        for m in tiles(M, by=16):
            Y[b, (end(m) - 1) // 64] = 0.5
""",
        "tiles of `…` may store to the same elements",
    ),
    "ends_beyond": (
        """
@kernel
def made(Y: bf16[B, MB], Z: f32[M]):
    for b in each(B):
        for m in tiles(M, by=64):
            if b > 0:
                Y[b, end(m) // 64] = 0.5
""",
        "tiles of `…` may store to the same elements",
    ),
    "scatter_of_three_axes": (
        """
@kernel
def made(perm: i32[M], Y: f32[T, N, L]):
    for m, n in tiles(M, N):
        for l in tiles(L):
            Y[perm[m], n, l] = 1.0
""",
        "a tile of # axes",
    ),
}


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", RIGHT)
@pytest.mark.parametrize("seed", [0, 1, 8])
def test_right(name: str, seed: int) -> None:
    outcomes = attempts(RIGHT[name], seed, schedules=2)
    assert outcomes[0].kind == "ok" and not outcomes[-1].failed, outcomes


@pytest.mark.sampled
@pytest.mark.parametrize("name", UNDER)
def test_under_a_schedule(name: str) -> None:
    text, schedule = UNDER[name]
    assert [o.kind for o in attempts(text, 0, ptx=True, given=(schedule,))] == ["ok"]


def test_nan_has_no_sign() -> None:
    """Elements that two tiles store alike, and bits that a kernel asks for."""
    text = matmul_text(
        "made(X: bf16[M, K], W: bf16[N, K], Y: bf16[M, N], Z: i32[M, N])",
        "X[m, k] @ W[n, k]",
        "Y[m, n] = acc",
        "Z[m, n] = bitcast(log2(acc), i32)",
    )
    outcomes = [o for seed in (3, 11) for o in attempts(text, seed, schedules=1)]
    assert {o.kind for o in outcomes} == {"ok"}, outcomes


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    text, reason = REFUSED[name]
    (outcome,) = attempts(text, 0)
    assert outcome.kind == "refused" and reason in outcome.reason, outcome


def test_cluster_stores_in_place_of_what_all_its_ctas_load() -> None:
    text = """
@kernel
def made(X: f32[N], Y: f32[B]):
    for b in each(B):
        most = -inf
        for n in tiles(N):
            most = max(most, max(X[n], over=n))
        Y[b] = Y[b] + most
"""
    (outcome,) = attempts(text, 0, given=(Schedule(cluster={"n": 2}),))
    assert "one of them stores without" in outcome.reason, outcome


def test_empty_dimension_of_a_triangular_loop_compiles() -> None:
    text = """
@kernel
def made(X: f8e5m2[N, L], Y: i32[M, N]):
    for m in tiles(M):
        for n in tiles(N):
            total = 0.0
            for l in tiles(0, end(m), of=L):
                total = total
            Y[m, n] = total
"""
    assert vars(wsdsl.parse(text))["made"].compile(M=0, N=2, L=72).ptx
