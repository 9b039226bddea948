"""The default schedule, and what is said of schedules that do not fit."""

import dataclasses
import re

import numpy as np
import pytest

import wsdsl
from tests.case_table import matmul_text
from tests.kernels import CASES
from wsdsl import CompileError, Schedule, ScheduleError, parse
from wsdsl.ir.op import Kernel
from wsdsl.lowering.check_schedule import faults
from wsdsl.lowering.cost_model.predict import Prediction, predict
from wsdsl.lowering.cost_model.speeds import issuing, pace_of
from wsdsl.lowering.cost_model.workload import Work
from wsdsl.lowering.footprint import axis_sizes
from wsdsl.lowering.instruction_counts import RELAXED
from wsdsl.lowering.pipeline import scheduled_tile
from wsdsl.schedule import Mode


def chosen(name: str, schedule: Schedule | None = None, **sizes: int) -> Schedule:
    return CASES[name].kernel.schedule(schedule, **sizes)


def test_the_choice_can_be_pasted_back() -> None:
    schedule = chosen("gemm")
    assert eval(repr(schedule), {"Schedule": Schedule}) == schedule
    assert chosen("gemm", schedule) == schedule


@pytest.mark.parametrize(
    ("sizes", "rows", "columns"),
    [
        # As many waves as tiles allow are full, and L2 has little to bring.
        ((8192, 8192, 8192), (128, 256), (128, 256)),
        # 8 x 16 wide tiles are one wave; of 128 columns tiles leave no rest.
        ((1024, 3840, 4096), (128, 256), (120, 240)),
        ((1024, 4224, 4096), (128, 256), (128, 128)),
        # Less than a wave: smaller tiles use more SMs.
        ((1024, 1024, 1024), (64, 128), (64, 128)),
        # Few rows: nothing is loaded beyond them.
        ((16, 28672, 8192), (16, 16), (64, 128)),
        ((32, 5120, 5120), (32, 32), (64, 64)),
    ],
)
def test_choice(
    sizes: tuple[int, int, int], rows: tuple[int, int], columns: tuple[int, int]
) -> None:
    """The least and the most of a tile."""
    made = chosen("gemm", **dict(zip("MNK", sizes, strict=True))).tile or {}
    assert rows[0] <= made["m"] <= rows[1] and columns[0] <= made["n"] <= columns[1]


def test_nothing_to_do_is_done_by_small_tiles() -> None:
    """Wide ones may spill, and an empty problem would be refused for it."""
    tile = chosen("gemm", M=0, N=4096, K=4096).tile or {}
    assert tile["m"] * tile["n"] <= 64 * 64


def test_an_epilogue_that_is_too_long_is_no_traceback() -> None:
    lines = ["@kernel", "def long(A: f32[M], B: f32[M]):", "    for m in tiles(M):"]
    lines += ["        x = A[m]", *["        x = x * 1.5 + 0.25"] * 400, "        B[m] = x"]
    with pytest.raises(CompileError, match="too long a chain"):
        parse("\n".join(lines)).long.compile()


def test_slots_are_as_many_as_loads_must_run_ahead() -> None:
    """Consumers with two blocks of rows want one more; too few cost a buffer for stores."""
    plain = dict(mode="cooperative", consumers=2)
    assert chosen("gemm", Schedule(tile=dict(m=128, n=256), **plain)).stages == 3
    assert chosen("gemm", Schedule(tile=dict(m=256, n=128), **plain)).stages == 4
    assert chosen("gemm", Schedule(tile=dict(m=256, n=64), **plain)).stages == 5


def test_narrow_tiles_of_several_waves_have_few_slots() -> None:
    """With more, CTAs that load the same get out of step."""
    narrow = Schedule(
        tile=dict(m=128, n=64), mode="cooperative", consumers=2, scheduler="persistent"
    )
    sizes = dict(N=4096, K=4096)
    assert chosen("gemm", narrow, M=4096, **sizes).stages == 6
    assert (chosen("gemm", narrow, M=256, **sizes).stages or 0) > 6


