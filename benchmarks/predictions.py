"""How long kernels of all kinds take by the model of schedules, and how long they do.

    python -m benchmarks.predictions --out FILE          # measures (needs a GPU and torch)
    python -m benchmarks.predictions --from FILE...      # predicts anew what was measured before

Each kernel is measured under some dozen schedules, of which half are those that the model ranks
first in each way to share out the work, and half are drawn from the rest. What is told: the share
of predictions within 15 %, the rank correlation within a kernel's schedules, and how much slower
the model's first choice is than the best that was measured.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import random
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import machine
from benchmarks.burst import Burst
from benchmarks.predicted_kernels import Case, cases, products
from benchmarks.watchdog import Report, watched, watched_all

if TYPE_CHECKING:
    from wsdsl import Schedule
    from wsdsl.dispatch.compiled import Compiled
    from wsdsl.dispatch.kernel import Kernel
    from wsdsl.ir import op as ir
    from wsdsl.ir.hardware.target import Target

Row = dict[str, Any]
WITHIN = 0.15
PER_WAY, OTHERS = 2, 6
"""Schedules of a kernel: the first of each way, and so many that are drawn."""
ROUNDS, BURST = 3, 2e-3
NEAR, LONG, SUSTAINED = 1.15, 40e-6, 0.08
"""Kernels of so many seconds also run for longer, where power limits them: schedules that are so
near the best in bursts."""
SET_BYTES = 130e6
"""Arguments rotate over sets of so many bytes together, more than L2 holds."""
MOST_SETS = 24


def kernel_of(case: Case) -> Kernel:
    import wsdsl

    (kernel,) = vars(wsdsl.parse(case.text)).values()
    return kernel


# Schedules ----------------------------------------------------------------------------------------


def given_schedules(texts: Sequence[str]) -> list[Schedule]:
    from wsdsl.cli.options import written_schedule

    return [written_schedule(text) for text in texts]


def schedules(case: Case, per_way: int = PER_WAY, others: int = OTHERS) -> list[Schedule]:
    """The default first; each completed."""
    from wsdsl.lowering.heuristics.ranked import ranked
    from wsdsl.lowering.passes.choose_schedule import completed
    from wsdsl.lowering.pipeline import scheduled_tile
    from wsdsl.schedule import Schedule

    source = kernel_of(case)._compiled_for(None, case.sizes).source  # pyright: ignore[reportPrivateUsage]
    sizes, rng = dict(case.sizes), random.Random(case.name)
    first = scheduled_tile(source, sizes)
    assert first.schedule is not None
    found = {first.schedule: None}
    taken: dict[str, int] = defaultdict(int)
    options = [o for o, _ in ranked(first, Schedule(mma_m=first.schedule.mma_m), sizes)]
    options += _tiles_about(first.schedule)

    def take(option: Schedule) -> bool:
        schedule, findings = completed(first, option, sizes)
        new = not findings and schedule not in found
        found.update({schedule: None} if new else {})
        return new

    for option in options:
        way = option.scheduler or option.mode or ""
        way += " cluster" if option.cluster else ""
        if taken[way] < per_way:
            taken[way] += take(option)
    rng.shuffle(options)
    drawn = 0
    for option in options:
        if drawn == others:
            break
        drawn += take(option)
    return list(found)


def _tiles_about(schedule: Schedule) -> Iterator[Schedule]:
    """Where the model looks at few: half and twice the sizes of a tile, and fewer slots."""
    tile = dict(schedule.tile or {})
    plain = dataclasses.replace(schedule, registers=None, stages=None)
    for name, size in tile.items():
        for other in (size // 2, size * 2):
            if other >= 16:
                yield dataclasses.replace(plain, tile=tile | {name: other})
    for stages in (2, 3):
        yield dataclasses.replace(plain, stages=stages)
    first, *_ = tile
    for consumers in (1, 2, 3):
        for rows in (64, 128):
            own = dataclasses.replace(plain, consumers=consumers, mode="cooperative")
            yield dataclasses.replace(own, tile=tile | {first: rows * consumers})
    yield dataclasses.replace(plain, tile=tile | {first: 64}, consumers=2, mode="pingpong")


# Compiling ----------------------------------------------------------------------------------------


def compile_share(
    found: Sequence[Case], given: Mapping[str, Sequence[str]], report: Report
) -> list[tuple[Case, Compiled]]:
    made: list[tuple[Case, Compiled]] = []
    for case in found:
        report(case.name)
        try:
            named = given.get(case.name)
            plans = given_schedules(named) if named else schedules(case)
        except Exception as error:
            report(f"{case.name}: {error}", ("failed", f"{case.name}: {str(error)[:300]}"))
            continue
        kernel = kernel_of(case)
        for schedule in plans:
            report(f"{case.name} {schedule}")
            try:
                own = kernel.compile(schedule, **case.sizes)
                _ = own.artifact
                made.append((case, own))
            except Exception as error:
                report("", ("failed", f"{case.name} {schedule}: {str(error)[:300]}"))
    return made


def compile_all(
    found: Sequence[Case], given: Mapping[str, Sequence[str]]
) -> list[tuple[Case, Compiled]]:
    workers = max(1, min(len(found), os.cpu_count() or 1))
    shares = [partial(compile_share, found[i::workers], given) for i in range(workers)]
    made: list[tuple[Case, Compiled]] = []
    for outcome in watched_all(shares, workers, 120.0):
        for _, told in outcome.results:
            print("  " + told, flush=True)
        if outcome.ok:
            made += outcome.value
        else:
            print(f"  a share was lost: {outcome}", flush=True)
    order = {case.name: n for n, case in enumerate(found)}
    return sorted(made, key=lambda pair: order[pair[0].name])


# Measuring ----------------------------------------------------------------------------------------


def arguments(case: Case, compiled: Compiled, seed: int) -> tuple[Any, ...]:
    """Random normal tensors, outputs among them, and 1 for scalars."""
    import torch  # pyright: ignore[reportMissingImports]

    from wsdsl.ir.types import Tensor

    rng = torch.Generator(device="cuda").manual_seed(seed)
    kinds = {"f8e4m3": torch.float8_e4m3fn, "f16": torch.float16, "bf16": torch.bfloat16}
    kinds |= {"f32": torch.float32, "i8": torch.int8, "i32": torch.int32}
    made: list[Any] = []
    for param in compiled.params:
        if not isinstance(param.type, Tensor):
            made.append(0.1)
            continue
        shape = [d if isinstance(d, int) else case.sizes[d] for d in param.type.dims]
        kind = kinds[str(param.type.dtype)]
        if kind in (torch.int8, torch.int32):
            drawn = torch.randint(-100, 100, shape, device="cuda", generator=rng)
        else:
            drawn = torch.randn(shape, device="cuda", generator=rng)
        made.append(drawn.to(kind))
    return tuple(made)


def measure(report: Report, made: Sequence[tuple[Case, Compiled]], until: float) -> None:
    """Each kernel's schedules in turn, in shuffled order; the median of a few bursts each."""
    by_case: dict[str, list[tuple[Case, Compiled]]] = defaultdict(list)
    for case, compiled in made:
        by_case[case.name].append((case, compiled))
    for name, pairs in by_case.items():
        if time.monotonic() > until:
            break
        case = pairs[0][0]
        report(f"{name} | operands")
        first = arguments(case, pairs[0][1], 0)
        size = sum(x.nbytes for x in first if hasattr(x, "nbytes"))
        num = max(1, min(MOST_SETS, math.ceil(SET_BYTES / max(1, size)))) if size < SET_BYTES else 1
        sets = [first, *(arguments(case, pairs[0][1], seed) for seed in range(1, num))]
        bursts: dict[int, Burst] = {}
        for i, (_, compiled) in enumerate(pairs):
            said = f"{name} | {compiled.schedule} | "
            report(said)
            try:
                bursts[i] = Burst(said, compiled, sets, report, BURST)
            except Exception as error:
                report(said, ("failed", f"{said} {error}"))
        seconds: dict[int, list[float]] = defaultdict(list)
        rng = random.Random(name)
        for _ in range(ROUNDS):
            order = list(bursts)
            rng.shuffle(order)
            for i in order:
                report(bursts[i].said)
                seconds[i].append(bursts[i].run(BURST))
        figures = {i: statistics.median(spent) for i, spent in sorted(seconds.items())}
        best = min(figures.values(), default=0.0)
        near = [i for i, spent in figures.items() if spent < NEAR * best and best > LONG]
        longer = dict[int, float]()
        for i in sorted(near, key=lambda i: rng.random()):
            report(bursts[i].said)
            bursts[i].run(SUSTAINED / 2)
            longer[i] = bursts[i].run(SUSTAINED)
        for i, spent in figures.items():
            row: Row = dict(case=name, schedule=repr(pairs[i][1].schedule), us=spent * 1e6)
            row |= {"sustained": longer[i] * 1e6} if i in longer else {}
            report("", ("row", row))
        del bursts, sets, first


