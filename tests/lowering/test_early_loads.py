"""Operands that the kernel in front does not write: who loads them, when, and what is refused."""

import dataclasses

import pytest

import wsdsl
from tests.corpus.texts import TEXTS
from tests.kernels import CASES, simulated
from wsdsl import Schedule, ScheduleError
from wsdsl.ir.op import Kernel, Region
from wsdsl.ir.ops import GriddepWait, MakeTensorMap, Partition, ThreadLoad, TmaLoad
from wsdsl.ir.rewriter import walk
from wsdsl.prover.prove import prove

SMALL = Schedule(tile=dict(m=64, n=32, k=32), consumers=1, stages=2, pdl_independent=("B",))


def scheduled(name: str, schedule: Schedule, unaligned: tuple[str, ...] = ()) -> Kernel:
    case = CASES[name]
    sizes = {d: case.sizes[d] for d in case.kernel.whole_dims}
    return case.kernel._compile(schedule, sizes, unaligned).scheduled


def partitions(kernel: Kernel) -> list[Partition]:
    return [op for op in kernel.body if isinstance(op, Partition)]


def loaded(part: Partition, kernel: Kernel) -> set[str]:
    maps = {op.result: op.tensor.name for op in kernel.ops if isinstance(op, MakeTensorMap)}
    ops = list(walk(part.body))
    copied = {maps[op.map] for op in ops if isinstance(op, TmaLoad)}
    return copied | {op.tensor.name for op in ops if isinstance(op, ThreadLoad)}


def waits(region: Region) -> bool:
    return any(isinstance(op, GriddepWait) for op in region)


@pytest.mark.parametrize("constant", [None, ("B",)])
def test_prove_accepts_kernel_when_overlap_is_off(constant: tuple[str, ...] | None) -> None:
    prove(scheduled("gemm", dataclasses.replace(SMALL, pdl_independent=constant, launch_pdl=False)))


# What they compute --------------------------------------------------------------------------------

SCHEDULES = {
    "one": SMALL,
    "all": dataclasses.replace(SMALL, pdl_independent=("A", "B")),
    "few": Schedule(tile=dict(m=64, n=224), consumers=1, pdl_independent=("B",)),
    "columns": Schedule(tile=dict(m=16, n=128), mma_m="n", consumers=2, pdl_independent=("B",)),
    "two": Schedule(tile=dict(m=128, n=48), consumers=2, stages=3, pdl_independent=("A",)),
    "three": Schedule(
        tile=dict(m=192, n=64), consumers=3, mode="cooperative", stages=2, pdl_independent=("B",)
    ),
    "pingpong": Schedule(tile=dict(m=64, n=64), mode="pingpong", stages=3, pdl_independent=("B",)),
    "cluster": Schedule(
        tile=dict(m=64, n=64), cluster=dict(m=2), consumers=1, stages=3, pdl_independent=("B",)
    ),
    "clusters": Schedule(
        tile=dict(m=64, n=32), cluster=dict(m=2, n=2), mode="pingpong", stages=2,
        pdl_independent=("A",),
    ),
    "pieces": dataclasses.replace(SMALL, scheduler="split_k", splits=3),
    "parallel": Schedule(
        tile=dict(m=128, n=64), stages=2, mode="cooperative", scheduler="split_k", splits=2,
        reduction="parallel", pdl_independent=("B",),
    ),
    "stream": Schedule(
        tile=dict(m=128, n=64), stages=2, mode="cooperative", scheduler="stream_k",
        pdl_independent=("B",),
    ),
    "stream_turns": Schedule(
        tile=dict(m=64, n=64), stages=2, mode="pingpong", scheduler="stream_k",
        pdl_independent=("A",),
    ),
    "stream_cluster": Schedule(
        tile=dict(m=64, n=64), stages=2, consumers=1, scheduler="stream_k", cluster=dict(m=2, n=2),
        pdl_independent=("B",),
    ),
}  # fmt: skip
CUT = {name for name, schedule in SCHEDULES.items() if schedule.scheduler}
SIZES = (
    dict(M=130, N=136, K=328),
    dict(M=16, N=304, K=8),
    dict(M=70, N=40, K=0),
    dict(M=1, N=64, K=64),
)


UNALIGNED = ((), ("A",), ("B",), ("A", "B", "C"))


