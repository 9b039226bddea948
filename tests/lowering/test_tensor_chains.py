"""Products on tensor memory whose sums threads take in a loop: what stays there, what is handed on,
and what comes back to be multiplied.
"""

from typing import Any

import numpy as np
import pytest

from tests.case_data import check, expected, inputs, simulated
from tests.case_table import Case, case
from tests.kernels import CASES
from tests.tensor_memory import columns_of
from wsdsl import Schedule, ScheduleError
from wsdsl.ir.types import Columns
from wsdsl.lowering.pipeline import lower
from wsdsl.schedule import Arch, Place

OWN: dict[str, Case] = {}


@case(OWN, M=72, N=136, K=200)("""
def rescaled(A: bf16[M, K], B: bf16[N, K], s: f32[M], C: f32[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K, by=64):
            acc = acc * s[m] + A[m, k] @ B[n, k]
        C[m, n] = acc
""")
def rescaled(A: Any, B: Any, s: Any) -> Any:
    acc = 0.0
    for k in range(0, A.shape[1], 64):
        acc = acc * s[:, None] + A[:, k : k + 64] @ B[:, k : k + 64].T
    return {"C": acc}


@case(OWN, G=5, M=130, N=72, K=136)("""
def in_groups(A: bf16[G, M, K], B: bf16[G, N, K], used: i32[G], C: f32[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for g in each(G):
            if used[g] > 2:
                for k in tiles(K):
                    acc += A[g, m, k] @ B[g, n, k]
        C[m, n] = acc
""")
def in_groups(A: Any, B: Any, used: Any) -> Any:
    return {"C": np.einsum("gmk,gnk->mn", A[used > 2], B[used > 2])}


@case(OWN, M=72, N=136, K=200)("""
def read_twice(A: bf16[M, K], B: bf16[N, K], D: f32[M, N], C: f32[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += A[m, k] @ B[n, k]
        first = acc
        for k in tiles(K):
            acc += A[m, k] @ B[n, k]
        C[m, n] = acc
        D[m, n] = first
""")
def read_twice(A: Any, B: Any) -> Any:
    return {"C": 2 * A @ B.T, "D": A @ B.T}


@case(OWN, M=72, N=136, D=64, E=64)("""
def three_links(A: bf16[M, D], B: bf16[N, D], V: bf16[N, D], W: bf16[D, E], C: bf16[M, E]):
    for m in tiles(M):
        acc = zeros(f32[m, E])
        for n in tiles(N):
            s = A[m, :] @ B[n, :]
            t = cast(relu(s), bf16) @ V[n, :]
            acc += cast(t, bf16) @ W[:, :]
        C[m, :] = acc
""")
def three_links(A: Any, B: Any, V: Any, W: Any) -> Any:
    s = A @ B.T
    whole = [np.maximum(s[:, n : n + 128], 0) @ V[n : n + 128] for n in (0, 128)]
    return {"C": sum(whole) @ W}


@case(OWN, M=72, N=136, D=64)("""
def latent(Q: bf16[M, D], K: bf16[N, D], C: bf16[M, D]):
    for m in tiles(M):
        acc = zeros(f32[m, D])
        for n in tiles(N):
            k = K[n, :]
            s = Q[m, :] @ k
            acc += cast(relu(s), bf16) @ k
        C[m, :] = acc
""")
def latent(Q: Any, K: Any) -> Any:
    return {"C": np.maximum(Q @ K.T, 0) @ K}


@case(OWN, M=72, N=136, D=64)("""
def two_scaled(
    A: bf16[M, D], B: bf16[N, D], V: bf16[N, D], s: f32[M], C: bf16[M, D], E: bf16[M, D]
):
    for m in tiles(M):
        x, y = zeros(f32[m, D]), zeros(f32[m, D])
        for n in tiles(N, by=64):
            p = cast(relu(A[m, :] @ B[n, :]), bf16)
            x = x * s[m] + p @ V[n, :]
            y = y * 0.5 + p @ B[n, :]
        C[m, :] = x
        E[m, :] = y
""")
def two_scaled(A: Any, B: Any, V: Any, s: Any) -> Any:
    x, y = 0.0, 0.0
    for n in range(0, 136, 64):
        p = np.maximum(A @ B[n : n + 64].T, 0)
        x, y = x * s[:, None] + p @ V[n : n + 64], y * 0.5 + p @ B[n : n + 64]
    return {"C": x, "E": y}


@case(OWN, M=72, N=136, D=64)("""
def moved(A: bf16[M, D], B: bf16[N, D], V: bf16[N, D], s: f32[M], C: bf16[M, D]):
    for m in tiles(M):
        acc = zeros(f32[m, D])
        for n in tiles(N, by=64):
            p = cast(relu(A[m, :] @ B[n, :]), bf16)
            acc = relu(acc * s[m] - 1.0) + p @ V[n, :]
        C[m, :] = acc
""")
def moved(A: Any, B: Any, V: Any, s: Any) -> Any:
    acc = 0.0
    for n in range(0, 136, 64):
        p = np.maximum(A @ B[n : n + 64].T, 0)
        acc = np.maximum(acc * s[:, None] - 1.0, 0) + p @ V[n : n + 64]
    return {"C": acc}