def measure_all(made: Sequence[tuple[Case, Compiled]], seconds: float) -> list[Row]:
    """In children; what hangs is left out, and the rest goes on behind it."""
    rows: list[Row] = []
    until, left = time.monotonic() + seconds, list(made)
    while left and time.monotonic() < until:
        outcome = watched(measure, left, until)
        rows += [told for kind, told in outcome.results if kind == "row"]
        for kind, told in outcome.results:
            if kind == "failed":
                print("  " + str(told)[:400], flush=True)
        if outcome.ok:
            break
        print(f"  {outcome}"[:600], flush=True)
        name, schedule = [*outcome.doing.split(" | "), ""][:2]
        done = {row["case"] for row in rows}
        left = [
            (case, own)
            for case, own in left
            if case.name not in done and (case.name, repr(own.schedule)) != (name, schedule)
        ]
    return rows


# Predicting ---------------------------------------------------------------------------------------


class Predicted:
    """A row with what the model asks for to predict it."""

    def __init__(self, source: ir.Kernel, sizes: Mapping[str, int], row: Row, card: Target) -> None:
        from wsdsl.cli.options import written_schedule
        from wsdsl.lowering.cost_model.workload import Work
        from wsdsl.lowering.footprint import axis_sizes
        from wsdsl.lowering.pipeline import scheduled_tile

        given = written_schedule(row["schedule"])
        kernel = scheduled_tile(dataclasses.replace(source, schedule=given, card=card), dict(sizes))
        assert kernel.schedule is not None
        self.schedule = kernel.schedule
        self.work, self.tile = Work(kernel, sizes), axis_sizes(kernel, self.schedule)
        self.measured = float(row["us"])
        if "sustained" in row:
            self.measured = math.sqrt(self.measured * row["sustained"])

    @property
    def microseconds(self) -> float:
        from wsdsl.lowering.cost_model.predict import predict

        return predict(self.work, self.schedule, self.tile).microseconds