@pytest.mark.sampled(12)
@pytest.mark.parametrize("unaligned", [UNALIGNED[0], None], ids=["tma", "threads"])
@pytest.mark.parametrize("name", SCHEDULES)
def test_right_in_any_order(name: str, unaligned: tuple[str, ...] | None) -> None:
    """Threads that copy meet two sizes, and bring other tensors in the next schedule."""
    own = list(SCHEDULES).index(name)
    if by_threads := unaligned is None:
        unaligned = UNALIGNED[1 + own % 3]
    case, kernel = CASES["gemm"], scheduled("gemm", SCHEDULES[name], unaligned)
    for seed, sizes in enumerate(SIZES):
        if by_threads and (seed + own) % 2:
            continue
        simulated(case, kernel, seed, 64 if name in CUT else 2, **sizes)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("unaligned", UNALIGNED, ids=str)
@pytest.mark.parametrize("name", SCHEDULES)
def test_proved(name: str, unaligned: tuple[str, ...]) -> None:
    prove(scheduled("gemm", SCHEDULES[name], unaligned))


OTHERS = [
    # Slots of the second loop have nothing of B, and those of the first are all of the ring.
    ("two_loops", dict(tile=dict(m=64, n=32), consumers=1, pdl_independent=("B",))),
    ("two_loops", dict(tile=dict(m=64, n=32), consumers=1, pdl_independent=("A", "E"))),
    ("two_loops", dict(tile=dict(m=64, n=32), mode="pingpong", pdl_independent=("D", "E"))),
    # Two rings.
    ("held_operand", dict(tile=dict(m=64, n=32), consumers=1, stages=2, pdl_independent=("A",))),
    ("held_operand", dict(tile=dict(m=64, n=32), consumers=1, stages=2, pdl_independent=("B",))),
    ("batched", dict(tile=dict(m=64, n=32), consumers=1, pdl_independent=("B",))),
    ("two_products", dict(tile=dict(n=32), stages=2, pdl_independent=("G", "U"))),
    ("epilogue", dict(tile=dict(m=64, n=32), consumers=1, pdl_independent=("B", "bias"))),
]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("threads", [False, True], ids=["tma", "threads"])
@pytest.mark.parametrize(("name", "schedule"), OTHERS, ids=str)
def test_other_kernels(name: str, schedule: dict[str, object], threads: bool) -> None:
    case = CASES[name]
    names = tuple(p.name for p in case.kernel.tile_ir.params) if threads else ()
    kernel = scheduled(name, Schedule(**schedule), names)  # type: ignore[arg-type]
    loads = [p for p in partitions(kernel) if p.role == "load"]
    first, second = (p.num_warps for p in loads[:2])
    assert (first, second) == (4, 4 if threads else 1)
    right(name, kernel)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("unaligned", [("A",), ("B",), ("A", "C"), ("A", "B")], ids=str)
@pytest.mark.parametrize(
    "schedule",
    [
        Schedule(),
        Schedule(tile=dict(m=64, n=32), consumers=1, stages=2),
        Schedule(tile=dict(m=64, n=32), consumers=1, cluster=dict(m=2)),
    ],
    ids=repr,
)
def test_a_ring_that_one_thread_fills_beside_one_that_all_fill(
    schedule: Schedule, unaligned: tuple[str, ...]
) -> None:
    """Others wait for nothing there: they might miss a phase."""
    kernel = scheduled("held_operand", schedule, unaligned)
    right("held_operand", kernel, M=140, N=136)


def right(name: str, kernel: Kernel, seeds: int = 2, **sizes: int) -> None:
    prove(kernel)
    for seed in range(seeds):
        simulated(CASES[name], kernel, seed, num_sms=2, **sizes)


MORE = [
    dict(consumers=1),
    dict(tile=dict(m=128, n=32), consumers=2),
    dict(mode="pingpong"),
    dict(consumers=1, cluster=dict(m=2)),
]
SCALES_AND_OPERANDS = [
    ("B",),
    ("B", "b_scale"),
    ("A", "B"),
    ("a_scale",),
    ("a_scale", "b_scale"),
    ("A", "B", "a_scale", "b_scale"),
]
PARTS = [("B",), ("A", "B"), ("A", "R"), ("A", "B", "R", "bias", "rows"), ("A", "B", "R")]


def every_other(constants: list[tuple[str, ...]], last: dict[str, object]) -> list[object]:
    """Each with half of the schedules, so that two after each other are with all of them."""
    schedules = [*MORE, last]
    every = [(i + j, x, more) for i, x in enumerate(constants) for j, more in enumerate(schedules)]
    return [pytest.param(x, more, id=f"{x}-{more}") for n, x, more in every if n % 2 == 0]


