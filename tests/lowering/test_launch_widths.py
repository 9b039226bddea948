"""Tiles whose width along wgmma's N each launch chooses (`Schedule.tile_n_variants`)."""

import dataclasses
import re
from collections.abc import Iterator

import numpy as np
import pytest

import wsdsl
from tests.case_table import matmul_text
from tests.kernels import CASES, inputs, simulated
from tests.prover.test_mutants import missed_in_case
from wsdsl import Schedule
from wsdsl.artifact.serialization import Entry, from_bytes, to_bytes
from wsdsl.artifact.signature import MapArgument
from wsdsl.codegen.launch_signature import signature
from wsdsl.diagnostics import ProofError, ScheduleError, VerifyError
from wsdsl.dispatch.compiled import Compiled
from wsdsl.ir.analysis.launch_narrowing import each_width, narrowed
from wsdsl.ir.analysis.tile_widths import narrowings
from wsdsl.ir.op import Kernel, Op
from wsdsl.ir.ops import LaunchGrid, MakeTensorMap, MbarrierArriveExpectTx, TmaStore, WgmmaMmaAsync
from wsdsl.ir.parser import parse_kernel
from wsdsl.ir.rewriter import rewrite
from wsdsl.lowering.shape_buckets import predicted_cycles
from wsdsl.prover.prove import prove
from wsdsl.prover.ptx.check_ptx import check_skeleton
from wsdsl.simulator.simulation import simulate
from wsdsl.simulator.simulation_error import SimulationError

GEMM = CASES["gemm"].kernel
ONE = Schedule(tile=dict(m=64, n=64, k=64), consumers=1, mma_m="n", tile_n_variants=8)
TWO = dataclasses.replace(ONE, tile=dict(m=128, n=128, k=64), consumers=2)
GRAM = """
@kernel
def gram(A: bf16[M, K], C: bf16[M, M]):
    for m, n in tiles(M, M):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += A[m, k] @ A[n, k]
        C[m, n] = acc
"""
OTHERS = (
    ("gemm", TWO),
    ("gemm", dataclasses.replace(TWO, mode="cooperative", scheduler="grid")),
    ("gemm", dataclasses.replace(ONE, tile=dict(m=24, n=64, k=128), tile_n_variants=3)),
    ("gemm", dataclasses.replace(ONE, cluster=dict(n=2), multicast=False)),
    ("epilogue", ONE),
    ("column_major_b", dataclasses.replace(ONE, tile_n_variants=4)),
    ("product_tf32", dataclasses.replace(ONE, tile=dict(m=64, n=64, k=32), tile_n_variants=4)),
)


def lowered(name: str, schedule: Schedule) -> Compiled:
    return Compiled(CASES[name].with_schedule(schedule))


@pytest.fixture(scope="module")
def made() -> Compiled:
    return lowered("gemm", ONE)


def result(kernel: Kernel, m: int, n: int, k: int) -> np.ndarray:
    given = inputs(CASES["gemm"], M=m, N=n, K=k)
    simulate(kernel, given, seed=2)
    return given["C"]


@pytest.mark.parametrize("sizes", [(150, 64, 96), (37, 64, 64), (200, 128, 64)])
def test_every_width_gives_the_same_bits(made: Compiled, sizes: tuple[int, int, int]) -> None:
    alone = dataclasses.replace(ONE, tile_n_variants=None)
    wanted = result(lowered("gemm", alone).scheduled, *sizes)
    for kernel in each_width(made.scheduled):
        assert np.array_equal(result(kernel, *sizes), wanted)


@pytest.mark.parametrize(("name", "schedule"), OTHERS)
@pytest.mark.sampled(4)
def test_forms_are_proved_and_right_at_every_width(name: str, schedule: Schedule) -> None:
    found = lowered(name, schedule)
    assert found.scheduled == parse_kernel(found.ir("scheduled"))
    assert parse_kernel(found.ir("partitioned")) == found.partitioned
    assert f"at each of {schedule.tile_n_variants} tile widths" in str(found.prove())
    case = CASES[name]
    found = simulated(case, schedule)
    alone = simulated(case, dataclasses.replace(schedule, tile_n_variants=None))
    assert np.array_equal(found["C"], alone["C"])


