"""Record the effects of ops while the simulator executes them (SCHEDULED).

    with recorded() as effects:
        simulate(kernel, arrays)

Each effect is noted where the simulator checks an access for races and moves its data, or changes a
barrier, so a record depends on no table of what ops do.
"""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal

from wsdsl.ir.op import Op

Kind = Literal["run", "read", "write", "add", "arrive", "wait", "fence"]
"""`run` is the execution of an op, once for each warpgroup; `add` an atomic addition."""
Space = Literal[
    "threads",
    "shared",
    "tensor",
    "global",
    "barrier",
    "named barrier",
    "flag",
    "warp",
    "cta",
    "cluster",
    "grid",
    "wgmma",
    "bulk",
    "registers",
]
"""Where the effect is. `warp`, `cta` and `cluster` are barriers of all their threads, `grid` the
order of this kernel and its neighbors on a stream (griddepcontrol), `wgmma` and `bulk` (TMA stores)
asynchronous groups, which are committed (`arrive`) and waited for, `registers` the CTA's pool."""


@dataclass(frozen=True, eq=False, slots=True)
class Effect:
    """One effect of one execution of `op`.

    threads: numbers in CTA `cta`; of what the async proxy does, the threads that issued it
    owner: the CTA whose memory or barrier this is; -1 in global memory
    name: of the barriers, by label, or of the tensor
    at: a `Region` of SMEM; lanes and columns of TMEM; elements of a tensor; stage of a barrier, or
        the number of a named one; of a `run` all scalars of the warpgroup, by name
    """

    op: Op
    kind: Kind
    space: Space
    cta: int
    threads: range
    owner: int
    name: str
    at: Any


Effects = list[Effect]
_recorder: ContextVar[Effects | None] = ContextVar("effects", default=None)


@contextmanager
def recorded() -> Generator[Effects]:
    """Record the effects of all simulations inside of the `with` statement."""
    effects: Effects = []
    token = _recorder.set(effects)
    try:
        yield effects
    finally:
        _recorder.reset(token)


def recorder() -> Effects | None:
    """Return the list that effects are appended to, if they are recorded."""
    return _recorder.get()


def thread_numbers(components: slice, first: int) -> range:
    """Return the numbers of threads from their components of the clocks: the elected thread and the
    others of each warp. `first` is that of the CTA.
    """
    start, stop = components.start - first, components.stop - first
    return range(start // 2 * 32 + start % 2, stop // 2 * 32 + stop % 2)
