"""Ops are frozen dataclasses whose fields say, by annotation, what they are.

`Value` (or None, or a tuple of them) fields are operands, `result` defines values, `binds()` fields
define the arguments of the op's regions, tuples of ops are regions, and anything else is an
attribute. Printer, parser, walker and `replace` know nothing more about any op.
"""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import MISSING, FrozenInstanceError, dataclass, field
from functools import cache, wraps
from importlib import import_module
from operator import attrgetter, is_
from pkgutil import iter_modules
from types import ModuleType
from typing import Any, ClassVar, Literal, NoReturn, TypeVar, dataclass_transform

from wsdsl.diagnostics import Loc
from wsdsl.ir.effects import Effect, Effects
from wsdsl.ir.hardware.swizzle import SMEM_ALIGN
from wsdsl.ir.hardware.target import Target, target_of
from wsdsl.ir.op_fields import FieldKind, fields_of, names_of, op_name
from wsdsl.ir.plan import Plan
from wsdsl.ir.printer import definition, literal, print_region
from wsdsl.ir.types import Type
from wsdsl.ir.types import Value as Value
from wsdsl.lazy import cached_property
from wsdsl.schedule import Schedule

Level = Literal["tile", "partitioned", "scheduled"]
LEVELS: tuple[Level, ...] = ("tile", "partitioned", "scheduled")
TILE, PARTITIONED, SCHEDULED = (LEVELS[:1], LEVELS[1:2], LEVELS[2:])
TILES, ALL = LEVELS[:2], LEVELS
Check = Callable[[Any], str]
"""Return the legal values of an attribute if this is none of them, else ""."""
Threads = Literal["kernel", "one", "any", "warps", "warpgroup", "cta"]
"""The threads that run an op:

- "kernel": it is said once of the kernel, outside of any region;
- "one": a single thread, in an `elect`;
- "any": each thread for itself, be it one or all;
- "warps": all threads of a warp, each warp for itself;
- "warpgroup": all threads of a warpgroup; it has no meaning elsewhere;
- "cta": all threads of the CTA, or of the cluster.
"""


def _held(made: Op | Kernel) -> dict[str, Any]:
    """The fields, to be pickled: hashes, which were found out, are others in another process."""
    return {f.name: getattr(made, f.name) for f in dataclasses.fields(made)}


def binds(default: Any = MISSING) -> Any:
    """A field whose values are defined at the start of the op's region."""
    return field(default=default, metadata={"kind": "bind"})


def operands_in(op: Op, names: tuple[str, ...]) -> tuple[Value, ...]:
    """Return the values of fields."""
    found: list[Value] = []
    for name in names:
        held = op.__dict__[name]
        if isinstance(held, Value):
            found.append(held)
        elif held is not None:
            found += held
    return tuple(found)


class _Once:
    """An attribute that is found out when it is first asked for, and kept. `cached_property` takes
    a lock, in Python 3.11, that costs more than what an op is asked for. With `kind` it is made of
    the fields of that kind: a class that has none keeps `()` for all of its ops.
    """

    def __init__(self, make: Callable[[Op, tuple[str, ...]], Any], kind: FieldKind | None) -> None:
        self.make, self.kind = make, kind

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, op: Op | None, owner: type[Op]) -> Any:
        if op is None:
            return self
        names = names_of(owner, self.kind) if self.kind else ()
        made = op.__dict__[self.name] = self.make(op, names)
        if self.kind and not names and owner is not Op:
            setattr(owner, self.name, made)
        return made


OpT = TypeVar("OpT", bound="Op")
OPS: dict[str, type[Op]] = {}
"""Every op by its name in IR text; `import wsdsl.ir.ops` registers all."""
FORMER_NAMES: dict[str, type[Op]] = {}
"""Ops by the name that they had in version 0.1 (CONTRIBUTING.md, deprecation policy)."""
THREADS: dict[type[Op], Threads] = {}
"""By every op of SCHEDULED."""


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
def op_class(
    levels: tuple[Level, ...],
    threads: Threads | None = None,
    *,
    pure: bool = False,
    elementwise: bool = False,
    repeatable: bool | None = None,
    movable: bool = False,
    ranges: Mapping[str, Check] | None = None,
    ptx: str = "",
    result: type | None = None,
    any_lanes: bool = False,
    of_cluster: bool = False,
    by_lone_warps: bool = False,
    was: str = "",
) -> Callable[[type[OpT]], type[OpT]]:
    """Define a frozen dataclass of ops that may stand at `levels` and that `threads` run, with the
    methods of `Op`: those that `dataclass` writes and compiles for each of a hundred classes take a
    tenth of the time of importing the compiler.
    """

    def made(cls: type[OpT]) -> type[OpT]:
        cls.levels, cls.pure, cls.elementwise = levels, pure or elementwise, elementwise
        cls.repeatable = cls.pure if repeatable is None else repeatable
        cls.movable = cls.pure or cls.repeatable or movable
        cls.ptx, cls.ranges = ptx, ranges or {}
        cls.result_type, cls.any_lanes, cls.of_cluster = result, any_lanes, of_cluster
        cls.by_lone_warps = by_lone_warps
        if threads is not None:
            THREADS[cls] = threads
        if levels:
            OPS[op_name(cls)] = cls
        if was:
            FORMER_NAMES[was] = cls
        return dataclass(init=False, eq=False, repr=False, match_args=False, kw_only=True)(cls)

    return made


