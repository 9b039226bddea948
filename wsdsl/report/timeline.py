"""Predict what every worker does when: the work units of the tile scheduler, and the cost model's
cycles of each step.

A worker is a CTA, or a cluster. Where warpgroups are in ping-pong at the tensor cores, what
one of them does with its accumulators overlaps another's MMAs.
"""

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal

from wsdsl.diagnostics import Finding, ScheduleError
from wsdsl.ir.hardware.target import Target
from wsdsl.ir.op import Kernel
from wsdsl.ir.tile_scheduler import Piece, num_steps, pieces_of, tile_scheduler
from wsdsl.lowering.cooperation import cluster_size, num_pingpong_consumers
from wsdsl.lowering.cost_model import predict as model
from wsdsl.lowering.cost_model.predict import Prediction, predict
from wsdsl.lowering.cost_model.workload import Work
from wsdsl.lowering.footprint import axis_sizes
from wsdsl.lowering.wave_quantization import claimed_tiles
from wsdsl.report.bottleneck import bottleneck
from wsdsl.report.figure import draw_worker
from wsdsl.report.timed.partition_lanes import text_lanes, window
from wsdsl.report.timed.timed import timed
from wsdsl.report.timed.worker import Worker, trace
from wsdsl.schedule import Schedule

Kind = Literal["products", "wait", "sums", "results", "tile"]
MOST_TILES = 100_000


@dataclass(frozen=True)
class Bar:
    """A step of one worker. `partial`: the work unit is a part of its tile; `beside`: it overlaps
    the MMAs of another tile; `slot`: which of the CTAs that are resident on an SM runs it.
    """

    kind: Kind
    tile: int
    partial: bool
    start: float
    stop: float
    beside: bool = False
    slot: int = 0


@dataclass(frozen=True)
class Timeline:
    """`rows`: bars by worker, of `cluster` SMs each; cycles since the launch."""

    rows: tuple[tuple[Bar, ...], ...]
    prediction: Prediction
    tiles: int
    cluster: int
    pingpong: bool
    """Warpgroups are in ping-pong."""
    scale: float = 1.0
    """Ratio of the predicted time to the total of its steps: waits for memory or another worker's
    results, which are in no step, are spread over all steps."""
    scheduled: Kernel | None = None
    """The kernel at the level SCHEDULED."""
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])
    """The kernel's sizes, by dimension."""

    @cached_property
    def worker(self) -> Worker:
        """Busy times of the partitions of the CTA that ends last, and the edges that they wait for.
        ScheduleError if these depend on data, or the trace is too long.
        """
        assert self.scheduled is not None
        ends = [max(bar.stop for bar in row) for row in self.rows]
        row = ends.index(max(ends))
        claimed, scheduler = list[int](), (self.scheduled.schedule or Schedule()).scheduler
        resident = len(self.rows) * self.prediction.resident
        tiles = self.tiles if scheduler == "grid" else min(self.tiles, resident)
        clusters = [*range(row, tiles, len(self.rows))]
        if scheduler == "dynamic":
            claimed = [bar.tile for bar in self.rows[row] if bar.kind == "products"][1:]
        return timed(self.scheduled, self.prediction, self.sizes, clusters, claimed)

    def __str__(self) -> str:
        return self.text()

    def text(self, part: str = "steady") -> str:
        """Return a table of the worker's partitions, and a few of its steps in the `part`:
        "prologue", "steady" or "epilogue".
        """
        return f"{self.worker}\n{text_lanes(self.worker, part)}"

    def save(self, path: str | Path, part: str = "steady") -> None:
        """Write the partitions of the critical-path worker over time: `trace.json` for
        ui.perfetto.dev, or a figure of a few steps of the `part` (.svg, .png, .pdf).

        FigureError for another suffix, or without matplotlib (extra `plot`).
        """
        path = Path(path)
        if path.suffix.lower() == ".json":
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(trace(self.worker)))
            return
        name = self.scheduled.name if self.scheduled else ""
        told = ", ".join(f"{dim} = {size}" for dim, size in self.sizes.items())
        draw_worker(self.worker, window(self.worker, part), path, f"{name}, {told}, {part}")

    @property
    def summary(self) -> str:
        """One line: workers, tiles, work units of cut tiles, idle time and predicted time."""
        size, rows = self.cluster, len(self.rows)
        workers = f"{rows} SMs" if size == 1 else f"{rows} clusters of {size}"
        cut = f", {self.cut} of them split: {self.pieces} work units" if self.cut else ""
        told = f"{workers}, {self.tiles} tiles{cut}, {100 * self.idle:.0f} % idle"
        return f"{told}, predicted {self.microseconds:.1f} µs at {self.clock:.2g} GHz"

    @property
    def bottleneck(self) -> str:
        """The hardware unit that limits the predicted time, as in `Kernel.explain`."""
        return bottleneck(self.prediction, self.prediction.tile.work.kernel.schedule or Schedule())

    @property
    def target(self) -> Target:
        return self.prediction.tile.target

    @property
    def bars(self) -> list[Bar]:
        return [bar for row in self.rows for bar in row]

    @property
    def cycles(self) -> float:
        return max(bar.stop for bar in self.bars)

    @property
    def start(self) -> float:
        """Cycles until the first products."""
        return self.prediction.tile.start

    @property
    def clock(self) -> float:
        """Cycles a nanosecond."""
        return self.prediction.tile.clock

    @property
    def microseconds(self) -> float:
        return self.cycles / self.clock / 1000

    @property
    def wave(self) -> float:
        """Cycles from the begin of a whole tile to that of the next one."""
        p = self.prediction
        if self.pingpong:
            return self.scale * (p.mainloop * p.stretch + p.tile.turn)
        return self.scale * (p.mainloop + p.epilogue) * p.stretch * p.resident

    @property
    def pieces(self) -> int:
        return sum(bar.kind in ("products", "tile") for bar in self.bars)

    @property
    def cut(self) -> int:
        return len({bar.tile for bar in self.bars if bar.partial})

    @property
    def idle(self) -> float:
        """The share of all SMs' time in which tensor cores run no MMAs, and no worker is busy with
        accumulators.
        """
        busy = sum(b.stop - b.start for b in self.bars if b.kind != "wait" and not b.beside)
        whole = self.target.num_sms / self.cluster * (self.cycles - self.start)
        whole *= self.prediction.resident
        return max(0.0, 1 - busy / whole)


