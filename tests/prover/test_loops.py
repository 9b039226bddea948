"""Loops of which one partition has more than another, or that only one has to do with."""

import pytest

from tests.simulator.kernels import sample, sample_text
from wsdsl import Schedule, parse
from wsdsl.ir.parser import parse_kernel
from wsdsl.prover.machine.explore import Refuted, explore
from wsdsl.prover.prove import prove

TWO_LOOPS = """
@kernel
def f(A: bf16[M, K], B: bf16[N, K], X: bf16[M, N], Y: bf16[M, N]):
    for m in tiles(M):
        s = zeros(f32[m])
        for n in tiles(N):
            acc = zeros(f32[m, n])
            for k in tiles(K):
                acc += A[m, k] @ B[n, k]
            s += sum(acc * acc, over=n)
        for n in tiles(N):
            Y[m, n] = cast(X[m, n], f32) / s
"""
STORES_IN_A_LOOP = """
@kernel
def f(A: bf16[M, K], B: bf16[N, K], w: f32[E], C: bf16[E, M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += A[m, k] @ B[n, k]
        for e in each(E):
            C[e, m, n] {sign} acc * w[e]
"""
BOUNDS_IN_A_LOOP = """
@kernel
def f(A: bf16[M, K], B: bf16[N, K], G: i32[P, 2], C: f32[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for p in each(P):
            for k in tiles(G[{row}, 0], G[{row}, 1], of=K):
                acc += A[m, k] @ B[n, k]
        C[m, n] = acc
"""


@pytest.mark.sampled(2)
@pytest.mark.parametrize("schedule", [None, Schedule(stages=2), Schedule(scheduler="grid")])
def test_a_second_loop_over_the_same_dimension(schedule: Schedule | None) -> None:
    parse(TWO_LOOPS).f.compile(schedule, M=70, N=88, K=40).prove()


@pytest.mark.parametrize("row", ["p", "(p + 3) % 4"])
def test_bounds_that_are_loaded_an_iteration_ahead(row: str) -> None:
    """On sm_100a: whether a product ran is asked for where its sums are read, elsewhere."""
    kernel = parse(BOUNDS_IN_A_LOOP.format(row=row)).f
    compiled = kernel.compile(arch="sm_100a", M=64, N=32, K=128, P=4)
    assert "in_order=True" in str(compiled.scheduled) and compiled.prove().proved


@pytest.mark.sampled(2)
@pytest.mark.parametrize("consumers", [2, 3])
@pytest.mark.parametrize("sign", ["=", "+="])
def test_stores_in_a_loop_beside_another_s_products(consumers: int, sign: str) -> None:
    schedule = Schedule(tile=dict(m=64, n=40), mode="pingpong", consumers=consumers)
    parse(STORES_IN_A_LOOP.format(sign=sign)).f.compile(schedule, M=70, N=88, K=40, E=2).prove()


# Of these loops nothing is left but what they carry: they go from their end straight to it.
EMPTY = """\
{pad}%c_one{x}: i32 = constant(value=1)
{pad}%trips{x}: i32 = constant(value={trips})
{pad}%lo{x}: i32, %hi{x}: i32 = for_range(index=%i{x}: i32, start=%zero, stop=%trips{x}, \
step=%c_one{x}, init=({init}), args=(%a{x}: i32, %b{x}: i32)) {{
{pad}  yield(values=(%b{x}, %a{x}))
{pad}}}
"""


def with_empty_loops(trips: int) -> str:
    """The sample, whose bounds of the loop over K are exchanged so often before they are used."""
    made: list[str] = []
    for line in sample_text("gemm").splitlines(keepends=True):
        if "stop=%k_size" in line:
            x = f"_{len(made)}"
            pad = line[: len(line) - len(line.lstrip())]
            init = "%k_size, %zero" if trips % 2 else "%zero, %k_size"
            made.append(EMPTY.format(pad=pad, x=x, trips=trips, init=init))
            line = line.replace("start=%zero", f"start=%lo{x}").replace("%k_size", f"%hi{x}")
        made.append(line)
    return "".join(made)


CHAINED_AND_NOT = """
@kernel
def f(A: bf16[K, M], B: bf16[K, N], V: bf16[N, D], Y: f32[M, D], P: bf16[M, D], Q: bf16[K, D],
      Z: f32[M, K]):
    for m in tiles(M):
        total = zeros(f32[m, D])
        for n in tiles(N):
            s = zeros(f32[m, n])
            for k in tiles(K):
                s += A[k, m] @ B[k, n]
            total += cast(s, bf16) @ V[n, :]
        Y[m, :] = total
        for k in tiles(K):
            Z[m, k] = P[m, :] @ Q[k, :]
"""


def test_equal_loops_in_other_loops() -> None:
    """A role with the second loop over K alone cannot come to an iteration of the first."""
    kernel = parse(CHAINED_AND_NOT).f._compile(Schedule(arch="sm_100a"), {"D": 16}, ())
    assert explore(kernel.scheduled).states < 100


@pytest.mark.sampled(4)
@pytest.mark.parametrize("trips", [0, 3, 4, 7])
def test_empty_loops_are_run_to_their_end(trips: int) -> None:
    text = with_empty_loops(trips)
    # The rules of alignment do not see where the loop over K begins.
    assert explore(parse_kernel(text)).states == explore(sample("gemm")).states
    release = "mbarrier_arrive(barriers=%empty, state=%before, pred=%more)"
    assert release in text
    for wrong in (
        text.replace(release, "sync_warp()"),
        text.replace("state=%f1, num=4", "state=%f1, num=3"),
        text.replace("        mbarrier_wait(barriers=%full, state=%s1)\n", ""),
    ):
        with pytest.raises(Refuted):
            explore(parse_kernel(wrong))


def parts_in_a_row(count: int) -> str:
    """Sums over parts of a dimension, one behind the other."""
    lines = ["@kernel", "def f(X: bf16[M, K], W: bf16[N, K], Y: f32[M, N]):"]
    lines.append("    for m, n in tiles(M, N):")
    for i in range(count):
        lines += [
            f"        s{i} = zeros(f32[m, n])",
            f"        for k{i} in tiles(end(m), 0, of=K):",
            f"            s{i} += X[m, k{i}] @ W[n, k{i}]",
        ]
    lines.append("        Y[m, n] = " + " + ".join(f"s{i}" for i in range(count)))
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(("mode", "states"), [("cooperative", 100), ("pingpong", 220)])
def test_several_parts_in_a_row(mode: str, states: int) -> None:
    """What was asked in a loop's iterations is forgotten behind it."""
    schedule = Schedule(tile=dict(m=128, n=16), stages=3, mode=mode, consumers=2)
    kernel = parse(parts_in_a_row(3)).f._compile(schedule, {}, ())
    assert prove(kernel.scheduled).states <= states