# What must not pass -------------------------------------------------------------------------------


def changed(kernel: Kernel, kind: type[Op], **held: object) -> Kernel:
    def told(op: Op) -> tuple[Op]:
        own = isinstance(op, kind) and getattr(op, "narrower", None) is not None
        return (dataclasses.replace(op, **held) if own else op,)

    return dataclasses.replace(kernel, body=rewrite(kernel.body, told))


@pytest.mark.parametrize(
    ("kind", "held"),
    [
        (MbarrierArriveExpectTx, dict(line_bytes=64)),
        (MbarrierArriveExpectTx, dict(narrower=None, line_bytes=0)),
        (MakeTensorMap, dict(narrower=None)),
        (MakeTensorMap, dict(narrowed=1)),
        (WgmmaMmaAsync, dict(widths=4)),
        (WgmmaMmaAsync, dict(narrower=None, widths=1)),
        (TmaStore, dict(lines=60)),
        (LaunchGrid, dict(narrowed=5)),
    ],
)
def test_mutants_are_refused(made: Compiled, kind: type[Op], held: dict[str, object]) -> None:
    with pytest.raises((VerifyError, ProofError)):
        prove(changed(made.scheduled, kind, **held))


def test_to_store_all_lines_is_wrong_in_the_simulator(made: Compiled) -> None:
    kernel = narrowed(changed(made.scheduled, TmaStore, narrower=None), 24)
    with pytest.raises(SimulationError, match="C"):
        result(kernel, 150, 64, 64)


def test_synchronisation_of_a_narrower_width_is_held(made: Compiled) -> None:
    assert missed_in_case("gemm", narrowed(made.scheduled, 24), each=4) == []


def ptx_mutants(ptx: str) -> Iterator[tuple[str, str]]:
    """What LLVM, ptxas or codegen might have done to a width."""
    yield "an arm's width", ptx.replace("m64n40k16", "m64n48k16")
    yield "an arm's bound", re.sub(r"(setp.ge.s32 p1, %r\d+), 32", r"\g<1>, 24", ptx)
    yield (
        "another number",
        re.sub(r"(setp.ge.s32 p1, (%r\d+), 32)", r"add.s32 \g<2>, \g<2>, 8;\n\g<1>", ptx, count=1),
    )
    yield "a branch", re.sub(r"@p1 bra", "@!p1 bra", ptx)
    for change in ("wgmma.commit_group.sync.aligned;", ""), (", 2;\nmov.b64 a", ", 4;\nmov.b64 a"):
        parts = ptx.split(change[0])
        for arm in (1, 4, 8):
            made = change[0].join(parts[:arm]) + change[1] + change[0].join(parts[arm:])
            yield f"{change[1] or 'no commit'} in arm {arm}", made
    tx = re.search(r"mbarrier.arrive.expect_tx[^;]*(%r\d+);", ptx)
    assert tx
    yield "bytes", ptx.replace(tx[0], tx[0].replace(tx[1], "16384"))
    stored = re.search(r"@(%p\d+) cp.async.bulk.tensor.2d.global", ptx)
    assert stored
    yield "all lines", ptx.replace(stored[0], stored[0].replace(f"@{stored[1]} ", ""))


def test_ptx_is_held_to_every_width(made: Compiled) -> None:
    check_skeleton(made.scheduled, made.ptx)
    for what, mutant in ptx_mutants(made.ptx):
        assert mutant != made.ptx, what
        with pytest.raises(VerifyError):
            check_skeleton(made.scheduled, mutant)