@cache
def _wanted(cls: type[Op]) -> tuple[Mapping[str, Any], Set[str]]:
    """Defaults of fields, and the names of all."""
    fields = dataclasses.fields(cls)
    defaults = {f.name: f.default for f in fields if f.default is not MISSING}
    return defaults, dict.fromkeys(f.name for f in fields).keys()


@op_class(())
class Op:
    """Base of all ops. `levels` are those of kernels that may have the op; `loc` takes no part in
    equality. Traits:

    - `pure`: results depend only on operands, attributes and the place of execution;
    - `elementwise`: an element of the result depends only on this element of the operands (pure);
    - `repeatable`: the op may be executed again with the same result, if no op between writes to
      `tensor`: pure ops that need no other thread, and loads;
    - `movable`: a loop may execute the op before its previous iteration is complete: pure and
      repeatable ops, MMAs, and reads and releases of pipeline stages.
    """

    ranges: ClassVar[Mapping[str, Check]]
    """Ranges of attributes that differ from those of `attribute_checks.BY_NAME`."""
    ptx: ClassVar[str]
    """The PTX instruction, and its immediate, of an op that is this one instruction."""
    levels: ClassVar[tuple[Level, ...]]
    result_type: ClassVar[type | None]
    """The class of the result's type, of an op that has one."""
    any_lanes: ClassVar[bool]
    """Whether fragments may have another register layout than an accumulator's."""
    of_cluster: ClassVar[bool]
    """Whether the op needs a cluster."""
    by_lone_warps: ClassVar[bool]
    """Whether warps of one warpgroup may run the op at different times."""
    pure: ClassVar[bool]
    elementwise: ClassVar[bool]
    repeatable: ClassVar[bool]
    movable: ClassVar[bool]
    loc: Loc | None = field(default=None)

    def __init__(self, **given: Any) -> None:
        defaults, names = _wanted(type(self))
        held = self.__dict__
        held |= defaults
        held |= given
        if len(held) != len(names) or not given.keys() <= names:
            wrong = ", ".join(sorted(held.keys() ^ names))
            raise TypeError(f"{type(self).__name__}: missing or unknown: {wrong}")

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise FrozenInstanceError(f"an op never changes: {name}")

    def __delattr__(self, name: str) -> NoReturn:
        raise FrozenInstanceError(f"an op never changes: {name}")

    def _fields(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name, _ in fields_of(type(self)))

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self is other or self._fields() == other._fields()

    def __hash__(self) -> int:
        return self._hash

    def __getstate__(self) -> dict[str, Any]:
        return _held(self)

    # Read hundreds of times. An op's results or operands identify it nearly always.
    _hash = _Once(lambda op, _: hash((type(op), op._results or op._operands)), None)
    _operands = _Once(operands_in, "operand")
    _results = _Once(operands_in, "result")
    _bound = _Once(operands_in, "bind")
    _regions = _Once(lambda op, names: tuple([getattr(op, n) for n in names]), "region")
    _inside = _Once(lambda op, _: tuple([o for r in op._regions for o in walk(r)]), "region")
    _within = _Once(lambda op, _: tuple([v for r in op._regions for v in defined(r)]), "region")
    _used = _Once(lambda op, _: tuple([v for r in op._regions for v in uses(r)]), "region")

    def effects(self, made: Makers) -> Effects:
        """Yield the accesses, arrivals, waits and fences of the op, in order; `made`: all makers of
        the kernel (`Kernel.definers`).
        """
        return ()

    def faults(self, made: Makers) -> Iterator[str]:
        """Yield the faults of a SCHEDULED op: attributes, each in its range, that contradict each
        other or the types of operands and results. Other ops are read only through `made`.
        """
        yield from ()

    @property
    def smem_bytes(self) -> int:
        """Bytes of SMEM that the op allocates, from `offset` on."""
        return 0

    @property
    def smem_align(self) -> int:
        """The alignment of this SMEM: that of one mbarrier or of an address."""
        return math.gcd(self.smem_bytes, 8)

    def item_align(self, made: Makers) -> int:
        """Return the alignment of the SMEM items that the op accesses."""
        return SMEM_ALIGN

    def at_width(self, columns: int) -> Op:
        """Return the op of the kernel whose tiles are narrower by `columns`, without `narrower`."""
        raise AssertionError(self)

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name, _ in fields_of(type(self)))
        return f"{type(self).__name__}({shown})"