@pytest.mark.parametrize(
    ("sizes", "given", "depth"),
    [
        # Memory is the limit: two lines of the weights come at once, but for short sums ...
        ((16, 8192, 8192), Schedule(), 128),
        ((64, 28672, 8192), Schedule(), 128),
        ((16, 8192, 448), Schedule(), 64),
        # ... or those that a tile of 64 was asked for.
        ((16, 8192, 8192), Schedule(tile=dict(k=64)), 64),
        # Narrow tiles wait for fewer slots; others do not mind.
        ((1024, 1024, 1024), Schedule(tile=dict(m=64, n=48)), 128),
        ((1024, 1024, 1024), Schedule(tile=dict(m=128, n=128)), 64),
        ((8192, 8192, 8192), Schedule(), 64),
    ],
)
def test_depth(sizes: tuple[int, int, int], given: Schedule, depth: int) -> None:
    made = chosen("gemm", given, **dict(zip("MNK", sizes, strict=True)))
    assert (made.tile or {})["k"] == depth


@pytest.mark.parametrize(
    ("sizes", "given", "overlap"),
    [
        # Memory is the limit, and some SMs have no tile.
        ((64, 28672, 8192), Schedule(), False),
        ((64, 8192, 28672), Schedule(), False),
        # All of the next one's CTAs find an SM.
        ((4, 4096, 4096), Schedule(), None),
        ((16, 2048, 16384), Schedule(), None),
        # Clusters of both fit only if they come in order; where that costs less than it hides.
        ((64, 768, 8192), Schedule(), None),
        # The next one's weights may come early.
        ((16, 28672, 8192), Schedule(pdl_independent=("B",)), None),
        ((16, 28672, 8192), Schedule(launch_pdl=True), True),
        # Short, several waves, or limited by the tensor cores.
        ((16, 8192, 8192), Schedule(), None),
        ((16, 57344, 8192), Schedule(), None),
        ((8192, 8192, 8192), Schedule(), None),
    ],
)
def test_who_lets_the_next_kernel_start(
    sizes: tuple[int, int, int], given: Schedule, overlap: bool | None
) -> None:
    assert chosen("gemm", given, **dict(zip("MNK", sizes, strict=True))).overlap is overlap


BIASED = matmul_text(
    "biased(A: bf16[M, K], B: bf16[N, K], bias: f32[N], C: bf16[M, N])",
    "A[m, k] @ B[n, k]",
    "C[m, n] = gelu(acc + bias[n])",
)


def test_an_epilogue_that_computes_leaves_registers() -> None:
    """The largest tiles take most of a warpgroup's registers: only to convert and store, or, of its
    own, where what the epilogue reads comes in parts."""
    sizes = dict(M=8192, N=8192, K=8192)
    for name in ("gemm", "epilogue"):
        made = chosen(name, **sizes)
        assert (made.mode, (made.tile or {})["n"]) == ("pingpong", 192)
    for name, tall in (("gemm", True), ("epilogue", False)):
        made = chosen(name, M=1024, N=6144, K=16384)
        assert (made.tile == dict(m=256, n=192, k=64)) is tall


def test_two_accumulators_share_the_registers() -> None:
    made = chosen("two_products")
    tile, own = made.tile or {}, (made.registers or {})["compute"]
    assert 2 * tile["m"] * tile["n"] // (128 * (made.consumers or 1)) < own


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        (Schedule(tile=dict(n=320)), "a multiple of 8 up to 256"),
        (Schedule(tile=dict(m=96)), "a multiple of 64"),
        (Schedule(tile=dict(n=256), stages=9), "bytes of SMEM"),
        (Schedule(registers=dict(load=232, compute=232), consumers=2), "summed over warpgroups"),
        (Schedule(registers=dict(loader=40)), "the roles are load and compute"),
        (Schedule(mode="pingpong", consumers=1), "alternates 2 or more consumers"),
        (Schedule(cluster=dict(q=2)), "not a parallel loop"),
        (Schedule(cluster=dict(m=4, n=4)), "16 CTAs; .* allows 8"),
        (Schedule(raster="k"), "not a parallel loop"),
        (Schedule(mma_m="k"), "not a free axis of a matmul"),
        (Schedule(tile=dict(n=256), consumers=3), "needs 154 registers per thread at launch"),
        (Schedule(consumer_split="k"), "has no such free axis"),
        (Schedule(consumer_split="n", mode="pingpong"), "gives each consumer a separate tile"),
        (
            Schedule(consumer_split="n", tile=dict(n=40), consumers=2),
            r"16 \(8 per consumer\)",
        ),
        (Schedule(consumer_split="n", scheduler="stream_k"), "reduces whole rows"),
    ],
    ids=repr,
)
def test_refused_with_the_reason(schedule: Schedule, words: str) -> None:
    with pytest.raises(ScheduleError, match=words):
        chosen("gemm", schedule)


