"""Schedule: how a kernel is run. Every field may be left out; then the compiler chooses it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal

from wsdsl.diagnostics import Finding, ScheduleError, unknown_names
from wsdsl.lazy import cached_property

Mode = Literal["cooperative", "pingpong"]
Place = Literal["registers", "shared", "tensor"]
Reduction = Literal["serial", "parallel"]
Scheduler = Literal["auto", "grid", "persistent", "dynamic", "split_k", "stream_k"]
ScalePath = Literal["copy", "store"]
Arch = Literal["sm_90a", "sm_100a", "sm_103a"]
SWIZZLES = (1, 2, 4, 8, 16, 32)
PRECISE_EVERY = 128
"""Elements of fp8 that are summed before they are promoted, if `precise_every` is left out."""


class FrozenDict(dict[str, Any]):
    """A dict that can be hashed and prints as `dict(m=128)`."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(sorted(self.items())))

    def __repr__(self) -> str:
        return f"dict({', '.join(f'{k}={_shown(v)}' for k, v in self.items())})"


@dataclass(frozen=True, repr=False)
class Schedule:
    """How a kernel is mapped to the card. The repr can be pasted back.

    tile: size of each loop's tile in elements, by loop variable, `dict(m=128, n=256, k=64)`
    widths: of how many widths each launch chooses one for the tile along wgmma's N: that of `tile`,
        and those that are 8, 16, ... narrower, as many as the tile's last 64 columns allow
    stages: depth of the circular buffers, in slots
    consumers: number of compute warpgroups
    mode: "cooperative" (consumers share an output tile) or "pingpong" (each has its own)
    order_barriers: whether cooperating consumers of products of products (attention) follow one
        another at the tensor cores in every iteration, as in FlashAttention-3: while one has them,
        the others do what is between their products; else they come as they are ready. If left
        out, as the rates of the card say: yes if what is between takes no longer
    share: the loop variable whose tile cooperating consumers divide, each with the whole of the
        others; if left out, that which rides wgmma's M
    cluster: CTAs per cluster along loop variables, `dict(m=2)`, at most 8 in all; along the one
        that is summed over, `dict(k=2)`, they share the sum of each tile
    multicast: whether the CTAs of a cluster load for each other what several of them want, as they
        do if this is left out beside a given cluster; else all that a cluster does is to keep
        neighbours in one GPC, whose SMs have in common what comes to it from L2
    scheduler: "grid" (one tile per CTA), "persistent", "dynamic" (a CTA asks the card for its next
        tile, on sm_100a and sm_103a), "split_k", "stream_k", "auto"
    splits: how many pieces "split_k" cuts the contraction of each tile in
    reduction: how the sums of a tile's pieces come together: "serial", each piece after the one in
        front of it; or "parallel" ("split_k" alone), all at once, each piece a part of the tile.
        Both give the same bits in every run
    raster: "auto", or the loop variable along which neighbouring tiles run
    swizzle: tiles that are walked together across the raster direction: 1, 2, 4, 8, 16 or 32
    registers: registers a thread, per role, for setmaxnreg: `dict(load=40, compute=232)`
    ctas_per_sm: of a kernel without products, CTAs that run on an SM at the same time, so that they
        hide each other's latency: ptxas gives a thread no more registers than these leave it
    counters: of a kernel without products, the tensors to which it adds at computed places, by
        name, of which a CTA has counters in shared memory: of so many elements along each
        dimension, `dict(H=(64,))`. It adds them to memory at its end; what is added to elements
        beyond goes there at once. `dict()` for none
    mma: the axis that rides wgmma's M
    cta_group: 2 has the CTAs of a cluster of two multiply together, as a pair, on cards that sum
        products in tensor memory: each has a tile of its own, and half of the operand that both
        have in common (tcgen05's cta_group::2; CUTLASS says 2SM)
    decode: where a computed operand is made: "registers", by each consumer, or "shared", by a
        warpgroup of its own that writes it to shared memory; for all, or by a tensor that the
        operand is loaded from, `dict(W="registers", X="shared")`. On cards that sum products in
        tensor memory also "tensor": it is written there. What is made of other products lies in
        "shared" or "tensor" memory by whoever makes it
    scale_path: how scales of blocks come to tensor memory: "copy", by the tensor cores, which take
        them in atoms (`Kernel.packed`), or "store", by a partition of threads, which takes them a
        row at a time. Scales lie as they are given; if this is said, they have to lie so
    precise_every: for FP8, elements of the contraction that the tensor cores sum before the sum is
        promoted to f32; 0 for never, which is faster and less exact
    constant: names of tensors which the kernel in front on the stream does not write, `("B",)` for
        weights: their loads may begin before that kernel is over. This is a promise of the caller,
        and nothing checks it: where it does not hold, what is read is old or half written
    overlap: whether the next kernel on the stream may be started before this one is over, if it
        waits by itself (programmatic dependent launch)
    arch: "sm_90a", "sm_100a" or "sm_103a"
    """

    tile: Mapping[str, int] | None = None
    widths: int | None = None
    stages: int | None = None
    consumers: int | None = None
    mode: Mode | None = None
    order_barriers: bool | None = None
    share: str | None = None
    cluster: Mapping[str, int] | None = None
    multicast: bool | None = None
    scheduler: Scheduler | None = None
    splits: int | None = None
    reduction: Reduction | None = None
    raster: str | None = None
    swizzle: int | None = None
    registers: Mapping[str, int] | None = None
    ctas_per_sm: int | None = None
    counters: Mapping[str, tuple[int, ...]] | None = None
    mma: str | None = None
    cta_group: int | None = None
    decode: Place | Mapping[str, Place] | None = None
    scale_path: ScalePath | None = None
    precise_every: int | None = None
    constant: tuple[str, ...] | None = None
    overlap: bool | None = None
    arch: Arch = "sm_90a"

    if not TYPE_CHECKING:  # a checker of types knows the fields

        def __new__(cls, *args: Any, **named: Any) -> Schedule:
            known = cls.__dataclass_fields__
            if not known.keys() >= named.keys():
                raise ScheduleError(unknown_names(named, known, "Schedule"))
            return super().__new__(cls)

    def __post_init__(self) -> None:
        for name in ("tile", "cluster", "registers", "decode", "counters"):
            held = getattr(self, name)
            if isinstance(held, Mapping):
                self.__dict__[name] = FrozenDict(held)
        if isinstance(self.constant, (list, tuple)):
            self.__dict__["constant"] = tuple(self.constant) or None
        findings = self._faults()
        if findings:
            raise ScheduleError(findings)

    @property
    def cuts_tiles(self) -> bool:
        """Whether it is split-K or stream-K."""
        return self.scheduler in ("split_k", "stream_k")

    @property
    def is_whole(self) -> bool:
        """Whether it is one that the compiler has filled in: then what it has not (a cluster, an
        axis on wgmma's M) is not to be chosen.
        """
        filled = self.tile, self.stages, self.consumers, self.mode, self.scheduler, self.swizzle
        return None not in filled

    def _faults(self) -> list[Finding]:
        faults: list[Finding] = []
        for name, is_ok, expected in _CHECKS:
            held = getattr(self, name)
            if (held is not None or name == "arch") and not is_ok(held):
                today = _RENAMED.get((name, held)) if isinstance(held, str) else None
                hint = f'"{held}" is called "{today}" today' if today else ""
                message = f"Schedule.{name} is {held!r}; expected {expected}"
                faults.append(Finding(message, hint=hint))
        return faults

    def __hash__(self) -> int:
        # Kept: every call of a kernel asks for it.
        return self._hash

    def __getstate__(self) -> dict[str, Any]:
        # Without the hash, which is another one in another process.
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @cached_property
    def _hash(self) -> int:
        return hash(tuple(getattr(self, f.name) for f in fields(self)))

    def __repr__(self) -> str:
        shown = [
            f"{f.name}={_shown(getattr(self, f.name))}"
            for f in fields(self)
            if getattr(self, f.name) is not None and getattr(self, f.name) != f.default
        ]
        return f"Schedule({', '.join(shown)})"