@op_class(())
class OneResult(Op):
    """Base of ops that define one value."""

    result: Value = field(metadata={"kind": "result"})


@op_class(())
class Unary(OneResult):
    """Base of ops that define one value from the operand `x` and attributes."""

    x: Value


@op_class(())
class ManyResults(Op):
    """Base of ops that define any number of values."""

    result: tuple[Value, ...] = field(default=(), metadata={"kind": "result"})


Region = tuple[Op, ...]
Makers = Mapping[Value, Op]
"""Which op defines a value, as a result or as an argument of its regions."""


def in_family(name: str) -> tuple[type[Op], ...]:
    """Return the classes of ops that a file of `ir/ops` defines."""
    return tuple([cls for cls in OPS.values() if cls.__module__.endswith(f".{name}")])


def by_op(*modules: ModuleType, prefix: str = "") -> dict[type[Op], Any]:
    """Return the function of each SCHEDULED op that one of the modules, or of the files of a
    package, defines, by its name: a prefix, and the op's name in IR text.
    """
    names = {prefix + op_name(cls): cls for cls in THREADS}
    found = dict[type[Op], Any]()
    for module in modules:
        files = iter_modules(getattr(module, "__path__", ()))
        for m in (module, *(import_module(f"{module.__name__}.{file.name}") for file in files)):
            own = (item for item in vars(m).items() if item[0] in names)
            found |= {names[n]: f for n, f in own if getattr(f, "__module__", "") == m.__name__}
    return found


def effects(cls: type[Op]) -> bool:
    """Return whether ops of a class have effects other than their results."""
    return cls.effects is not Op.effects


def attributes_of(op: Op) -> tuple[Any, ...]:
    """The values of all its attributes: two ops of a class that agree in them, and in the types of
    results, make the same of the same operands.
    """
    held = op.__dict__
    return tuple([held[name] for name in names_of(type(op), "attribute")])


operands: Callable[[Op], tuple[Value, ...]] = attrgetter("_operands")
results_of: Callable[[Op], tuple[Value, ...]] = attrgetter("_results")
bound: Callable[[Op], tuple[Value, ...]] = attrgetter("_bound")
regions: Callable[[Op], tuple[Region, ...]] = attrgetter("_regions")
used_inside: Callable[[Op], tuple[Value, ...]] = attrgetter("_used")
"""Operands in its regions, defined in them or not."""
within: Callable[[Op], tuple[Value, ...]] = attrgetter("_within")
"""All values that are defined in its regions, but for their arguments."""
inside: Callable[[Op], tuple[Op, ...]] = attrgetter("_inside")
"""All that is in its regions, as `walk` gives it."""


def walk(region: Iterable[Op]) -> list[Op]:
    """Every op, outer before inner, in textual order."""
    return [inner for op in region for inner in (op, *inside(op))]


def defined(region: Region) -> list[Value]:
    """Every value that is defined in a region, in textual order."""
    return [v for op in region for v in (*results_of(op), *bound(op), *within(op))]


def uses(region: Iterable[Op]) -> list[Value]:
    """Every operand in a region and the regions in it."""
    return [v for op in region for v in (*operands(op), *used_inside(op))]


def with_fields(op: OpT, **changed: Any) -> OpT:
    """`dataclasses.replace`, of ops, in a third of the time."""
    held, names, made = op.__dict__, _wanted(type(op))[1], object.__new__(type(op))
    fields = made.__dict__
    fields |= {name: held[name] for name in names}
    fields |= changed
    if len(fields) != len(names):
        raise TypeError(f"{type(op).__name__} has no {', '.join(changed.keys() - names)}")
    return made


