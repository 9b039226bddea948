"""Tiles that ptxas has too few registers for are chosen narrower, but not against the user."""

import dataclasses
import math

import pytest

import wsdsl
from tests.case_table import matmul_text
from tests.corpus.texts import SECTIONS
from tests.kernels import CASES
from tests.lowering.row_kernels import KERNELS
from wsdsl import Schedule
from wsdsl.artifact.cache import forget
from wsdsl.codegen.ptxas import find_ptxas
from wsdsl.codegen.ptxas_diagnostics import SpillError
from wsdsl.diagnostics import Finding
from wsdsl.dispatch.compiled import Compiled
from wsdsl.dispatch.variants import MOST_TRIES
from wsdsl.ir.op import Kernel
from wsdsl.lowering.cooperation import num_cooperating
from wsdsl.lowering.heuristics.register_room import narrower
from wsdsl.lowering.pipeline import schedule_with_fewer_sums

pytestmark = pytest.mark.skipif(find_ptxas() is None, reason="there is no ptxas")
HEAVY = matmul_text(
    "heavy(A: bf16[M, K], B: bf16[N, K], x: f32[N], y: f32[M], R: f32[N, M], C: f16[M, N])",
    "A[m, k] @ B[n, k]",
    "c = cast(C[m, n], f32)",
    "C[m, n] = acc * c + x[n] + R[n, m] * y[m] * c",
)
NESTED = """
@kernel
def nested(
    A: bf16[M, K], B: bf16[N, K], x: f32[N], R: f32[M, N], C: f32[N, M], D: bf16[M, N], top: f32[M]
):
    for m in tiles(M):
        t = full(f32[m], -inf)
        for n in tiles(N):
            acc = zeros(f32[m, n])
            for k in tiles(K):
                acc += A[m, k] @ B[n, k]
            y = acc + x[n] + R[m, n]
            C[n, m] = y
            D[m, n] = y
            t = max(t, max(y, over=n))
        top[m] = t
"""
SIZES = dict(M=4096, N=4096, K=4096)
WIDE = Schedule(tile=dict(m=128, n=256))


def test_the_compiler_chooses_again() -> None:
    kernel = wsdsl.parse(HEAVY).heavy
    with pytest.raises(SpillError, match="spill"):
        kernel.compile(WIDE, **SIZES)
    compiled = kernel.compile(Schedule(tile=dict(m=128)), **SIZES)
    assert compiled.schedule.tile["n"] < 256
    assert kernel.compile(Schedule(tile=dict(m=128)), **SIZES) is compiled
    assert compiled.schedule == kernel.schedule(Schedule(tile=dict(m=128)), **SIZES)
    explained = kernel.explain(Schedule(tile=dict(m=128)), **SIZES)
    assert repr(compiled.schedule) in explained and "spill" in explained


def test_columns_that_a_loop_walks() -> None:
    kernel, sizes = wsdsl.parse(NESTED).nested, dict(M=64, N=4480, K=64)
    with pytest.raises(SpillError, match="spill"):
        kernel.compile(Schedule(tile=dict(n=224)), **sizes)
    assert kernel.compile(**sizes).schedule.tile["n"] < 224


def test_columns_that_ride_wgmmas_m_stay_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """So what is made narrower is the rows' side, which is what lies along the registers."""
    tried: list[tuple[str | None, int]] = []

    def assembled(self: Compiled) -> None:
        tried.append((self.schedule.mma_m, (self.schedule.tile or {})["m"]))
        if tried[-1][1] > 32:
            raise SpillError([Finding("spills", None)])

    monkeypatch.setattr(Compiled, "artifact", property(assembled))
    wsdsl.parse(CASES["gemm"].text).gemm.compile(M=3072, N=512, K=5120)
    assert tried[0] == ("n", 96) and tried[-1] == ("n", 32)
    assert all(mma == "n" for mma, _ in tried)