def _positive(held: Any) -> bool:
    return isinstance(held, int) and not isinstance(held, bool) and held > 0


def _numbers(*numbers: int) -> Callable[[Any], bool]:
    return lambda held: _positive(held) and held in numbers


def _words(*words: str) -> Callable[[Any], bool]:
    return lambda held: held in words


def _is(kind: type) -> Callable[[Any], bool]:
    return lambda held: isinstance(held, kind)


_place = _words("registers", "shared", "tensor")


def _by_name(is_ok: Callable[[Any], bool]) -> Callable[[Any], bool]:
    # What is a mapping is one of these by now.
    return lambda held: (
        isinstance(held, FrozenDict)
        and all(isinstance(name, str) for name in held)  # pyright: ignore[reportUnnecessaryIsInstance]
        and all(map(is_ok, held.values()))
    )


def _names(held: Any) -> bool:
    return isinstance(held, tuple) and all(isinstance(x, str) for x in held)  # pyright: ignore[reportUnknownVariableType]


_CHECKS: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    ("tile", _by_name(_positive), "positive sizes in elements, by loop variable"),
    ("widths", _numbers(*range(1, 9)), "1 to 8 widths"),
    ("stages", lambda s: _positive(s) and s <= 32, "1 to 32 slots"),
    ("consumers", _numbers(1, 2, 3, 4), "1 to 4 compute warpgroups"),
    ("mode", _words("cooperative", "pingpong"), '"cooperative" or "pingpong"'),
    *((name, _is(str), "the name of a loop variable") for name in ("share", "raster", "mma")),
    ("cluster", _by_name(_numbers(1, 2, 4, 8)), "sizes of 1, 2, 4 or 8"),
    (
        "scheduler",
        _words("auto", "grid", "persistent", "dynamic", "split_k", "stream_k"),
        '"grid", "persistent", "dynamic", "split_k", "stream_k" or "auto"',
    ),
    ("splits", _positive, "a positive number"),
    ("cta_group", _numbers(1, 2), "1 or 2"),
    ("ctas_per_sm", lambda n: _positive(n) and n <= 16, "1 to 16 CTAs"),
    (
        "counters",
        _by_name(lambda e: isinstance(e, tuple) and all(map(_positive, e))),
        "numbers of elements along dimensions, by tensor, `dict(H=(64,))`",
    ),
    ("reduction", _words("serial", "parallel"), '"serial" or "parallel"'),
    ("swizzle", _numbers(*SWIZZLES), "1, 2, 4, 8, 16 or 32"),
    (
        "registers",
        _by_name(lambda v: _positive(v) and v % 8 == 0 and 24 <= v <= 256),
        "multiples of 8 from 24 to 256, by role",
    ),
    (
        "decode",
        lambda held: _place(held) or _by_name(_place)(held),
        '"registers", "shared" or "tensor", or these by tensor',
    ),
    (
        "precise_every",
        lambda p: _positive(p) or (type(p) is int and p == 0),
        "a number of elements, 0 for never",
    ),
    ("scale_path", _words("copy", "store"), '"copy" or "store"'),
    ("constant", _names, 'names of tensors, `("B",)`'),
    *((name, _is(bool), "True or False") for name in ("order_barriers", "multicast", "overlap")),
    ("arch", _words("sm_90a", "sm_100a", "sm_103a"), '"sm_90a", "sm_100a" or "sm_103a"'),
)
"""(field, whether it may hold this, what it may hold)."""
_RENAMED = {("reduction", "turns"): "serial", ("reduction", "slices"): "parallel"}
"""Today's word for an earlier one."""