@pytest.mark.parametrize(
    ("name", "changes", "told"),
    [
        ("gemm", dict(mma_m="m"), "this stores whole rows along `n`"),
        ("gemm", dict(tile=dict(m=72, n=64)), "a tile m=72 has 1"),
        ("gemm", dict(scheduler="stream_k"), "stores partial accumulators"),
        ("gemm", dict(cluster=dict(m=2)), "a cluster has 2 CTAs along"),
        ("gemm", dict(cluster=dict(n=2)), "the CTAs of a cluster multicast them"),
        ("product_i8", dict(), "wgmma of i8 needs"),
        ("column_major_b", dict(), "in its last 32 columns or fewer"),
    ],
)
def test_refusals(name: str, changes: dict[str, object], told: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        CASES[name].kernel.schedule(dataclasses.replace(ONE, **changes))
    assert told in str(caught.value)


# Launches -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "width"),
    # Fewer tiles than SMs are as narrow as leaves them so, but for 32; of many what wastes least.
    [(64, 32), (1024, 32), (4000, 64), (1152, 40)],
)
def test_a_launch_takes_the_width_by_which_sms_are_done_first(
    made: Compiled, rows: int, width: int
) -> None:
    columns = made.signature.narrowing(dict(M=rows, N=256, K=64), 132)
    assert 64 - columns == width


def test_of_two_sides_along_one_dimension_one_is_narrower() -> None:
    (gram,) = vars(wsdsl.parse(GRAM)).values()
    made = Compiled(dataclasses.replace(gram.tile_ir, schedule=ONE))
    assert made.signature.at(24).tiles == signature(narrowed(made.scheduled, 24)).tiles
    assert made.signature.tiles == (("M", 64), ("M", 64))
    assert made.signature.at(24).tiles == (("M", 40), ("M", 64))


READ_BESIDE = matmul_text(
    "read_beside(A: bf16[M, K], B: bf16[N, K], E: bf16[N, M], C: bf16[M, N])",
    "A[m, k] @ B[n, k]",
    "C[m, n] = acc + cast(E[n, m], f32)",
)


@pytest.mark.parametrize(
    ("columns", "widths", "told"),
    [(192, 8, "a tile m=192 has 4: they differ in its last 32"), (40, 5, "a tile m=40 has 1")],
)
def test_what_is_read_beside_sums_has_parts_that_widths_differ_in(
    columns: int, widths: int, told: str
) -> None:
    (kernel,) = vars(wsdsl.parse(READ_BESIDE)).values()
    tile = dict(m=columns, n=128, k=64)
    asked = dataclasses.replace(TWO, tile=tile, tile_n_variants=widths, mode="pingpong")
    with pytest.raises(ScheduleError) as caught:
        kernel.schedule(asked)
    assert told in str(caught.value)
    assert "the epilogue loads tiles in such parts" in str(caught.value)


def test_a_launch_takes_what_the_kernel_of_its_width_does(made: Compiled) -> None:
    for columns in narrowings(8):
        own, alone = made.signature.at(columns), signature(narrowed(made.scheduled, columns))
        maps = [[a for a in s.arguments if isinstance(a, MapArgument)] for s in (own, alone)]
        assert [(a.tensor, a.box) for a in maps[0]] == [(a.tensor, a.box) for a in maps[1]]
        assert own.tiles == alone.tiles
        assert [a.columns for a in own.arguments if hasattr(a, "columns")] == [columns]


def test_the_model_goes_by_the_width_of_the_launch() -> None:
    """Beside one width none takes longer than by it."""
    schedule = GEMM.schedule(TWO, M=1000, N=1024, K=4096)
    for rows in (100, 700, 1000, 3333):
        sizes = dict(M=rows, N=1024, K=4096)
        alone = dataclasses.replace(schedule, tile_n_variants=None)
        cycles = [predicted_cycles(GEMM.tile_ir, s, sizes) for s in (schedule, alone)]
        assert cycles[0] <= cycles[1]


def test_a_kept_signature_has_its_widths(made: Compiled) -> None:
    entry = Entry("key", "emitter", made.signature)
    assert from_bytes("key", to_bytes(entry)).value == made.signature
