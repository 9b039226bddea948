"""Tiles whose contraction is cut: right, the same every time, beside other work and in graphs."""

import math
import os
import time
from typing import Any

import pytest

import wsdsl
from tests.case_table import matmul_text
from tests.gpu.arrays import usual_seconds
from tests.kernels import CASES
from wsdsl import Schedule
from wsdsl.diagnostics import LaunchError

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

SOURCE = matmul_text(
    "linear(A: bf16[M, K], B: bf16[N, K], bias: f32[N], C: bf16[M, N])",
    "A[m, k] @ B[n, k]",
    "C[m, n] = max(acc + bias[n], 0.0)",
)
SPLITS = (2, 3, 7, 16)
STREAM_SECONDS = float(os.environ.get("WSDSL_STREAM_SECONDS", "2"))
"""How long streams run beside each other; more finds more."""
SCHEDULES = {f"split_k {s}": Schedule(scheduler="split_k", splits=s) for s in SPLITS}
SCHEDULES["stream_k"] = Schedule(scheduler="stream_k")
SCHEDULES["stream_k pingpong"] = Schedule(scheduler="stream_k", mode="pingpong")
SCHEDULES["split_k cluster"] = Schedule(scheduler="split_k", splits=3, cluster=dict(m=2))
SCHEDULES["stream_k cluster"] = Schedule(scheduler="stream_k", cluster=dict(m=2))
SCHEDULES["sums in pairs"] = Schedule(cluster=dict(k=2))
SCHEDULES["sums in eights"] = Schedule(tile=dict(m=64, n=64), consumers=1, cluster=dict(k=8))
SCHEDULES["sums by four"] = Schedule(tile=dict(m=64, n=128), consumers=1, cluster=dict(m=2, k=2))
FEW = ("split_k 3", "stream_k", "sums in pairs")
SIZES = (
    (131, 257, 4099 * 8),
    (333, 259, 1031),
    (129, 1032, 4104),
    (997, 1000, 1032),
    (1301, 1999, 1016),
    (2305, 3080, 520),
    (4099, 4104, 264),
)
TALL = (1301, 1032, 2056)
"""More than one round of pieces for each CTA."""
linear: Any = wsdsl.parse(SOURCE).linear


class Problem:
    """Integers, so that the order of the sums makes no difference to what is right."""

    def __init__(self, m: int, n: int, k: int, seed: int = 0) -> None:
        made = torch.Generator("cuda").manual_seed(seed)

        def whole(*shape: int) -> Any:
            return torch.randint(-2, 3, shape, generator=made, device="cuda")

        self.a, self.b = whole(m, k).bfloat16(), whole(n, k).bfloat16()
        self.bias, self.c = whole(n).float(), torch.empty(m, n, device="cuda").bfloat16()
        exact = self.a.double() @ self.b.double().t() + self.bias.double()
        self.want = exact.clamp(min=0).bfloat16()

    @property
    def args(self) -> tuple[Any, ...]:
        return self.a, self.b, self.bias, self.c

    @property
    def right(self) -> bool:
        return bool(torch.equal(self.c, self.want))


class Noise(Problem):
    """Normal numbers, whose sums differ with their order."""

    def __init__(self, m: int, n: int, k: int) -> None:
        super().__init__(m, n, k)
        for held in (self.a, self.b, self.bias):
            held.copy_(torch.randn_like(held))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", SCHEDULES)
def test_right(name: str, size: tuple[int, int, int]) -> None:
    problem = Problem(*size)
    for _ in range(2):
        problem.c.fill_(float("nan"))
        linear(*problem.args, schedule=SCHEDULES[name])
        assert problem.right


@pytest.mark.parametrize("k", [0, 1, 8, 63, 64, 65, 128])
@pytest.mark.parametrize("name", SCHEDULES)
def test_short_contractions(name: str, k: int) -> None:
    for m, n in ((1, 1), (200, 136), (1301, 1999)):
        problem = Problem(m, n, k)
        linear(*problem.args, schedule=SCHEDULES[name])
        assert problem.right, (m, n)


@pytest.mark.parametrize("name", SCHEDULES)
def test_nothing_to_write(name: str) -> None:
    linear(*Problem(0, 128, 640).args, schedule=SCHEDULES[name])
    torch.cuda.synchronize()


@pytest.mark.parametrize("name", FEW)
@pytest.mark.parametrize("case", ["epilogue", "two_products", "mn_major"])
def test_other_kernels(case: str, name: str) -> None:
    from tests.gpu.test_cases import run

    for scale in (1, 7):
        sizes = {d: scale * s + 8 * (scale > 1) for d, s in CASES[case].sizes.items()}
        run(CASES[case], 0, SCHEDULES[name], **sizes)


@pytest.mark.parametrize("name", SCHEDULES)
def test_problems_of_different_sizes_in_turn(name: str) -> None:
    """They share memory; each leaves its flags as it found them."""
    problems = [Problem(*size) for size in SIZES]
    calls = [linear.prepare(*p.args, schedule=SCHEDULES[name]) for p in problems]
    for _ in range(10):
        for call in calls:
            call()
    for call in reversed(calls):
        call()
    torch.cuda.synchronize()
    assert all(p.right for p in problems)


