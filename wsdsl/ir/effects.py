"""Effects of ops: accesses of memory, arrivals, waits and fences.

`op.effects(makers)` of each op class (`ir/ops`) yields them; `makers` are `kernel.definers`, since
the box of a copy is an attribute of its tensor map. An op without effects yields none: its results
are all that it changes. Verifier, prover, synchronization trace and races in the simulator read
effects; tests/simulator/test_effects.py compares them with the bytes that a simulated run moves.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from wsdsl.ir.types import Value
from wsdsl.record import record

Space = Literal["smem", "tmem", "gmem", "mbarrier"]
Kind = Literal["read", "write", "add", "take"]
"""`add` is atomic; `take` reads and leaves the bytes undefined."""
Synchronizer = Literal[
    "mbarrier", "named barrier", "semaphore", "warp", "cta", "cluster", "grid", "wgmma", "bulk",
    "tcgen05.ld", "tcgen05.st", "registers",
]  # fmt: skip
"""Barriers, semaphores, `grid`: the order of the kernels on a stream (griddepcontrol), asynchronous
groups, which are committed (Arrive) and waited for, and the CTA's pool of registers."""
Threads = Literal["one", "warps", "all"]
"""The elected thread (of each warpgroup); one thread of each warp; all threads that run the op."""
RANK = "rank"
"""The number of the warpgroup in its partition, as a term of a `Span`."""
Term = tuple["Value | Literal['rank']", int]


@record
class Span:
    """`size` bytes of an item of SMEM, or columns of TMEM, from `start` plus each term's
    value times its coefficient on, a multiple of `align`. `within`: bounds for all values of the
    terms. A span ends at `limit` at the latest. `half` of the lanes of TMEM: 0 or 1; None for all.
    """

    start: int
    size: int
    terms: tuple[Term, ...] = ()
    within: tuple[int, int] | None = None
    limit: int | None = None
    half: int | None = None
    align: int = 1


@record
class Elements:
    """Elements of a tensor in GMEM: those of the indices `at`, an i32 scalar or fragment for each
    dimension, or a box of `extents` that begins there. `rows`: the dimension along which each warp
    has elements of its own, after those of the previous one, and how many.
    """

    at: tuple[Value, ...]
    extents: tuple[int, ...] = ()
    rows: tuple[int, int] | None = None


@record
class Access:
    """An access to `of`: an array of items (item `item`: a state, an index, or None for the first),
    or a tensor. `spans`: of each of the four warps, or one tuple for all threads. An `async` access
    is that of the async proxy: it continues after the op. `cta`: a rank in the cluster,
    `multicast`: a mask of ranks, `ctas`: all of this number, `pair`: both CTAs of a pair; else the
    executing CTA. With `of` None all of TMEM. `elements` of a tensor: None for all of them. With
    `pred` (a bool scalar) only where that is true.
    """

    kind: Kind
    space: Space
    of: Value | None
    item: Value | None = None
    spans: tuple[tuple[Span, ...], ...] = ()
    asynchronous: bool = False
    cta: Value | None = None
    multicast: Value | None = None
    ctas: int = 1
    pair: bool = False
    elements: Elements | None = None
    pred: Value | None = None


@record
class Arrive:
    """`count` arrivals (of each of `threads`) on item `item` of `of`, and `tx` bytes that are
    expected (or, below 0, have been written). `numbers` are those of named barriers. An
    `asynchronous` arrival follows the completion of the MMAs that the thread has issued.
    """

    on: Synchronizer
    of: Value | None = None
    item: Value | None = None
    count: int = 1
    tx: int = 0
    threads: Threads = "all"
    pred: Value | None = None
    cta: Value | None = None
    multicast: Value | None = None
    ctas: int = 1
    numbers: range = range(0)
    asynchronous: bool = False


@record
class Wait:
    """Wait for item `item` of `of`; of asynchronous groups until `pending` are in flight, or with
    `read` have not read SMEM.
    """

    on: Synchronizer
    of: Value | None = None
    item: Value | None = None
    threads: Threads = "all"
    pending: int = 0
    read: bool = False
    numbers: range = range(0)


@record
class Fence:
    """Order accesses: of initialized mbarriers, of the generic proxy before the async proxy in SMEM
    or GMEM, of registers before wgmma, of TMEM with the synchronization of threads.
    """

    of: Literal["mbarrier", "smem", "gmem", "wgmma", "tmem"]


Effect = Access | Arrive | Wait | Fence
Effects = Iterable[Effect]


def whole(start: int, size: int, *terms: Term, align: int = 1) -> tuple[tuple[Span, ...], ...]:
    """Return the spans of an access of all threads to `size` adjacent bytes."""
    return ((Span(start, size, terms, align=align),),)


def scaled(value: Value | None, by: int) -> tuple[Term, ...]:
    """Return the term of an optional operand."""
    return () if value is None else ((value, by),)


def accesses(effects: Effects, *spaces: Space) -> list[Access]:
    """Return the accesses to memory of `spaces`, in order."""
    return [e for e in effects if isinstance(e, Access) and e.space in spaces]


def values_of(effect: Effect) -> list[Value]:
    """Return the scalars and states that determine where an effect is, and whether."""
    names = "item", "pred", "cta", "multicast"
    values = [v for name in names if (v := getattr(effect, name, None)) is not None]
    spans = effect.spans if isinstance(effect, Access) else ()
    terms = (term for warp in spans for span in warp for term, _ in span.terms)
    return values + [term for term in terms if not isinstance(term, str)]


def synchronizes(effects: Effects, kind: type[Arrive | Wait], *on: Synchronizer) -> bool:
    """Return whether effects include an arrival on one of these synchronizers, or a wait for it."""
    return any(isinstance(effect, kind) and effect.on in on for effect in effects)


def reaches_cluster(effect: Effect) -> bool:
    """Return whether an effect is in other CTAs of the cluster."""
    if not isinstance(effect, Access | Arrive):
        return False
    several = effect.ctas > 1 or (isinstance(effect, Access) and effect.pair)
    return several or effect.cta is not None or effect.multicast is not None
