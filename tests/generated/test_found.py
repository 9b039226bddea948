"""Programs that were once wrong, or no answer, each by a fault of its own."""

import pytest

from tests.generated.trial import attempts

RIGHT = {
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
    "each_and_tiles": """
@kernel
def made(X: f32[D], Y: f32[B], Z: f32[L, B]):
    for b in each(B):
        Y[b] = max(X[:], over=D)
        for l in tiles(L):
            Z[l, b] = 0.0
""",
}
REFUSED = {
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


@pytest.mark.parametrize("name", RIGHT)
@pytest.mark.parametrize("seed", range(2))
def test_right(name: str, seed: int) -> None:
    outcomes = attempts(RIGHT[name], seed, schedules=2)
    assert outcomes[0].kind == "ok" and not outcomes[-1].failed, outcomes


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    text, reason = REFUSED[name]
    (outcome,) = attempts(text, 0)
    assert outcome.kind == "refused" and reason in outcome.reason, outcome