@pytest.mark.parametrize("size", [SIZES[0], TALL])
@pytest.mark.parametrize("name", SCHEDULES)
def test_the_same_bits_every_time(name: str, size: tuple[int, int, int]) -> None:
    """With products on another stream beside, which take SMs away."""
    problem = Noise(*size)
    call = linear.prepare(*problem.args, schedule=SCHEDULES[name])
    call()
    want = problem.c.clone()
    beside = torch.cuda.Stream()
    x = torch.randn(2048, 2048, device="cuda").bfloat16()
    same = []
    for i in range(50):
        with torch.cuda.stream(beside):
            for _ in range(i % 4):
                x @ x
        problem.c.zero_()
        call()
        same.append(torch.equal(problem.c, want))
    torch.cuda.synchronize()
    assert all(same)


def within(seconds: float, event: Any) -> bool:
    """A hanging kernel must fail the test, not the run."""
    end = time.monotonic() + seconds
    while not event.query():
        if time.monotonic() > end:
            return False
        time.sleep(0.001)
    return True


@pytest.mark.parametrize("name", SCHEDULES)
def test_four_streams_at_once(name: str) -> None:
    """Each keeps SMs that the others' CTAs would need."""
    streams = [torch.cuda.Stream() for _ in range(4)]
    sizes = (TALL, SIZES[0], SIZES[2], (2305, 3080, 520))
    problems = [Problem(*size, seed=i) for i, size in enumerate(sizes)]
    torch.cuda.synchronize()
    calls = [
        linear.prepare(*p.args, schedule=SCHEDULES[name], stream=s)
        for p, s in zip(problems, streams, strict=True)
    ]
    end = time.monotonic() + STREAM_SECONDS
    while time.monotonic() < end:
        for _ in range(20):
            for call in calls:
                call()
        for stream in streams:
            with torch.cuda.stream(stream):
                done = torch.cuda.Event()
                done.record()
            assert within(20, done), "the streams wait for each other"
    torch.cuda.synchronize()
    assert all(p.right for p in problems)


@pytest.mark.parametrize("name", SCHEDULES)
def test_the_same_call_on_several_streams(name: str) -> None:
    problem = Problem(*TALL)
    outputs = [torch.empty_like(problem.c) for _ in range(4)]
    streams = [torch.cuda.Stream() for _ in outputs]
    torch.cuda.synchronize()
    for _ in range(20):
        for stream, out in zip(streams, outputs, strict=True):
            with torch.cuda.stream(stream):
                linear(*problem.args[:3], out, schedule=SCHEDULES[name])
    torch.cuda.synchronize()
    assert all(torch.equal(out, problem.want) for out in outputs)


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_graph_beside_launches_on_its_stream(name: str) -> None:
    inside, outside = Problem(*TALL), Problem(*TALL, seed=1)
    stream = torch.cuda.Stream()
    schedule = SCHEDULES[name]
    captured = linear.prepare(*inside.args, schedule=schedule, stream=stream)
    eager = linear.prepare(*outside.args, schedule=schedule, stream=stream)
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream):
        captured()
        captured()
    inside.c.zero_()
    # The replays run on a stream of their own, at the same time as the launches.
    for _ in range(100):
        graph.replay()
        eager()
    torch.cuda.synchronize()
    assert inside.right
    assert outside.right


@pytest.mark.parametrize("name", FEW)
def test_memory_comes_and_goes_during_a_capture(name: str) -> None:
    """A launch on a stream that is not captured needs more than it has: the old is freed."""
    schedule = SCHEDULES[name]
    small, large, inside = Problem(129, 1032, 4104), Problem(*TALL), Problem(*TALL, seed=1)
    linear(*large.args, schedule=schedule)
    side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    linear(*small.args, schedule=schedule, stream=side)
    torch.cuda.synchronize()
    large.c.zero_()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        linear(*inside.args, schedule=schedule)
        linear(*large.args, schedule=schedule, stream=side)
        linear(*inside.args, schedule=schedule)
    graph.replay()
    torch.cuda.synchronize()
    assert large.right
    assert inside.right


def test_too_little_memory() -> None:
    # The sums of a result that takes half of the memory need all of it, whoever else is there.
    edge = math.isqrt(torch.cuda.mem_get_info()[1] // 4)
    edge -= edge % 8
    if torch.cuda.mem_get_info()[0] < 3 * edge * edge:
        pytest.skip("half of the memory and some more is not free")
    made = dict(dtype=torch.bfloat16, device="cuda")
    a, c = torch.zeros(edge, 128, **made), torch.empty(edge, edge, **made)
    with pytest.raises(LaunchError, match="memory for workspace partials"):
        linear(a, a, torch.zeros(edge, device="cuda"), c, schedule=SCHEDULES["split_k 2"])
    del a, c
    torch.cuda.empty_cache()
    problem = Problem(512, 256, 640)
    linear(*problem.args, schedule=SCHEDULES["split_k 2"])
    assert problem.right


def test_a_warm_call_is_quick() -> None:
    problem = Problem(200, 136, 264)
    call = linear.prepare(*problem.args, schedule=SCHEDULES["stream_k"])
    assert usual_seconds(call) < 25e-6