def _shown(held: object) -> str:
    if isinstance(held, tuple):
        names: tuple[object, ...] = held
        return f"({', '.join(map(_shown, names))}{',' if len(names) == 1 else ''})"
    return f'"{held}"' if isinstance(held, str) else repr(held)


def changed(schedule: Schedule, **changes: Any) -> Schedule:
    """With other values of some fields: `dataclasses.replace`, for a choice among hundreds, where
    that takes a fifth of the time.
    """
    made = object.__new__(Schedule)
    made.__dict__.update(schedule.__dict__)
    made.__dict__.pop("_hash", None)
    for name, held in changes.items():
        # A choice has no values that it may not have.
        made.__dict__[name] = FrozenDict(held) if isinstance(held, dict) else held
    return made


def as_schedule(given: Any) -> Schedule | None:
    """ScheduleError where something else is given for a schedule."""
    if given is None or isinstance(given, Schedule):
        return given
    message = f"{given!r} is no schedule"
    raise ScheduleError(message, hint='give wsdsl.Schedule(stages=4, mode="pingpong")')


def with_constants(schedule: Schedule | None, names: Collection[str]) -> Schedule | None:
    """Tensors of these names are constant, too."""
    if not names:
        return schedule
    given = schedule or Schedule()
    return replace(given, constant=(*dict.fromkeys((*(given.constant or ()), *names)),))
