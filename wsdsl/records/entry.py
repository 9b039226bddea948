"""One measurement: of what, by which schedule, how quick, when."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, get_type_hints

from wsdsl.deprecation import current_fields
from wsdsl.lazy import cached_property
from wsdsl.schedule import PRECISE_EVERY, Schedule


class Key(NamedTuple):
    """Key of a tuning-cache entry. `kernel`: digest of its text at the level TILE; `sizes`: bucket;
    `alignment`: TMA-incompatible tensors, and those copied for TMA; `promises`: fields that the
    user must have given, since results depend on them; `card`: its name in `ir/hardware/target.py`.
    """

    kernel: str
    sizes: str
    alignment: str
    promises: str
    card: str
    num_sms: int


@dataclass(frozen=True)
class Row:
    """Microseconds of a call, in `bursts` of a few ms between those of others, and `sustained` (0
    where that was not measured). `spread`: half of what the middle half of bursts covers, as a part
    of their median. A row with a `failure` has no times.
    """

    kernel: str
    name: str
    """The kernel's, for people."""
    sizes: str
    alignment: str
    promises: str
    card: str
    num_sms: int
    device: str
    """As its driver calls it."""
    memory_gib: int
    emitter: str
    """The version of the compiler that made the code."""
    schedule: str
    bursts: float
    sustained: float
    spread: float
    samples: int
    date: str
    source: str
    """"tune", "shipped" or "imported"."""
    chosen: bool = False
    """Whether kernels are chosen by it: it won."""
    failure: str = ""
    exact: str = ""
    """The sizes that were measured, of the class."""

    @property
    def key(self) -> Key:
        return Key(*(getattr(self, name) for name in Key._fields))

    @cached_property
    def whole(self) -> Schedule:
        """The parsed schedule. ValueError if it is not a schedule, ScheduleError if it is wrong."""
        return parse_schedule(self.schedule)

    def fault(self) -> str:
        """Name a field of the schedule on which results depend and that its key does not promise.
        Raises as `whole` does.
        """
        promised = parse_schedule(self.promises or "Schedule()")
        for name in PROMISED:
            own, held = getattr(promised, name), getattr(self.whole, name)
            by_default = name == "mma_promotion_interval" and 0 < (held or 0) <= PRECISE_EVERY
            if held not in (own, None) and not (own is None and by_default):
                return f"its schedule has {name}={held!r}, but its key {own!r}"
        return ""

    def __str__(self) -> str:
        times = self.failure or f"{self.bursts:.1f} µs"
        if self.sustained and not self.failure:
            times += f" ({self.sustained:.1f} sustained)"
        return f"{times}, measured {self.date[:10]} on {self.device or self.card} ({self.source})"


COLUMNS: dict[str, type] = {f.name: get_type_hints(Row)[f.name] for f in fields(Row)}
"""By name, str, int, float or bool."""
WORDS: dict[type, tuple[type, ...]] = {str: (str,), float: (float, int, str)}
"""Types that a column is read from; other columns are read from int, or its text."""


def row_from(held: Mapping[str, Any]) -> Row:
    """ValueError or KeyError where a column is missing, of another type or not finite."""
    made: dict[str, Any] = {}
    for name, kind in COLUMNS.items():
        value = held[name]
        if not isinstance(value, WORDS.get(kind, (int, str))):
            raise ValueError(f"{name} is {value!r}; expected {kind.__name__}")
        made[name] = bool(int(value)) if kind is bool else kind(value)
        if kind is float and not math.isfinite(made[name]):
            raise ValueError(f"{name} is {value!r}; expected a finite number")
    if made["promises"]:
        made["promises"] = promises(parse_schedule(made["promises"]))
    return Row(**made)


PROMISED = "mma_promotion_interval", "pdl_independent", "arch"
"""Fields on which results depend, or that hold by the caller's word."""


def promises(given: Schedule | None) -> str:
    """Of what a user gave, the fields that are `PROMISED`."""
    if given is None:
        return ""
    held = Schedule(**{name: getattr(given, name) for name in PROMISED})
    return "" if held == Schedule() else repr(held)


def agrees(given: Schedule | None, whole: Schedule) -> bool:
    """Whether a whole schedule is one of those that the user's leaves open."""
    if given is None:
        return True
    for f in fields(Schedule):
        wanted, held = getattr(given, f.name), getattr(whole, f.name)
        if wanted is None or wanted == "auto":
            continue
        if isinstance(wanted, Mapping):
            own: Mapping[str, int] = held or {}
            if any(own.get(k) != n for k, n in wanted.items()):  # pyright: ignore[reportUnknownVariableType]
                return False
        elif wanted != held:
            return False
    return True


# Keys of tuning-cache entries.
Sizes = tuple[tuple[str, int], ...]


class Request(NamedTuple):
    """A request for a compiled kernel. TMA-incompatible tensors are copied before a launch if in
    `padded`, and accessed by threads if in `unaligned`. `num_sms`: the device's, where it has fewer
    than the GPU that schedules are chosen for, and too few for that choice. `record` fills in the
    fields that `schedule` leaves open, as does `shared`, of a kernel that serves several buckets.
    """

    schedule: Schedule | None
    sizes: Sizes
    unaligned: tuple[str, ...] = ()
    padded: tuple[str, ...] = ()
    num_sms: int | None = None
    record: Row | None = None
    shared: Schedule | None = None

    @property
    def whole(self) -> Schedule | None:
        return self.record.whole if self.record else self.shared

    @property
    def without_record(self) -> Request:
        """The request without the filled-in schedule, if that is stale or its code is rejected."""
        return self._replace(record=None, shared=None)


def parse_schedule(text: str) -> Schedule:
    """A Schedule from its repr, which is read and not run. ValueError for what is none,
    ScheduleError for one that is wrong.
    """
    held: dict[str, Any] = {}
    try:
        for name, tree in _arguments(ast.parse(text.strip(), mode="eval").body, "Schedule"):
            if isinstance(tree, ast.Call):
                held[name] = {k: ast.literal_eval(v) for k, v in _arguments(tree, "dict")}
            else:
                held[name] = ast.literal_eval(tree)
    except (SyntaxError, TypeError, RecursionError, MemoryError) as error:
        raise ValueError(text) from error
    return Schedule(**current_fields(held))


def _arguments(tree: ast.expr, name: str) -> Iterator[tuple[str, ast.expr]]:
    """Of a call of `name` by keywords. ValueError for anything else."""
    if not (isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and not tree.args):
        raise ValueError(name)
    given: set[str] = set()
    for keyword in tree.keywords:
        if tree.func.id != name or keyword.arg is None or keyword.arg in given:
            raise ValueError(name)
        given.add(keyword.arg)
        yield keyword.arg, keyword.value
