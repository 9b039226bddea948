"""Schedule: the mapping of a kernel to the GPU. The compiler chooses fields that are left out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

from wsdsl.deprecation import FIELDS, current_fields, deprecate
from wsdsl.diagnostics import Finding, ScheduleError, unknown_names
from wsdsl.lazy import cached_property

Mode = Literal["cooperative", "pingpong"]
Place = Literal["registers", "smem", "tmem"]
Reduction = Literal["serial", "parallel"]
Scheduler = Literal["grid", "persistent", "dynamic", "split_k", "stream_k", "auto"]
ScalePath = Literal["cp", "st"]
Arch = Literal["sm_90a", "sm_100a", "sm_103a"]
SWIZZLES = (1, 2, 4, 8, 16, 32)
PRECISE_EVERY = 128
"""Elements of K between promotions of fp8 accumulators, if `mma_promotion_interval` is None."""


class FrozenDict(dict[str, Any]):
    """A dict that can be hashed and prints as `dict(m=128)`."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(sorted(self.items())))

    def __repr__(self) -> str:
        return f"dict({', '.join(f'{k}={_shown(v)}' for k, v in self.items())})"


@dataclass(frozen=True, repr=False)
class Schedule:
    """How a kernel is mapped to the GPU. The repr can be pasted back.

    tile: size of each loop's tile in elements, by loop variable, `dict(m=128, n=256, k=64)`
    tile_n_variants: number of N extents, 1 to 8, among which each launch chooses: that of `tile`,
        and extents that are 8, 16, ... columns smaller
    stages: number of pipeline stages
    consumers: number of compute warpgroups
    mode: "cooperative" (consumers split an output tile) or "pingpong" (one output tile each)
    order_barriers: whether cooperating consumers of back-to-back MMAs (attention) alternate on the
        tensor cores by an ordered-sequence barrier, as in FlashAttention-3. Default: by the cost
        model, if the softmax takes no longer than the MMAs
    consumer_split: the loop variable whose tile extent cooperating consumers split; default: the
        variable on wgmma's M
    cluster: CTAs per cluster along loop variables, `dict(m=2)`, at most 8 in all; along the
        contraction axis, `dict(k=2)`, for cluster split-K
    multicast: whether the CTAs of a cluster multicast TMA loads to each other; default: yes with a
        given cluster. Without it a cluster only places adjacent tiles on one GPC
    scheduler: "grid" (one tile per CTA), "persistent", "dynamic" (cluster launch control, on
        sm_100a and sm_103a), "split_k", "stream_k", "auto"
    splits: number of splits of each tile's contraction with "split_k"
    reduction: how the splits of a tile are reduced: "serial" (each split after the previous one) or
        "parallel" ("split_k" only; each split reduces a part of the tile). Both are deterministic
    raster: "auto", or the loop variable along which consecutive tiles run
    swizzle: raster swizzle group, in tiles: 1, 2, 4, 8, 16 or 32
    registers: registers per thread, by role, for setmaxnreg: `dict(load=40, compute=232)`
    ctas_per_sm: for memory-bound kernels, resident CTAs per SM; bounds the registers per thread
    smem_privatize: for memory-bound kernels, tensors whose scattered additions are privatized in
        SMEM, with the number of elements per dimension, `dict(H=(64,))`. Each CTA adds its bins to
        global memory at its end; additions to other elements go to global memory. `dict()`: none
    mma_m: the axis that maps to wgmma's M; `mma_m="n"` is swap-AB
    cta_group: 2 runs tcgen05's cta_group::2 (2SM) on a cluster of two CTAs: each CTA has a tile of
        its own and half of the shared operand (sm_100a and sm_103a)
    operand_transform: where a transformed operand (dequantized, or the result of an MMA) is
        written: "registers", by each consumer; "smem", by a warpgroup of its own; "tmem" (sm_100a
        and sm_103a). For all operands, or by tensor, `dict(W="registers", X="smem")`
    sf_load: how block scale factors get to TMEM: "cp" (tcgen05.cp, of scale factors that
        `Kernel.packed` arranges) or "st" (tcgen05.st by threads, row by row);
        default: by the layout of the scale factors
    mma_promotion_interval: for fp8, elements of K between promotions of the accumulator to f32;
        0: no promotion, which is faster and less exact
    pdl_independent: names of tensors that the previous kernel on the stream does not write,
        `("B",)` for weights: loads of them are issued before `griddepcontrol.wait`. The caller
        must guarantee it: a violation is not detected, and reads stale data
    launch_pdl: whether the next kernel on the stream may start before this one is complete, if it
        waits itself (programmatic dependent launch)
    arch: "sm_90a", "sm_100a" or "sm_103a"
    """

    tile: Mapping[str, int] | None = None
    tile_n_variants: int | None = None
    stages: int | None = None
    consumers: int | None = None
    mode: Mode | None = None
    order_barriers: bool | None = None
    consumer_split: str | None = None
    cluster: Mapping[str, int] | None = None
    multicast: bool | None = None
    scheduler: Scheduler | None = None
    splits: int | None = None
    reduction: Reduction | None = None
    raster: str | None = None
    swizzle: int | None = None
    registers: Mapping[str, int] | None = None
    ctas_per_sm: int | None = None
    smem_privatize: Mapping[str, tuple[int, ...]] | None = None
    mma_m: str | None = None
    cta_group: int | None = None
    operand_transform: Place | Mapping[str, Place] | None = None
    sf_load: ScalePath | None = None
    mma_promotion_interval: int | None = None
    pdl_independent: tuple[str, ...] | None = None
    launch_pdl: bool | None = None
    arch: Arch = "sm_90a"

    if not TYPE_CHECKING:  # a checker of types knows the fields

        def __getattr__(self, name: str) -> Any:
            if name not in FIELDS:
                raise AttributeError(f"Schedule has no field `{name}`")
            deprecate(f"Schedule.{name}", FIELDS[name])
            return getattr(self, FIELDS[name])

    def __post_init__(self) -> None:
        for name in ("tile", "cluster", "registers", "operand_transform", "smem_privatize"):
            held = getattr(self, name)
            if isinstance(held, Mapping):
                self.__dict__[name] = FrozenDict(held)
        if isinstance(self.pdl_independent, (list, tuple)):
            self.__dict__["pdl_independent"] = tuple(self.pdl_independent) or None
        findings = self._faults()
        if findings:
            raise ScheduleError(findings)

    @property
    def cuts_tiles(self) -> bool:
        """Whether the scheduler is split-K or stream-K."""
        return self.scheduler in ("split_k", "stream_k")

    @property
    def fixes_axes(self) -> bool:
        """Whether a field is about the kernel's axes, which a form on one axis does not have."""
        return bool(self.tile or self.cluster or self.consumer_split or self.mma_m)

    @property
    def is_whole(self) -> bool:
        """Whether the compiler has completed the schedule: then fields without a value (cluster,
        the axis on wgmma's M) are not chosen.
        """
        filled = self.tile, self.stages, self.consumers, self.mode, self.scheduler, self.swizzle
        return None not in filled

    def _faults(self) -> list[Finding]:
        faults: list[Finding] = []
        for name, is_ok, expected in _CHECKS:
            held = getattr(self, name)
            if (held is not None or name == "arch") and not is_ok(held):
                faults.append(Finding(f"WS0021 Schedule.{name} is {held!r}; expected {expected}"))
        return faults

    def __hash__(self) -> int:
        # Cached: every call of a kernel hashes its schedule.
        return self._hash

    def __getstate__(self) -> dict[str, Any]:
        # Without the hash, which differs between processes.
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @cached_property
    def _hash(self) -> int:
        return hash(tuple(getattr(self, f.name) for f in fields(self)))

    def __repr__(self) -> str:
        held = ((f, getattr(self, f.name)) for f in fields(self))
        shown = (f"{f.name}={_shown(x)}" for f, x in held if x is not None and x != f.default)
        return f"Schedule({', '.join(shown)})"