def timeline(kernel: Kernel, sizes: Mapping[str, int], scheduled: Kernel | None = None) -> Timeline:
    """`kernel`: at TILE, with its whole schedule; `scheduled`: lowered from it. ScheduleError for
    no tiles, too many, or too many splits to be resident.
    """
    schedule = kernel.schedule or Schedule()
    prediction = predict(Work(kernel, sizes), schedule, axis_sizes(kernel, schedule))
    asked, cluster = prediction.tile, cluster_size(schedule)
    tiles, room = asked.tiles // cluster, kernel.target.cluster_room(cluster)
    together = schedule.reduction == "parallel"
    scheduler = tile_scheduler(schedule.scheduler or "", schedule.splits or 1, together)
    depth = max(1, asked.depth)
    if not tiles:
        raise ScheduleError([Finding("WS1046 the kernel has no tiles for these sizes", kernel.loc)])
    if tiles > MOST_TILES:
        told = f"WS1047 {tiles} tiles; a timeline has at most {MOST_TILES}"
        raise ScheduleError([Finding(told, kernel.loc, "use smaller sizes")])
    if told := scheduler.fault(tiles, depth, room):
        raise ScheduleError([Finding(f"WS1048 {told}", kernel.loc, "use fewer splits")])
    work = pieces_of(scheduler, tiles, depth, scheduler.num_workers(tiles, depth, room))
    if schedule.scheduler == "dynamic":
        dealt = claimed_tiles(tiles, room, asked.uneven)
    else:
        # With "grid", CTAs that do not fit start when others end.
        dealt = [range(w, len(work), room) for w in range(min(room, len(work)))]
    work = [[piece for w in row for piece in work[w]] for row in dealt]
    pingpong = num_pingpong_consumers(schedule) > 1
    if prediction.plain:
        rows = [list(_side_by_side(prediction, row)) for row in work]
    else:
        rows = _Clock(prediction, schedule, depth).run(work)
    last = max(bar.stop for row in rows for bar in row)
    scale = (prediction.cycles - asked.start) / max(1.0, last - asked.start)
    scaled = tuple(tuple(_scaled(bar, scale, asked.start) for bar in row) for row in rows)
    return Timeline(scaled, prediction, tiles, cluster, pingpong, scale, scheduled, dict(sizes))


def _side_by_side(prediction: Prediction, row: Sequence[Piece[int]]) -> Iterator[Bar]:
    """Tiles of an SM whose resident CTAs share its units."""
    each, resident = prediction.epilogue, prediction.resident
    for number, piece in enumerate(row):
        slot = number % resident
        begin = prediction.tile.start + (number - slot) * each
        stop = begin + min(resident, len(row) - number + slot) * each
        yield Bar("tile", piece.tile, False, begin, stop, slot=slot)