def test_a_cluster_stores_nothing_for_tiles_beyond_the_tensor() -> None:
    """The last of three blocks of 64 columns is alone in its pair; `end` of what is not there is
    `end` of what is."""
    pairs = Schedule(tile=dict(m=64), consumers=1, cluster=dict(n=2))
    with pytest.raises(ScheduleError, match=r"no index `n`.*beyond N") as caught:
        chosen("quantised", pairs)
    assert "S[m, (end(n) - 1) // 64] = s" in str(caught.value)
    assert chosen("quantised", dataclasses.replace(pairs, cluster=dict(m=2))).cluster
    even = dataclasses.replace(CASES["quantised"].kernel.tile_ir, sizes=(("N", 256),))
    assert not faults(even, dataclasses.replace(chosen("quantised"), cluster=dict(n=2)))


def test_a_malformed_schedule_tells_every_field() -> None:
    with pytest.raises(ScheduleError) as caught:
        Schedule(stages=0, swizzle=3, consumers=5)  # type: ignore[arg-type]
    assert len(caught.value.findings) == 3


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (dict(tile="n"), "tile is 'n'; expected positive sizes"),
        (dict(tile=[64]), "positive sizes"),
        (dict(cluster=2), "sizes of 1, 2, 4 or 8"),
        (dict(cluster=dict(m=2.0)), "sizes of 1, 2, 4 or 8"),
        (dict(registers=40), "by role"),
        (dict(consumer_split=["n"]), "the name of a loop variable"),
        (dict(pdl_independent="B"), "names of tensors"),
        (dict(raster=1), "the name of a loop variable"),
        (dict(mma_m=("n",)), "the name of a loop variable"),
        (dict(consumers=2.0), "1 to 4 compute warpgroups"),
        (dict(swizzle=[8]), "1, 2, 4, 8, 16 or 32"),
    ],
    ids=repr,
)
def test_a_field_of_another_type_is_told(wrong: dict[str, object], words: str) -> None:
    with pytest.raises(ScheduleError, match=words):
        Schedule(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "schedule", "words"),
    [
        ("two_products", Schedule(tile=dict(n=256)), "accumulators need 256"),
        ("product_i8", Schedule(tile=dict(n=72)), "8, 16, 24 or 32 columns"),
        ("product_i8", Schedule(tile=dict(n=80), consumer_split="n"), "8, 16, 24 or 32 columns"),
        ("bytes_out", Schedule(tile=dict(n=72)), "multiple of 16.* rows of `C` .* by 16 bytes"),
        (
            "bytes_out",
            Schedule(tile=dict(n=80), consumer_split="n"),
            r"32 \(16 per consumer\)",
        ),
        (
            "mn_major",
            Schedule(tile=dict(n=80), consumer_split="n"),
            r"32 \(16 per consumer\).* rows of `B` .* by 32 bytes",
        ),
    ],
    ids=repr,
)
def test_widths_that_the_hardware_does_not_take(name: str, schedule: Schedule, words: str) -> None:
    with pytest.raises(ScheduleError, match="(?s)" + words):
        chosen(name, schedule)


def test_tiles_of_a_size_that_the_kernel_says() -> None:
    assert (chosen("quantised", M=8192, N=8192, K=8192).tile or {})["n"] == 64
    with pytest.raises(ScheduleError, match="has n=128; the source has tiles of 64"):
        chosen("quantised", Schedule(tile=dict(n=128)))
    text = CASES["quantised"].text.replace("by=64", "by=100").replace("// 64", "// 100")
    with pytest.raises(ScheduleError, match="a multiple of 8"):
        wsdsl.parse(text).quantised.schedule()


def test_pieces_that_nobody_asked_for_are_no_reason() -> None:
    """Tiles of these sizes would be cut, but those who share columns can not."""
    asked = Schedule(tile=dict(n=64), consumers=3, consumer_split="n")
    with pytest.raises(ScheduleError, match=r"24 \(8 per consumer\)") as refused:
        chosen("gemm", asked, M=4096, N=4096, K=4096)
    assert "stream_k" not in str(refused.value)