def test_tries_are_bounded_and_a_default_is_not_blamed(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[Schedule] = []

    def assembled(self: Compiled) -> None:
        tried.append(self.schedule)
        raise SpillError([Finding("spills", None, "choose a smaller tile (Schedule.tile)")])

    monkeypatch.setattr(Compiled, "artifact", property(assembled))
    with pytest.raises(SpillError, match="no schedule that the compiler tried fits") as raised:
        wsdsl.parse(HEAVY).heavy.compile(**SIZES)
    assert "Schedule." not in str(raised.value)
    assert len(tried) <= MOST_TRIES + 1
    # 32 columns are not divided among three consumers: a user's own schedule has the first error.
    given = Schedule(consumers=3, consumer_split="n", tile=dict(m=256))
    with pytest.raises(SpillError, match=r"spills\n.*Schedule\.tile"):
        wsdsl.parse(HEAVY).heavy.compile(given, **SIZES)


def test_refusals_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """No loop walks D, so that only tiles of T can be narrower; other sizes find what is known."""
    text, runs = next(text for name, text, _ in SECTIONS if name == "decode/bf16"), list[str]()
    kernel, sizes = wsdsl.parse(text).attention, dict(B=16, H=8, S=8, D=128)

    def assemble(kernel: Kernel, ptx: str, *_: object, **__: object) -> None:
        runs.append(kernel.name)
        tile = (kernel.schedule or Schedule()).tile or {}
        if tile["t"] > 64:
            raise SpillError([Finding("spills", None)])

    monkeypatch.setattr("wsdsl.codegen.ptxas.assemble_checked", assemble)
    forget()
    compiled = kernel.compile(**sizes, T=8192)
    assert compiled.schedule.tile == dict(q=64, t=64) and len(runs) == 2
    assert "of 2 schedules that were tried, Schedule(" in kernel.explain(**sizes, T=8192)
    again = wsdsl.parse(text).attention
    assert again.compile(**sizes, T=4096).schedule.tile == dict(q=64, t=64) and len(runs) == 2
    # With another order of tiles the code differs, and not its registers.
    assert (
        again.compile(**sizes | dict(B=48), T=8192).schedule.launch_pdl is None and len(runs) == 3
    )
    forget()


def test_each_is_narrower_than_the_one_before() -> None:
    compiled = wsdsl.parse(HEAVY).heavy._compile(WIDE, SIZES, ())
    source = compiled.source
    widths = [dict(s.tile or {}) for s in narrower(source, compiled.partitioned, None)]
    assert widths == [dict(n=192), dict(n=128), dict(n=64), dict(n=32)]
    assert list(narrower(source, compiled.partitioned, WIDE)) == []


@pytest.mark.parametrize(("spilled", "share"), [(8, 0.92), (400, 0.75), (2644, 0.5)])
def test_the_more_spills_the_fewer_sums_are_tried(spilled: int, share: float) -> None:
    kernel, given = wsdsl.parse(HEAVY).heavy, Schedule(tile=dict(n=128))
    source, chosen = (
        dataclasses.replace(kernel.tile_ir, schedule=given),
        kernel.schedule(given, **SIZES),
    )
    other = schedule_with_fewer_sums(source, chosen, spilled, SIZES)
    assert other and other.tile and other.tile["n"] == 128
    sums = [math.prod(s.tile[v] for v in "mn") // num_cooperating(s) for s in (chosen, other)]
    assert sums[1] <= share * sums[0]


def test_without_sums_there_are_none_with_fewer() -> None:
    text = """
@kernel
def squares(A: f32[M, N], B: f32[M, N]):
    for m, n in tiles(M, N):
        B[m, n] = A[m, n] * A[m, n]
"""
    kernel = wsdsl.parse(text).squares
    chosen = kernel.schedule(M=4096, N=4096)
    assert schedule_with_fewer_sums(kernel.tile_ir, chosen, 8, dict(M=4096, N=4096)) is None


def test_rows_of_a_given_tile_get_fewer_ctas() -> None:
    made = KERNELS.rmsnorm.compile(Schedule(tile=dict(m=16, n=1024)), M=501, N=1000)
    assert made.cubin and made.schedule.ctas_per_sm == 3
