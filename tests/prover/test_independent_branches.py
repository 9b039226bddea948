"""Branches that do not depend on each other add to what is explored; they do not multiply it."""

from textwrap import indent

import pytest

from wsdsl import Schedule, parse
from wsdsl.prover.machine.explore import explore
from wsdsl.schedule import Arch

BEGIN = """
@kernel
def f(A: bf16[M, K], B: bf16[N, K], F: i32[P], g: i32, C: f32[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
"""
BRANCHES = {
    "if": "if F[{i}] > 0:\n for k in tiles(K):\n  acc += A[m, k] @ B[n, k]\n",
    "argument": "if g > {i}:\n for k in tiles(K):\n  acc += A[m, k] @ B[n, k]\n",
    "loop": "for k in tiles(F[{i}], F[{i} + 1], of=K):\n acc += A[m, k] @ B[n, k]\n",
    "if in a loop": "if F[{i}] > 0:\n acc += A[m, k] @ B[n, k]\n",
}
NUM = 8


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
@pytest.mark.parametrize("branch", BRANCHES)
def test_states_are_few(branch: str, arch: Arch) -> None:
    body = "".join(BRANCHES[branch].format(i=i) for i in range(NUM))
    if branch == "if in a loop":
        body = "for k in tiles(K):\n" + indent(body, " ")
    kernel = parse(f"{BEGIN}{indent(body, ' ' * 8)}        C[m, n] = acc\n").f
    assert explore(kernel._compile(Schedule(arch=arch), {}, ()).scheduled).states < 40 * NUM


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
def test_what_is_kept_around_a_loop_is_known_to_be_there(arch: Arch) -> None:
    part = "for p in each(P):\n acc += A[m, :] @ B[n, :]\n" + BRANCHES["loop"]
    body = indent("".join(part.format(i=i) for i in range(NUM)), " " * 8)
    kernel = parse(f"{BEGIN}{body}        C[m, n] = acc\n").f
    assert explore(kernel._compile(Schedule(arch=arch), {"K": 64}, ()).scheduled).states < 128 * NUM


def test_sums_of_their_own_are_settled_behind_each_loop() -> None:
    """On Blackwell they stay in tensor memory until all are read, so that ways multiply there."""
    part = "s{i} = zeros(f32[m, n])\nfor k in tiles(0, F[{i}], of=K):\n s{i} += A[m, k] @ B[n, k]\n"
    body = "".join(part.format(i=i) for i in range(NUM))
    body += f"C[m, n] = {' + '.join(f's{i}' for i in range(NUM))}\n"
    kernel = parse(BEGIN.replace("        acc = zeros(f32[m, n])\n", indent(body, " " * 8))).f
    schedule = Schedule(tile=dict(m=64, n=16, k=64), mma_m="m")
    assert explore(kernel._compile(schedule, {}, ()).scheduled).states < 40 * NUM


def test_trips_of_a_loop_are_forgotten_before_another_nest() -> None:
    text = """
@kernel
def f(A: bf16[M, K], B: bf16[N, K], C: f32[M], D: f32[M, N]):
    for m in tiles(M):
        total, most = zeros(f32[m]), zeros(f32[m])
        for n in tiles(N):
            s = zeros(f32[m, n])
            for k in tiles(K):
                s += A[m, k] @ B[n, k]
            total += sum(s, over=n)
        for n in tiles(N):
            acc = zeros(f32[m, n])
            for k in tiles(K):
                acc += A[m, k] @ (B[n, k] * 2.0)
                most = max(most, max(zeros(f32[m, k]) + total, over=k))
            D[m, n] = acc
        C[m] = most
"""
    schedule = Schedule(arch="sm_100a", scheduler="grid")
    assert explore(parse(text).f._compile(schedule, {}, ()).scheduled).states < 80