@dataclass(frozen=True)
class Kernel:
    """A kernel at one level. `params` are tensors and scalars; their order is the call's.

    `sizes` fixes dimensions at compile time (those that are taken whole); `unaligned` names tensors
    whose address or row stride is not a multiple of 16 bytes, which TMA cannot take; `padded` those
    that the runtime copies to longer rows first, which guides a choice and is not printed;
    `schedule` is what the user chose, and the whole choice from `choose_schedule` on; `card` is
    the one that it is chosen for, if that is another than the first of `schedule.arch`; `plan` is
    what follows from the schedule, for passes from `make_plan` on; `positive` names the
    scalars that must be positive, or the size of tiles would show.
    """

    name: str
    level: Level
    params: tuple[Value, ...]
    body: Region
    sizes: tuple[tuple[str, int], ...] = ()
    unaligned: tuple[str, ...] = ()
    padded: tuple[str, ...] = field(default=(), compare=False)
    schedule: Schedule | None = None
    card: Target | None = field(default=None, compare=False)
    plan: Plan | None = field(default=None, compare=False, repr=False)
    positive: tuple[str, ...] = field(default=(), compare=False)
    loc: Loc | None = field(default=None, compare=False, repr=False)

    @property
    def target(self) -> Target:
        """The GPU that it is compiled for."""
        return self.card or target_of((self.schedule or Schedule).arch)

    def with_body(self, body: Region) -> Kernel:
        """With these ops; itself where they are its own, so that what is known of it stays."""
        same = len(body) == len(self.body) and all(map(is_, body, self.body))
        return self if same else dataclasses.replace(self, body=body)

    @cached_property
    def ops(self) -> tuple[Op, ...]:
        """Every op, outer before inner, in textual order: `walk(kernel.body)`, but only once."""
        return tuple(walk(self.body))

    def of(self, *kinds: type[OpT]) -> Sequence[OpT]:
        """The ops of one class, or of some, in textual order."""
        if len(kinds) == 1:
            return self._by_class.get(kinds[0], ())
        there = [kind for kind in kinds if kind in self._by_class]
        if len(there) > 1:
            return [op for op in self.ops if type(op) in there]  # pyright: ignore[reportReturnType]
        return self.of(*there) if there else ()

    def making(self, kind: type[Type]) -> Sequence[Any]:
        """The ops whose result is of a class of types (`result_type`), in textual order."""
        return self.of(*[cls for cls in self._by_class if cls.result_type is kind])

    def having(self, name: str) -> Sequence[Op]:
        """The ops that have such a field, in textual order."""
        return self.of(*[kind for kind in self._by_class if name in _wanted(kind)[1]])

    @cached_property
    def _by_class(self) -> Mapping[type[Op], Sequence[Any]]:
        made = defaultdict[type[Op], list[Op]](list)
        for op in self.ops:
            made[type(op)].append(op)
        return made

    @cached_property
    def defined(self) -> tuple[Value, ...]:
        """Every value: parameters, results and region arguments."""
        return (*self.params, *[v for op in self.ops for v in (*results_of(op), *bound(op))])

    @cached_property
    def definers(self) -> Makers:
        return {v: op for op in self.ops for v in (*results_of(op), *bound(op))}

    @cached_property
    def allocations(self) -> Sequence[tuple[Op, range]]:
        """The ops that allocate SMEM, each with its bytes; they start at -1 if not placed yet."""
        found = [(op, getattr(op, "offset", -1)) for op in self.body if op.smem_bytes]
        return [(op, range(at, at + op.smem_bytes)) for op, at in found]

    @cached_property
    def effects(self) -> Sequence[tuple[Op, tuple[Effect, ...]]]:
        """Every op with its effects, in textual order."""
        made = self.definers
        return [(op, tuple(op.effects(made)) if effects(type(op)) else ()) for op in self.ops]

    @cached_property
    def effects_of(self) -> Mapping[int, tuple[Effect, ...]]:
        """The effects of each op, by its id."""
        return {id(op): stated for op, stated in self.effects}

    def __getstate__(self) -> dict[str, Any]:
        return _held(self)

    def __str__(self) -> str:
        head = f"kernel {self.name} @ {self.level} ({', '.join(map(definition, self.params))})"
        if self.sizes:
            head += f" sizes={literal(self.sizes)}"
        if self.unaligned:
            head += f" unaligned={literal(self.unaligned)}"
        if self.schedule is not None:
            head += f" schedule={self.schedule!r}"
        return f"{head} {{\n{print_region(self.body, 1)}}}\n"


Problem = tuple[Op | None, str]
"""A broken rule: the op that breaks it, and how."""
Found = TypeVar("Found")
Subject = TypeVar("Subject")


def once(find: Callable[[Subject], Found]) -> Callable[[Subject], Found]:
    """Cache the result of a function of a kernel, or of its `Work`, in its argument. Nothing may
    change the result.
    """

    name = f"_once_{find.__module__}.{find.__qualname__}"

    @wraps(find)
    def found(subject: Subject) -> Found:
        kept = subject.__dict__
        if name not in kept:
            kept[name] = find(subject)
        return kept[name]

    return found


def once_each(find: Callable[[Kernel, Schedule], Found]) -> Callable[[Kernel, Schedule], Found]:
    """`once`, by the schedule: a choice asks the same of hundreds, many times of each."""

    name = f"_each_{find.__name__}"

    @wraps(find)
    def found(kernel: Kernel, schedule: Schedule) -> Found:
        kept: dict[int, tuple[Schedule, Found]] = kernel.__dict__.setdefault(name, {})
        # By its identity, as it is kept, too: to hash a schedule takes longer.
        if (key := id(schedule)) not in kept:
            kept[key] = schedule, find(kernel, schedule)
        return kept[key][1]

    return found
