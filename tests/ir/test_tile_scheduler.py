"""All work is done once, by equal shares, and no order of starting workers can end in a wait."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wsdsl.diagnostics import LaunchError
from wsdsl.ir.tile_scheduler import (
    LEAD,
    LEAD_SHARE,
    DataParallel,
    Numbers,
    Piece,
    Problem,
    SplitK,
    StreamK,
    TileScheduler,
    num_counted,
    num_cut_tiles,
    pieces_of,
)
from wsdsl.runtime import work_check
from wsdsl.runtime.work_check import Pieces, check_work

cutting = st.builds(SplitK, st.integers(1, 40), st.booleans()) | st.just(StreamK())
small_cutting = st.builds(SplitK, st.integers(1, 6)) | st.just(StreamK())
seeds = st.integers(0, 2**32 - 1)
small = st.tuples(st.integers(1, 30), st.integers(1, 9), st.integers(1, 12))
BATCH = 60
LARGEST = 2**31 - 2**16


class Batch:
    """Problems at random, and what everybody does in each. `room`: as many workers as are launched
    where there is room for so many, else any number.
    """

    def __init__(self, scheduler: TileScheduler, seed: int, launched: bool) -> None:
        rng = np.random.default_rng(seed)
        self.room = rng.integers(1, 149, BATCH)
        self.tiles = rng.integers(1, np.minimum(4 * self.room, rng.choice([4, 40, 600], BATCH)) + 1)
        self.depth = rng.integers(1, rng.choice([3, 20, 200], BATCH) + 1)
        sizes = list(zip(self.tiles.tolist(), self.depth.tolist(), self.room.tolist()))
        self.workers = self.room
        if launched:
            self.workers = np.array([scheduler.num_workers(*size) for size in sizes])
        sizes = list(zip(self.tiles.tolist(), self.depth.tolist(), self.workers.tolist()))
        self.slots = np.array([scheduler.num_slots(*size) for size in sizes])
        self.whose = np.repeat(np.arange(BATCH), self.workers)
        first = np.cumsum(self.workers) - self.workers
        worker = np.arange(len(self.whose)) - first[self.whose]
        of = self.whose
        problem = Problem(self.tiles[of], self.depth[of], worker, self.workers[of])
        self.pieces = work_check.pieces_of(scheduler, problem)
        self.problem = self.whose[self.pieces.at]
        """Of each piece."""


def covered(batch: Batch, pieces: Pieces) -> bool:
    """Is every step of every tile summed once? +1 where a piece begins, -1 where it ends."""
    of, depth = batch.problem, batch.depth[batch.problem]
    inside = (pieces.begin >= 0) & (pieces.begin < pieces.end) & (pieces.end <= depth)
    inside &= (pieces.tile >= 0) & (pieces.tile < batch.tiles[of])
    steps = batch.tiles * batch.depth
    place = (np.cumsum(steps) - steps)[of] + pieces.tile * depth
    changes = np.zeros(steps.sum() + 1, np.int64)
    once = pieces.stride == 1
    np.add.at(changes, (place + pieces.begin)[once], 1)
    np.add.at(changes, (place + pieces.end)[once], -1)
    summed = np.cumsum(changes)[:-1]
    for first, end, stride in zip(
        *(x[~once] for x in (place + pieces.begin, place + pieces.end, pieces.stride))
    ):
        summed[first:end:stride] += 1
    return bool(inside.all() and (summed == 1).all())


@settings(max_examples=60, deadline=None)
@given(cutting | st.builds(DataParallel), seeds, st.booleans())
def test_every_step_once(scheduler: TileScheduler, seed: int, launched: bool) -> None:
    batch = Batch(scheduler, seed, launched)
    pieces = batch.pieces
    assert covered(batch, pieces)
    cut = (pieces.begin > 0) | (pieces.end < batch.depth[batch.problem])
    assert (pieces.tile < batch.slots[batch.problem])[cut].all()
    assert (batch.slots <= batch.tiles).all()


@settings(max_examples=20, deadline=None)
@given(cutting, seeds)
def test_as_many_as_there_is_room_for_and_none_idle(scheduler: TileScheduler, seed: int) -> None:
    batch = Batch(scheduler, seed, launched=True)
    assert (batch.workers >= 1).all()
    assert (batch.workers <= batch.room).all()
    assert len(np.unique(batch.pieces.at)) == batch.workers.sum()


def spread(values: np.ndarray, groups: np.ndarray) -> int:
    """How far apart the values of one group are at most."""
    high, low = np.full(BATCH, -1), np.full(BATCH, 1 << 40)
    np.maximum.at(high, groups, values)
    np.minimum.at(low, groups, values)
    return int((high - low).max())


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 40), st.booleans(), seeds)
def test_split_k_shares_evenly(splits: int, together: bool, seed: int) -> None:
    batch = Batch(SplitK(splits, together), seed, launched=True)
    pieces = batch.pieces
    steps = -((pieces.begin - pieces.end) // pieces.stride)
    assert spread(steps, batch.problem) <= 1
    assert spread(np.bincount(pieces.at, minlength=len(batch.whose)), batch.whose) <= 1
    parts = np.minimum(np.minimum(splits, batch.depth), batch.room)
    assert (np.bincount(batch.problem, minlength=BATCH) == batch.tiles * parts).all()


@settings(max_examples=20, deadline=None)
@given(seeds)
def test_stream_k_shares_evenly(seed: int) -> None:
    batch = Batch(StreamK(), seed, launched=True)
    pieces, of = batch.pieces, batch.problem
    depth, tiles = batch.depth[batch.whose], batch.tiles[batch.whose]
    steps = np.bincount(pieces.at, pieces.end - pieces.begin, minlength=len(batch.whose))
    # Less what finishes tiles that are cut, where a run is less than a tile.
    ends = (pieces.end == batch.depth[of]) & (pieces.tile < batch.slots[of])
    finished = np.bincount(pieces.at, ends, minlength=len(batch.whose))
    workers = batch.workers[batch.whose]
    lead = np.minimum(LEAD, tiles * depth // workers // LEAD_SHARE) * (tiles < workers)
    assert spread((steps - finished * lead).astype(int), batch.whose) <= 1
    assert (batch.slots < 2 * batch.workers).all()
    whole = pieces.tile >= batch.slots[of]
    assert ((pieces.begin == 0) & (pieces.end == batch.depth[of]))[whole].all()


@pytest.mark.parametrize("depth", [3, 64, 255, 256, 1000])
def test_where_runs_and_tiles_come_out_even(depth: int) -> None:
    """Two tiles for three workers: each tile has two pieces, never a third of a step or two."""
    pieces = [p for work in pieces_of(StreamK(), 88, depth, 132) for p in work]
    assert sum(p.end < depth for p in pieces) == 88
    assert len(pieces) == 2 * 88


def test_who_finishes_a_tile_has_more_to_do() -> None:
    """Its run ends when the sums of a run that lies in front of it, in the same tile, are there."""
    for tiles in (40, 88, 96, 131):
        work = pieces_of(StreamK(), tiles, 256, 132)
        steps = [sum(p.end - p.begin for p in pieces) for pieces in work]
        finishing = {s for s, run in zip(steps, work) if any(p.end == 256 for p in run)}
        others = {s for s, run in zip(steps, work) if all(p.end < 256 for p in run)}
        assert min(finishing) - max(others) >= LEAD - 1
    # Where whole tiles follow, all are equal.
    steps = [sum(p.end - p.begin for p in run) for run in pieces_of(StreamK(), 208, 256, 132)]
    assert max(steps) - min(steps) <= 1


def done_by_the_first(work: list[list[Piece[int]]]) -> bool:
    """Run the workers as far as they get, with no others than these; a piece waits until what is
    in front of it has been summed.
    """
    summed: dict[int, int] = {}
    turn = [0] * len(work)
    moving = True
    while moving:
        moving = False
        for worker, pieces in enumerate(work):
            while turn[worker] < len(pieces):
                piece = pieces[turn[worker]]
                if summed.get(piece.tile, 0) != piece.begin:
                    break
                summed[piece.tile] = piece.end
                turn[worker] += 1
                moving = True
    return all(at == len(pieces) for at, pieces in zip(turn, work, strict=True))


@settings(max_examples=150, deadline=None)
@given(small_cutting, small)
def test_the_first_workers_need_no_others(
    scheduler: TileScheduler, size: tuple[int, int, int]
) -> None:
    """So they may start one after the other, with any number of them running."""
    tiles, depth, workers = size
    work = pieces_of(scheduler, tiles, depth, workers)
    for running in range(1, workers + 1):
        assert done_by_the_first(work[:running])


@settings(max_examples=150, deadline=None)
@given(small, st.sampled_from([2, 4, 8]), st.booleans())
def test_ctas_of_a_cluster_share_every_step(
    size: tuple[int, int, int], sharing: int, persistent: bool
) -> None:
    """Each has as many, the last ones some that are beyond the end."""
    tiles, depth, workers = size
    scheduler = DataParallel(persistent, sharing)
    summed = np.zeros((tiles, depth), int)
    lengths: set[int] = set()
    for worker in range(workers):
        for part in range(sharing):
            walk = scheduler.walk(Numbers(), Problem(tiles, depth, worker, workers, part))
            for at in range(walk.start, walk.stop, walk.step):
                piece = walk.piece(at)
                assert piece.part == part
                assert piece.end - piece.begin == piece.length
                summed[piece.tile, piece.begin : piece.end] += 1
                lengths.add(piece.end - piece.begin)
    assert (summed == 1).all()
    assert lengths == {-(-depth // sharing)}


@settings(max_examples=50, deadline=None)
@given(small_cutting, small)
def test_arrays_are_numbers(scheduler: TileScheduler, size: tuple[int, int, int]) -> None:
    tiles, depth, workers = size
    each = np.arange(workers)
    problem = Problem(
        np.full_like(each, tiles), np.full_like(each, depth), each, each * 0 + workers
    )
    made = work_check.pieces_of(scheduler, problem)
    found = sorted(zip(made.at, made.iteration, made.tile, made.begin, made.end, made.stride))
    wanted = [
        (worker, turn, piece.tile, piece.begin, piece.end, piece.stride or 1)
        for worker, pieces in enumerate(pieces_of(scheduler, *size))
        for turn, piece in enumerate(pieces)
    ]
    assert found == wanted


@settings(max_examples=100, deadline=None)
@given(cutting, st.integers(1, LARGEST), st.integers(1, 2**25), st.integers(1, 148))
def test_i32_is_wide_enough(scheduler: TileScheduler, tiles: int, depth: int, room: int) -> None:
    """Or the launch is refused, for work that would take a worker many minutes."""
    workers = scheduler.num_workers(tiles, depth, room)
    slots = scheduler.num_slots(tiles, depth, workers)
    try:
        check_work("k", scheduler, tiles, depth, workers, slots)
    except LaunchError as error:
        assert "i32" in str(error)
        assert isinstance(scheduler, StreamK)
        assert max(slots, tiles // workers) * depth >= 2**31


def test_steps_of_the_argument() -> None:
    """Why the pieces of split-K and stream-K are sound, of T tiles of D steps and W workers, all
    whole numbers, D, W >= 1; and its steps for all problems of some size.

    Shares. s(w) = w * base + w * extra // W, where base, extra are quotient and rest of S by W.
    Then s(0) = 0 and s(W) = S. As 0 <= extra < W, the second term grows by 0 or 1 with w, so s
    does not fall: the runs [s(w), s(w + 1)) follow each other and cover [0, S). They are not
    empty if base >= 1.

    Split-K. n = min(splits, D, W) pieces, a = W // n workers to each part. Worker w has the part
    w // a, and is idle if that is n or more. Base is at least 1, since n <= D: a tile's pieces
    are the shares of D, none is empty, and they cover it. The tiles of worker w are w % a, w % a
    + a, ..., so the a workers of a part do each tile once. In front of a piece is that of worker
    w - a, in the same iteration. There are T slots. If pieces go through a tile together, part p
    does the steps p, p + n, ...: each step of D is one part's.

    Stream-K. Let l = T % W. The cut tiles C are 0 where l = 0, else l, or min(l + W, T): at most
    T, and T - C is a multiple of W. So the whole tiles C + iteration * W + w, with (T - C) / W
    iterations each, are all that are not cut, once. Of each cut tile c = D - lead steps are
    counted. Lead is not 0 only if T < W; then C = T (l is T, and l + W > T), a run has r = T * D
    // W < D steps, and lead <= r // 8 < D: so 1 <= c <= D. Runs are the shares of S = C * c; tile
    t is [t * c, (t + 1) * c). A run that is not empty touches the tiles from first // c to (last
    - 1) // c, one an iteration from the top; its piece of t is what both have in common, less t *
    c, and is not empty. These cover [0, c); the one that reaches c, and only that, ends at D
    instead. Only the lowest tile of a run can begin within a tile. What is in front of it is the
    end of the nearest run before that is not empty, whose topmost tile this is: a worker with a
    lower number does it, in its first iteration. Numbers of cut tiles are below C, which is how
    many slots there are.
    """
    grid = np.meshgrid(range(1, 26), range(1, 71), range(1, 14), indexing="ij")
    tiles, depth, workers = (x.ravel().astype(np.int64) for x in grid)
    arithmetic = work_check.Arrays()
    cut = num_cut_tiles(arithmetic, tiles, workers)
    counted = num_counted(arithmetic, Problem(tiles, depth, tiles * 0, workers), cut)
    assert ((cut >= 0) & (cut <= tiles) & ((tiles - cut) % workers == 0)).all()
    assert ((counted >= 1) & (counted <= depth)).all()
    before = 0 * tiles
    for worker in range(14):
        here = worker < workers
        problem = Problem(tiles, depth, before * 0 + worker, workers)
        walk = StreamK().walk(arithmetic, problem)
        assert (walk.first == before)[here].all()
        assert (walk.first <= walk.last)[here].all()
        assert (walk.last == cut * counted)[worker == workers - 1].all()
        before = np.where(here, walk.last, before)


@pytest.mark.parametrize("workers", [131, 132, 133])
def test_what_is_left_over(workers: int) -> None:
    """Few tiles left over: another for each is cut too. None: nothing is."""
    assert StreamK().num_slots(2 * workers, 8, workers) == 0
    assert StreamK().num_slots(2 * workers + 5, 8, workers) == workers + 5
    assert StreamK().num_slots(2 * workers + 100, 8, workers) == 100
    assert StreamK().num_slots(5, 8, workers) == 5


def test_pieces_follow_each_other() -> None:
    for pieces in pieces_of(StreamK(), 7, 10, 4):
        for one, next_one in pairwise(p for p in pieces if p.tile < 7):
            assert next_one.tile < one.tile or next_one.begin == 0


class Unlent(SplitK):
    """Wrong in that there is nowhere to put the sums."""

    def num_slots(self, tiles: int, depth: int, workers: int) -> int:
        return 0


class Reversed(SplitK):
    """Wrong in that workers wait for those behind them."""

    def walk(self, arithmetic, problem):
        last = arithmetic.apply("sub", problem.workers, arithmetic.number(1))
        worker = arithmetic.apply("sub", last, problem.worker)
        return super().walk(arithmetic, replace(problem, worker=worker))


class Beside(SplitK):
    """Wrong in that pieces that run together are a step too far on."""

    def walk(self, arithmetic, problem):
        walk = super().walk(arithmetic, problem)
        walk.begin = arithmetic.apply("add", walk.begin, arithmetic.number(1))
        return walk


class Twice(SplitK):
    """Wrong in that pieces that run together do every step."""

    def walk(self, arithmetic, problem):
        walk = super().walk(arithmetic, problem)
        walk.stride = arithmetic.number(1)
        return walk


class Short(SplitK):
    """Wrong in that the last step is left out."""

    def walk(self, arithmetic, problem):
        depth = arithmetic.apply("sub", problem.depth, arithmetic.number(1))
        return super().walk(arithmetic, replace(problem, depth=depth))


@pytest.mark.parametrize(
    ("scheduler", "words"),
    [
        (Unlent(2), "no workspace"),
        (Reversed(3), "later worker"),
        (Short(2), "begin or end"),
        (Beside(2, together=True), "begin or end"),
        (Twice(2, together=True), "overlap"),
    ],
)
def test_wrong_formulas_are_found(scheduler: TileScheduler, words: str) -> None:
    workers = scheduler.num_workers(20, 10, 12)
    slots = scheduler.num_slots(20, 10, workers)
    with pytest.raises(LaunchError, match=words):
        check_work("k", scheduler, 20, 10, workers, slots)
