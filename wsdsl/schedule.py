"""Schedule: the mapping of a kernel to the GPU. The compiler chooses fields that are left out."""

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
"""Elements of FP8 per accumulator promotion, if `precise_every` is left out."""


class FrozenDict(dict[str, Any]):
    """A dict that can be hashed and prints as `dict(m=128)`."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(sorted(self.items())))

    def __repr__(self) -> str:
        return f"dict({', '.join(f'{k}={_shown(v)}' for k, v in self.items())})"


@dataclass(frozen=True, repr=False)
class Schedule:
    """The mapping of a kernel to the GPU. The repr can be pasted back.

    tile: size of each loop's tile in elements, by loop variable, `dict(m=128, n=256, k=64)`
    widths: number of tile widths along wgmma's N from which each launch chooses: the width of
        `tile`, and those that are 8, 16, ... columns narrower, within the tile's last 64 columns
    stages: number of pipeline stages
    consumers: number of compute warpgroups
    mode: "cooperative" (consumers split an output tile) or "pingpong" (one tile per consumer)
    order_barriers: whether cooperative consumers of back-to-back MMAs (attention) alternate on the
        tensor cores by an ordered-sequence barrier, as in FlashAttention-3: while one warpgroup
        runs its MMAs, the others run the code between theirs. Default: whether that code takes no
        longer than the MMAs, by the hardware parameters of the GPU
    share: the loop variable along which cooperative consumers split the tile; along the others
        each consumer has the full extent. Default: the variable on wgmma's M
    cluster: CTAs per cluster along loop variables, `dict(m=2)`, at most 8 in total; along the
        contraction axis, `dict(k=2)`, the CTAs split the accumulation of each tile
    multicast: whether the CTAs of a cluster load common operand tiles for each other (default with
        a given cluster); a cluster without multicast only keeps adjacent tiles in one GPC, whose
        SMs have the responses of L2 in common
    scheduler: "grid" (one tile per CTA), "persistent", "dynamic" (each CTA gets its next tile from
        the hardware, on sm_100a and sm_103a), "split_k", "stream_k", "auto"
    splits: number of splits of each tile's contraction axis ("split_k")
    reduction: order in which the partial accumulators of a tile are added: "serial", each split
        after the previous one; or "parallel" ("split_k" alone), all at once, each split adding a
        part of the tile. Both give the same bits in every run
    raster: "auto", or the loop variable along which consecutive tiles are adjacent
    swizzle: tiles per raster swizzle group across the raster direction: 1, 2, 4, 8, 16 or 32
    registers: registers per thread, by role, for setmaxnreg: `dict(load=40, compute=232)`
    ctas_per_sm: resident CTAs per SM of a memory-bound kernel (without matmul), which hide each
        other's latency: ptxas limits the registers per thread to fit them
    counters: privatized SMEM bins of a memory-bound kernel: elements of the bins along each
        dimension, by name of the tensor to which the kernel adds at computed indices,
        `dict(H=(64,))`. Each CTA adds its bins to GMEM at its end; elements outside of the bins go
        to GMEM directly. `dict()` for no bins
    mma: the axis on wgmma's M
    cta_group: 2 pairs the CTAs of a cluster of two for MMAs (tcgen05's cta_group::2, CUTLASS's
        2SM), on GPUs with accumulators in tensor memory: each CTA has its own tile, and loads half
        of the operand that both tiles use
    decode: memory of a transformed operand: "registers", computed by each consumer, or "shared",
        written to SMEM by a dedicated warpgroup; for all operands, or by a tensor that the operand
        is loaded from, `dict(W="registers", X="shared")`. On GPUs with accumulators in tensor
        memory also "tensor". The result of an MMA as an operand of the next MMA is in "shared" or
        "tensor" memory, written by the warpgroup that computes it
    scale_path: instruction for block scale factors to tensor memory: "copy", tcgen05.cp of
        scale-factor atoms (`Kernel.packed`), or "store", tcgen05.st by a partition of threads, row
        by row. Default: as the layout of the scale factors requires; a given value requires it
    precise_every: for FP8, elements of the contraction axis that the tensor cores accumulate per
        promotion to f32; 0 for no promotion, which is faster and less exact
    constant: names of tensors that the previous kernel on the stream does not write, `("B",)` for
        weights: their loads may be issued before that kernel is complete. The caller is
        responsible: wsdsl cannot check it, and loads of a tensor that is written get stale or
        partly written data
    overlap: whether the next kernel on the stream may start before this kernel is complete, if the
        next kernel waits by itself (programmatic dependent launch)
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
        """Whether the scheduler is split-K or stream-K."""
        return self.scheduler in ("split_k", "stream_k")

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
                today = _RENAMED.get((name, held)) if isinstance(held, str) else None
                hint = f'"{held}" is called "{today}" today' if today else ""
                message = f"Schedule.{name} is {held!r}; expected {expected}"
                faults.append(Finding(message, hint=hint))
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
    # Mappings have been converted to FrozenDict.
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
    ("stages", lambda s: _positive(s) and s <= 32, "1 to 32 stages"),
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
"""(field, predicate of legal values, description of legal values)."""
_RENAMED = {("reduction", "turns"): "serial", ("reduction", "slices"): "parallel"}
"""Current value by (field, renamed value)."""


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
    message = f"{given!r} is not a schedule"
    raise ScheduleError(message, hint='give wsdsl.Schedule(stages=4, mode="pingpong")')


def with_constants(schedule: Schedule | None, names: Collection[str]) -> Schedule | None:
    """Add names of tensors to `Schedule.constant`."""
    if not names:
        return schedule
    given = schedule or Schedule()
    return replace(given, constant=(*dict.fromkeys((*(given.constant or ()), *names)),))