def test_the_choice_is_explained() -> None:
    kernel = CASES["gemm"].kernel
    text = kernel.explain(M=4096, N=8192, K=1024)
    assert repr(kernel.schedule(M=4096, N=8192, K=1024)) in text
    assert "1824 tiles in 14 waves; 99 % of 132 SMs" in text
    assert "144 registers per thread of 232" in text
    # (128 + 144) operands of 2 bytes, for 2 * 128 * 144 operations.
    assert "14.76 bytes per 1000 FLOP" in text
    _, following = text.split("alternatives,")
    following, others = following.split("other tile schedulers")
    worse = [float(x) for x in re.findall(r"([+-][\d.]+) %,", following)]
    assert len(worse) == 4 and worse == sorted(worse) and worse[0] >= 0
    assert "stream-K" in others and "split into" in others
    assert f"bottleneck: {text.bottleneck}, {100 * text.units[text.bottleneck]:.0f} %" in text
    assert f"{text.microseconds:.0f} µs" in text and text.bottleneck == next(iter(text.units))
    slower = [100 * (time / text.microseconds - 1) for _, time in text.alternatives]
    assert np.allclose(slower[:4], worse, atol=0.06) and len(slower) == 4 + others.count("consumer")


def test_operations_are_told_by_type() -> None:
    text = CASES["product_f8e4m3"].kernel.explain(
        Schedule(tile=dict(m=128, n=128), consumers=2), M=4096, N=4096, K=4096
    )
    assert f"{1000 * 256 / (2 * 128 * 128):.2f} bytes per 1000 FLOP" in text


@pytest.mark.parametrize("ask", ["compile", "schedule", "explain"])
def test_unknown_dimensions_are_refused(ask: str) -> None:
    with pytest.raises(CompileError, match="has no dimension Q"):
        getattr(CASES["gemm"].kernel, ask)(M=64, Q=64)


@pytest.mark.parametrize(
    ("sizes", "raster", "order"),
    [
        (dict(), None, (None, 16)),
        (dict(), "auto", (None, 16)),
        # Along n, as many rows of tiles abreast as make a wave of tiles square.
        ((4096, 4096), None, (None, 16)),
        ((1024, 8192), None, (None, 8)),
        ((384, 8192), None, (None, 4)),
        ((256, 1024), None, (None, 2)),
        ((64, 1024), None, (None, 1)),
        # By the shorter side.
        ((4096, 8192), "auto", ("m", 16)),
        ((8192, 4096), "auto", (None, 16)),
        ((384, 8192), "auto", ("m", 16)),
        ((8192, 384), "m", ("m", 4)),
    ],
)
def test_order_of_tiles(sizes, raster: str | None, order: tuple[str | None, int]) -> None:
    known = dict(zip("MN", sizes, strict=True), K=4096) if sizes else {}
    made = chosen("gemm", Schedule(tile=dict(m=128, n=128), raster=raster), **known)
    assert (made.raster, made.swizzle) == order
    assert chosen("gemm", made, **known) == made


def of_sums(what: str) -> Kernel:
    return parse(
        BIASED.replace("gelu(acc + bias[n])", what).replace("bias: f32[N], ", "")
    ).biased.tile_ir


def test_vectors_leave_room_for_some_wide_tiles() -> None:
    """One of them beside the sums: up to 176 a thread, if it is read when its turn comes."""
    kernel = parse(BIASED).biased
    wide = kernel.schedule(M=4096, N=24576, K=1536)
    assert (wide.mode, (wide.tile or {})["n"]) == ("pingpong", 176)
    assert "in_order=True" in str(kernel._compile(wide, {}, ("bias",)).scheduled)
    less = dataclasses.replace(wide, tile=dict(m=128, n=128), registers=None)
    assert "in_order" not in str(kernel._compile(less, {}, ("bias",)).scheduled)


@pytest.mark.parametrize("mode", ["cooperative", "pingpong"])
def test_what_results_take_to_compute_counts(mode: Mode) -> None:
    sizes = dict(M=8192, N=8192, K=1024)
    schedule = Schedule(tile=dict(m=128, n=128, k=64), mode=mode)
    made: list[Prediction] = []
    for what in ("acc", "gelu(acc)"):
        kernel = scheduled_tile(dataclasses.replace(of_sums(what), schedule=schedule), sizes)
        assert kernel.schedule is not None
        made.append(predict(Work(kernel, sizes), kernel.schedule, axis_sizes(kernel, schedule)))
    plain, computed = made
    warps = 2 if mode == "cooperative" else 1
    own = RELAXED["gelu"][8] * 128 * 128 / issuing(computed.tile.rates, warps)
    own *= pace_of(computed.tile, computed.busy)
    assert computed.epilogue - plain.epilogue == pytest.approx(own)
    assert computed.cycles > plain.cycles