@pytest.mark.sampled(8)
@pytest.mark.parametrize(
    ("constant", "more"),
    every_other(SCALES_AND_OPERANDS, dict(consumers=1, stages=2, scheduler="stream_k")),
)
def test_scales_beside_operands(constant: tuple[str, ...], more: dict[str, object]) -> None:
    """They are copied by whom the promise says, and may lie alone in what one fills of a slot."""
    given = Schedule(**dict(tile=dict(m=64, n=32), pdl_independent=constant) | more)  # type: ignore[arg-type]
    kernel = scheduled("block_scaled", given)
    every = {"A", "B", "a_scale", "b_scale"}
    loads = [p for p in partitions(kernel) if p.role == "load"]
    shares = [(loaded(p, kernel), waits(p.body)) for p in loads]
    late = every - {*constant}
    assert shares == [({*constant}, False), *([(late, True)] if late else [])]
    right("block_scaled", kernel, seeds=1, KB=4)


@pytest.mark.parametrize("more", [dict(consumers=1), dict(mode="pingpong")], ids=str)
def test_scales_that_threads_read(more: dict[str, object]) -> None:
    """Of an unaligned tensor nothing lies beside the operands, and nothing is early."""
    given = Schedule(tile=dict(m=64, n=32), pdl_independent=("a_scale",), **more)  # type: ignore[arg-type]
    kernel = scheduled("block_scaled", given, ("a_scale",))
    assert waits(kernel.body)
    right("block_scaled", kernel, KB=4)


@pytest.mark.sampled(8)
@pytest.mark.parametrize(
    ("constant", "more"), every_other(PARTS, dict(consumers=1, cluster=dict(m=2, n=2)))
)
def test_parts_of_the_epilogue_wait(constant: tuple[str, ...], more: dict[str, object]) -> None:
    """Who brings them shares a warpgroup with who loads the operands, and waits for itself."""
    given = Schedule(**dict(tile=dict(m=64, n=32), stages=2, pdl_independent=constant) | more)  # type: ignore[arg-type]
    kernel = scheduled("epilogue", given)
    *_, parts = (p for p in partitions(kernel) if not p.num_warpgroups)
    assert "R" in loaded(parts, kernel) and waits(parts.body)
    early, *_ = partitions(kernel)
    assert loaded(early, kernel) == {*constant} & {"A", "B"} and not waits(early.body)
    right("epilogue", kernel, seeds=1)


# The choice ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, 4, 16, 64])
def test_few_rows_keep_the_promise(rows: int) -> None:
    kernel = CASES["gemm"].kernel
    for n, k in ((28672, 8192), (8192, 28672)):
        made = kernel.schedule(Schedule(pdl_independent=("B",)), M=rows, N=n, K=k)
        plain = kernel.schedule(M=rows, N=n, K=k)
        assert made.constant == ("B",)
        assert (made.tile, made.consumers, made.stages) == (
            plain.tile,
            plain.consumers,
            plain.stages,
        )
        assert kernel.schedule(made) == made
        assert eval(repr(made), {"Schedule": Schedule}) == made


def test_wide_tiles_keep_the_promise() -> None:
    """A warp of the warpgroup that loads anyhow takes no registers."""
    sizes = dict(M=1024, N=6144, K=8192)
    kernel = CASES["gemm"].kernel
    plain = kernel.schedule(**sizes)
    promised = kernel.schedule(Schedule(pdl_independent=("B",)), **sizes)
    assert promised == dataclasses.replace(plain, pdl_independent=("B",))


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        (Schedule(pdl_independent=("Q",)), "names `Q`, which is not a tensor"),
        (Schedule(pdl_independent=("B", "C")), "names `C`, which the kernel stores"),
    ],
    ids=repr,
)
def test_refused_with_the_reason(schedule: Schedule, words: str) -> None:
    with pytest.raises(ScheduleError, match=words) as caught:
        CASES["gemm"].kernel.schedule(schedule)
    assert all(f.loc for f in caught.value.findings)


def test_an_address_that_may_be_written() -> None:
    kernel = wsdsl.parse(TEXTS["by_expert"][0]).by_expert
    tile = dict(m=64, n=32)
    with pytest.raises(ScheduleError, match="is in `expert`"):
        kernel._compile(Schedule(tile=tile, consumers=1, pdl_independent=("W",)), {}, ())
    both = Schedule(tile=tile, consumers=1, pdl_independent=("W", "expert"))
    early, late, _ = partitions(kernel._compile(both, {}, ()).scheduled)
    assert not waits(early.body) and waits(late.body)
    # A's addresses do not depend on it.
    kernel._compile(Schedule(tile=tile, consumers=1, pdl_independent=("A",)), {}, ())