def predicted(case: Case, rows: Sequence[Row], gpu: str) -> list[Predicted]:
    from wsdsl.ir.hardware.target import TARGETS

    source = kernel_of(case)._compiled_for(None, case.sizes).source  # pyright: ignore[reportPrivateUsage]
    card = next((t for t in TARGETS if t.name.split()[0] in gpu), TARGETS[0])
    return [Predicted(source, case.sizes, row, card) for row in rows]


def posed(count: int, seed: int) -> list[Case]:
    return products(count, seed) if count else cases()


def report_on(posed: Sequence[Case], rows: Sequence[Row], gpu: str, every: bool = False) -> None:
    """A line a kernel, and what all come to by family."""
    by_case: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_case[row["case"]].append(row)
    told: dict[str, list[tuple[float, float, float, float]]] = defaultdict(list)
    for case in posed:
        own = by_case.get(case.name, [])
        if not own:
            continue
        found = [one.microseconds for one in predicted(case, own, gpu)]
        told[case.family].append(figures([row["us"] for row in own], found))
        _, near, rank, loss = told[case.family][-1]
        print(f"{case.name:44} {own[0]['us']:9.1f} us {found[0]:9.1f} predicted "
              f"{near:5.0%} near, rank {rank:5.2f}, chosen {loss:6.3f} of the best")  # fmt: skip
        if every:
            for row, us in sorted(zip(own, found, strict=True), key=lambda pair: pair[0]["us"]):
                print(f"      {row['us']:9.1f} {us:9.1f} {us / row['us']:6.2f} {row['schedule']}")
    for family, each in told.items():
        print(f"{family:10} {summary(each)}")
    print(f"{'all':10} {summary([one for each in told.values() for one in each])}")