def case_of(name: str) -> Case:
    return OWN.get(name) or CASES[name]


def right(name: str, arch: Arch, **asked: Any) -> dict[str, Any]:
    case = case_of(name)
    sizes = {d: case.sizes[d] for d in case.kernel.dims if d != "NB"}
    schedule = Schedule(arch=arch, **asked)
    assert case.kernel.compile(schedule=schedule, **sizes).certificate is not None
    return simulated(case, schedule)


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    "name", [*OWN, "block_scaled", "each_inside", "nested", "whole", "held_operand", "attention"]
)
def test_values_are_right_and_the_kernel_is_proved(name: str) -> None:
    right(name, "sm_100a")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["attention", "block_scaled", "whole"])
def test_tiles_of_128_rows(name: str) -> None:
    right(name, "sm_100a", tile=dict(m=128))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("name", "outputs"),
    [("nested", ("C", "top")), ("widened", ("Y",)), ("each_inside", ("C",)), ("in_groups", "")],
)
def test_both_architectures_give_the_same_values(name: str, outputs: tuple[str, ...]) -> None:
    """To the bit, where sums are made of the same parts in the same order."""
    one, other = (right(name, arch) for arch in ("sm_90a", "sm_100a"))
    for output in outputs:
        assert one[output].tobytes() == other[output].tobytes(), output


@pytest.mark.parametrize(("n", "stages", "rows"), [(0, 2, 128), (64, 1, 256), (300, 2, 128)])
def test_any_number_of_iterations(n: int, stages: int, rows: int) -> None:
    case = CASES["attention"]
    arrays = inputs(case, N=n)
    asked = Schedule(arch="sm_100a", tile=dict(m=rows, n=64), stages=stages)
    case.kernel.simulate(*arrays.values(), schedule=asked, seed=n)
    if n:
        check(case, arrays, expected(case, arrays))
    else:
        assert np.isnan(arrays["O"].astype(np.float32)).all()


def test_slots_of_sums_share_what_columns_there_are() -> None:
    case = CASES["attention"]
    sizes = (("D", 128), ("H", 2), ("M", 4096), ("N", 4096))
    for n, depths in ((64, (2, 2, 1)), (128, (2, 2, 1)), (256, (1, 1, 1))):
        asked = Schedule(arch="sm_100a", tile=dict(m=64, n=n), stages=1)
        kernel = lower(case.with_schedule(asked, sizes=sizes))
        found = columns_of(kernel)
        widths = dict(sums=n, operands=n // 2, sums_1=128)
        rings = zip(widths.items(), depths, strict=True)
        assert found == {name: Columns(width, num) for (name, width), num in rings}


def test_an_operand_lies_where_the_schedule_says() -> None:
    """The same values, to the bit; told where it lies."""
    found = list[bytes]()
    for place, told in (("tensor", "TMEM"), ("shared", "SMEM")):
        asked = dict[str, Any](tile=dict(m=128, n=64), stages=2, operand_transform=place)
        found.append(right("attention", "sm_100a", **asked)["O"].tobytes())
        plan = CASES["attention"].kernel.plan(Schedule(arch="sm_100a", **asked), D=64)
        assert f"compute -> mma; {told} bf16[m, n]" in str(plan)
    assert found[0] == found[1]


def test_two_warpgroups_compute_where_tiles_are_many() -> None:
    """Each has its rows; an operand there counts for more than a second slot of scores."""
    sizes = dict(D=128, H=16, M=4096, N=4096)
    compiled = CASES["attention"].kernel.compile(arch="sm_100a", **sizes)
    chosen = compiled.schedule
    assert (chosen.consumers, chosen.tile) == (2, dict(m=256, n=64))
    found = columns_of(compiled.scheduled)
    assert found == dict(sums=Columns(128, 1), sums_1=Columns(256, 1), operands=Columns(64, 2))
    assert compiled.certificate is not None
    few = CASES["attention"].kernel.schedule(Schedule(arch="sm_100a"), **sizes | dict(H=2))
    assert few.consumers == 1


@pytest.mark.parametrize("place", ["tensor", "shared"])
def test_two_warpgroups_of_a_chain(place: Place) -> None:
    right("attention", "sm_100a", tile=dict(m=256, n=64), consumers=2, operand_transform=place)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (dict(arch="sm_90a"), "needs a matmul in tensor memory"),
        (dict(tile=dict(m=64, n=256)), "640 columns of tensor memory"),
    ],
)
def test_an_operand_that_can_not_lie_in_tensor_memory_is_refused(
    asked: dict[str, Any], words: str
) -> None:
    schedule = Schedule(**dict(arch="sm_100a", operand_transform="tmem") | asked)
    with pytest.raises(ScheduleError, match=words):
        CASES["attention"].kernel.compile(schedule, D=256)