def _init(generated: Callable[..., None]) -> Callable[..., None]:
    """The dataclass's `__init__` with messages for unknown names, and deprecated ones accepted."""

    def init(self: Schedule, *args: Any, **named: Any) -> None:
        named = current_fields(named, warns=True)
        if unknown := unknown_names(named, self.__dataclass_fields__, "WS0022 Schedule"):
            raise ScheduleError(unknown)
        generated(self, *args, **named)

    return init


if not TYPE_CHECKING:
    Schedule.__init__ = _init(Schedule.__init__)


def _positive(held: Any) -> bool:
    return isinstance(held, int) and not isinstance(held, bool) and held > 0


def _numbers(*numbers: int) -> Callable[[Any], bool]:
    return lambda held: _positive(held) and held in numbers


def _one_of(kind: Any) -> tuple[Callable[[Any], bool], str]:
    """The check for a Literal of words, and the value that it expects."""
    words = get_args(kind)
    *first, last = (f'"{word}"' for word in words)
    return lambda held: held in words, f"{', '.join(first)} or {last}"


def _is(kind: type) -> Callable[[Any], bool]:
    return lambda held: isinstance(held, kind)


_place, _ = _one_of(Place)


def _by_name(is_ok: Callable[[Any], bool]) -> Callable[[Any], bool]:
    # Mappings have been converted to FrozenDict.
    return lambda held: (
        isinstance(held, FrozenDict)
        and all(isinstance(name, str) for name in held)  # pyright: ignore[reportUnnecessaryIsInstance]
        and all(map(is_ok, held.values()))
    )