def summary(each: Sequence[tuple[float, float, float, float]]) -> str:
    near = statistics.mean(one[1] for one in each)
    chosen = statistics.mean(one[0] < math.log(1 + WITHIN) for one in each)
    ranks = [one[2] for one in each if not math.isnan(one[2])]
    loss = math.exp(statistics.mean(math.log(one[3]) for one in each))
    worst = max(one[3] for one in each)
    return (
        f"{len(each)} kernels: first choices within 15 % {chosen:.0%}, schedules {near:.0%}, "
        f"rank {statistics.mean(ranks) if ranks else math.nan:.2f}, chosen {loss:.3f} of the best, "
        f"at most {worst:.2f}"
    )


def figures(measured: Sequence[float], found: Sequence[float]) -> tuple[float, float, float, float]:
    """The first one's error, the share that is near, the rank correlation, and how much longer what
    is predicted to be the quickest takes than the quickest."""
    errors = [abs(math.log(f / m)) for m, f in zip(measured, found, strict=True)]
    near = statistics.mean(e < math.log(1 + WITHIN) for e in errors)
    rank = math.nan
    if len({*measured}) > 2 and len({*found}) > 2:
        rank = statistics.correlation(ranks(measured), ranks(found))
    best = min(range(len(found)), key=found.__getitem__)
    return errors[0], near, rank, measured[best] / min(measured)


def ranks(numbers: Sequence[float]) -> list[float]:
    """Of each, among all; equal ones share theirs."""
    ordered = sorted(numbers)
    first = {x: ordered.index(x) for x in ordered}
    return [first[x] + (ordered.count(x) - 1) / 2 for x in numbers]


def read(path: Path) -> Mapping[str, Any]:
    return json.loads(path.read_text())


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--from", dest="files", type=Path, nargs="+", help="measured before")
    parser.add_argument("--out", type=Path, help="where what is measured goes")
    parser.add_argument("--seconds", type=float, default=400.0, help="to measure, at the most")
    parser.add_argument("--every", action="store_true", help="tell of every schedule")
    parser.add_argument("--products", type=int, default=0, help="so many of drawn shapes instead")
    parser.add_argument("--seed", type=int, default=0, help="what they are drawn by")
    parser.add_argument(
        "--schedules", type=Path, help="by kernel, the schedules to measure, in place of a choice"
    )
    parser.add_argument("-k", default="", help="kernels whose name has this in it")
    options = parser.parse_args()
    for path in options.files or ():
        held = read(path)
        print(f"{path}: {held['gpu']}")
        chosen = [row for row in held["rows"] if options.k in row["case"]]
        report_on(posed(**held["cases"]), chosen, held["gpu"], options.every)
    if not options.files:
        drawn = dict(count=options.products, seed=options.seed)
        given: Mapping[str, Any] = read(options.schedules) if options.schedules else {}
        asked = [case for case in posed(**drawn) if options.k in case.name]
        made = compile_all([c for c in asked if not given or c.name in given], given)
        print(f"{len(made)} kernels compiled", flush=True)
        rows = measure_all(made, options.seconds)
        gpu = machine.description()["gpu"]["name"]
        print(f"{len(rows)} measured on {gpu}", flush=True)
        if options.out:
            options.out.write_text(json.dumps(dict(gpu=gpu, cases=drawn, rows=rows), indent=0))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
