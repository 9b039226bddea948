"""Random points of the schedule space, without a false alarm:
`python -m tests.prover.random_schedules 1000 SEED`. Sixteen times 63 of other seeds are as good.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random

from tests.kernels import CASES
from wsdsl import Schedule
from wsdsl.diagnostics import WsdslError
from wsdsl.dispatch.compiled import Compiled
from wsdsl.ir.op import Kernel
from wsdsl.prover.prove import prove

CLUSTERS = (
    {"m": 2}, {"n": 2}, {"m": 2, "n": 2}, {"m": 2, "n": 4}, {"n": 8}, {"k": 2}, {"k": 4},
    {"m": 2, "k": 2},
)  # fmt: skip


def random_schedule(rng: Random) -> Schedule:
    tile: dict[str, int] = {}
    if rng.random() < 0.7:
        tile["m"] = rng.choice((64, 64, 128, 192, 256))
    if rng.random() < 0.7:
        tile["n"] = rng.choice((16, 24, 32, 48, 64, 72, 96, 128, 168, 192, 256))
    if rng.random() < 0.4:
        tile["k"] = rng.choice((16, 32, 64, 128))
    return Schedule(
        tile=tile,
        stages=rng.choice((None, 1, 2, 3, 4, 5, 6, 7, 8, 12)),
        consumers=rng.choice((None, None, 1, 2, 3)),
        mode=rng.choice((None, "cooperative", "pingpong")),
        cluster=rng.choice((None, None, *CLUSTERS)),
        raster=rng.choice((None, None, "m", "n")),
        mma_m=rng.choice((None, None, None, "m", "n")),
        scheduler=rng.choice((None, "persistent", "grid")),
        swizzle=rng.choice((None, 1, 2, 4, 8)),
    )


def wide_schedule(rng: Random) -> Schedule:
    """With sums that CTAs hand on, too, and what is seldom asked for."""
    made, splits = random_schedule(rng), None
    if rng.random() < 0.25:
        scheduler = rng.choice(("split_k", "stream_k"))
        if scheduler == "split_k":
            splits = rng.choice((2, 3, 5))
        reduction = rng.choice((None, None, "parallel"))
        made = replace(made, scheduler=scheduler, splits=splits, reduction=reduction)
    return replace(
        made,
        consumer_split=rng.choice((None, None, None, "m", "n")),
        multicast=rng.choice((None, None, None, False)),
        operand_transform=rng.choice((None, None, "registers", "smem")),
        launch_pdl=rng.choice((None, None, True, False)),
    )


def random_compiled(
    seed: int, drawn: Callable[[Random], Schedule] = random_schedule
) -> Iterator[tuple[str, str, Compiled]]:
    """(case, what it is, it), without end; refused schedules are left out."""
    rng = Random(seed)
    while True:
        name = rng.choice(list(CASES))
        case, schedule, threads = CASES[name], drawn(rng), rng.random() < 0.4
        unaligned = tuple(p.name for p in case.kernel.tile_ir.params) if threads else ()
        sizes = {d: rng.choice((64, 512, 4096)) for d in case.kernel.dims} | dict(case.sizes)
        try:
            compiled = case.kernel._compile(schedule, sizes, unaligned)
        except WsdslError:
            continue
        what = f"{name} {'threads' if threads else 'tma'} {compiled.schedule!r}"
        yield name, what, compiled


def random_kernels(seed: int) -> Iterator[tuple[str, str, Kernel]]:
    """The SCHEDULED ones of them."""
    return ((name, what, made.scheduled) for name, what, made in random_compiled(seed))


def main(count: int, seed: int) -> int:
    slowest = 0.0
    alarms = 0
    made = random_compiled(seed, wide_schedule)
    for (_, what, compiled), _ in zip(made, range(count), strict=False):
        kernel, started = compiled.scheduled, time.perf_counter()
        try:
            prove(kernel)
        except Exception as error:
            alarms += 1
            print(f"ALARM {what}\n{error!r}\n{error}")
        took = time.perf_counter() - started
        if took > slowest:
            slowest = took
            print(f"slowest so far: {took * 1000:.0f} ms, {what}", flush=True)
    told = f"{count} kernels proved" if not alarms else f"{count} kernels"
    print(f"random_schedules, seed {seed}: {told}, {alarms} false alarms, slowest {slowest:.1f} s")
    return min(1, alarms)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0))