def _names(held: Any) -> bool:
    return isinstance(held, tuple) and all(isinstance(x, str) for x in held)  # pyright: ignore[reportUnknownVariableType]


AXES = ("consumer_split", "raster", "mma_m")
SWITCHES = ("order_barriers", "multicast", "launch_pdl")
_CHECKS: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    ("tile", _by_name(_positive), "positive sizes in elements, by loop variable"),
    ("tile_n_variants", _numbers(*range(1, 9)), "1 to 8 extents"),
    ("stages", lambda s: _positive(s) and s <= 32, "1 to 32 stages"),
    ("consumers", _numbers(1, 2, 3, 4), "1 to 4 compute warpgroups"),
    ("mode", *_one_of(Mode)),
    *((name, _is(str), "the name of a loop variable") for name in AXES),
    ("cluster", _by_name(_numbers(1, 2, 4, 8)), "sizes of 1, 2, 4 or 8"),
    ("scheduler", *_one_of(Scheduler)),
    ("splits", _positive, "a positive number"),
    ("cta_group", _numbers(1, 2), "1 or 2"),
    ("ctas_per_sm", lambda n: _positive(n) and n <= 16, "1 to 16 CTAs"),
    (
        "smem_privatize",
        _by_name(lambda e: isinstance(e, tuple) and all(map(_positive, e))),
        "extents in elements by tensor, as in `dict(H=(64,))`",
    ),
    ("reduction", *_one_of(Reduction)),
    ("swizzle", _numbers(*SWIZZLES), "1, 2, 4, 8, 16 or 32"),
    (
        "registers",
        _by_name(lambda v: _positive(v) and v % 8 == 0 and 24 <= v <= 256),
        "multiples of 8 from 24 to 256, by role",
    ),
    (
        "operand_transform",
        lambda held: _place(held) or _by_name(_place)(held),
        '"registers", "smem" or "tmem", or these by tensor',
    ),
    (
        "mma_promotion_interval",
        lambda p: _positive(p) or (type(p) is int and p == 0),
        "a number of elements of K, or 0 for no promotion",
    ),
    ("sf_load", *_one_of(ScalePath)),
    ("pdl_independent", _names, 'names of tensors, `("B",)`'),
    *((name, _is(bool), "True or False") for name in SWITCHES),
    ("arch", *_one_of(Arch)),
)
"""(field, whether it may hold this, what it may hold)."""


def _shown(held: object) -> str:
    if isinstance(held, tuple):
        names: tuple[object, ...] = held
        return f"({', '.join(map(_shown, names))}{',' if len(names) == 1 else ''})"
    return f'"{held}"' if isinstance(held, str) else repr(held)


def changed(schedule: Schedule, **changes: Any) -> Schedule:
    """Replace fields, as `dataclasses.replace` does, in a fifth of its time and without checks, for
    heuristics that evaluate hundreds of schedules.
    """
    made = object.__new__(Schedule)
    made.__dict__.update(schedule.__dict__)
    made.__dict__.pop("_hash", None)
    for name, held in changes.items():
        # Heuristics choose legal values only.
        made.__dict__[name] = FrozenDict(held) if isinstance(held, dict) else held
    return made


def as_schedule(given: Any) -> Schedule | None:
    """Return a given schedule or None; ScheduleError for other types."""
    if given is None or isinstance(given, Schedule):
        return given
    message = f"WS0023 {given!r} is not a schedule"
    raise ScheduleError(message, hint='give wsdsl.Schedule(stages=4, mode="pingpong")')


def with_constants(schedule: Schedule | None, names: Collection[str]) -> Schedule | None:
    """Add names of tensors to `Schedule.constant`."""
    if not names:
        return schedule
    given = schedule or Schedule()
    independent = *(given.pdl_independent or ()), *names
    return replace(given, pdl_independent=tuple(dict.fromkeys(independent)))