def _scaled(bar: Bar, scale: float, begin: float) -> Bar:
    start, stop = (begin + scale * (at - begin) for at in (bar.start, bar.stop))
    return dataclasses.replace(bar, start=start, stop=stop)


class _Clock:
    """Time the work units in an order in which each follows the units that it waits for."""

    def __init__(self, prediction: Prediction, schedule: Schedule, depth: int) -> None:
        asked, self.depth = prediction.tile, depth
        self.cut = prediction.work.cut
        self.step = prediction.mainloop * prediction.stretch / depth
        self.places = asked.uneven
        self.apart = prediction.apart * prediction.stretch / depth
        self.rates, self.start, self.turn = asked.rates, asked.start, asked.turn
        self.written, self.read = model.sum_cycles(asked)
        self.between = model.crowding_between(asked, prediction.work)
        self.results = (
            prediction.epilogue * prediction.stretch * model.results_share(asked, schedule)
        )
        self.gather = model.gather_cycles(asked, schedule, prediction.work.parts)
        self.pingpong = num_pingpong_consumers(schedule)
        self.slices = schedule.reduction == "parallel"
        is_sent = prediction.sharing > 1
        self.sent = prediction.handing / prediction.work.iterations if is_sent else 0.0
        self.handed: dict[tuple[int, int], float] = {}
        """By tile and step: when the sums up to there are in memory."""

    def run(self, work: Sequence[Sequence[Piece[int]]]) -> list[list[Bar]]:
        rows: list[list[Bar]] = [[] for _ in work]
        if self.slices:
            return self.met(work, rows)
        left = [list(reversed(pieces)) for pieces in work]
        cores = [self.start] * len(work)
        free = [[self.start] * self.pingpong for _ in work]
        while any(left):
            before = sum(map(len, left))
            for w, pieces in enumerate(left):
                while pieces and self.ready(pieces[-1]):
                    mine = len(work[w]) - len(pieces)
                    start = max(cores[w], free[w][mine % self.pingpong])
                    bars = list(self.piece(pieces.pop(), start))
                    rows[w] += bars
                    cores[w] = bars[0].stop + (self.turn if self.pingpong > 1 else 0)
                    free[w][mine % self.pingpong] = bars[-1].stop
            assert sum(map(len, left)) < before, "workers wait in a circle"
        return rows

    def ready(self, piece: Piece[int]) -> bool:
        return piece.begin == 0 or (piece.tile, piece.begin) in self.handed

    def piece(self, piece: Piece[int], start: float) -> Iterator[Bar]:
        partial = piece.end - piece.begin < self.depth
        step = self.apart if piece.tile < self.cut else self.step
        # Of tiles that follow each other the last takes as much longer as the first less.
        step *= 2 * (piece.tile % self.places + 1) / (self.places + 1)
        now = start + (piece.end - piece.begin) * step
        yield Bar("products", piece.tile, partial, start, now)

        def bar(kind: Kind, until: float) -> Bar:
            nonlocal now
            begun, now = now, until
            return Bar(kind, piece.tile, partial, begun, now, self.pingpong > 1)

        is_between = piece.begin > 0 and piece.end < self.depth and not self.slices
        crowding = self.between if is_between else 1.0
        if piece.begin > 0:
            there = self.handed[piece.tile, piece.begin] + self.rates.hand_over_cycles
            if there > now:
                yield bar("wait", there)
            yield bar("sums", now + crowding * self.read)
        if self.sent:
            yield bar("sums", now + self.sent)
        if piece.end < self.depth:
            yield bar("sums", now + crowding * self.written)
            self.handed[piece.tile, piece.end] = now
        else:
            yield bar("results", now + self.results)

    def met(self, work: Sequence[Sequence[Piece[int]]], rows: list[list[Bar]]) -> list[list[Bar]]:
        """Parallel reduction: workers of a tile exchange partials, and each finishes a slice."""
        there: dict[int, float] = {}
        for row, (piece, *_) in zip(rows, work, strict=True):
            begun = self.start + self.rates.atomic_cycles
            done = begun + num_steps(piece) * self.step
            partial = num_steps(piece) < self.depth
            row.append(Bar("products", piece.tile, partial, begun, done))
            row.append(Bar("sums", piece.tile, partial, done, done + self.written))
            last = done + self.written + self.rates.hand_over_cycles
            there[piece.tile] = max(there.get(piece.tile, 0.0), last)
        for row in rows:
            tile, partial, now = row[0].tile, row[0].partial, there[row[0].tile]
            row.append(Bar("wait", tile, partial, row[-1].stop, now))
            row.append(Bar("sums", tile, partial, now, now + self.gather))
            row.append(Bar("results", tile, partial, row[-1].stop, row[-1].stop + self.results))
        return rows
