"""Walking and rewriting IR: generic over ops, since fields say what they are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import is_
from typing import Any

from wsdsl.ir.op import (
    Kernel,
    Makers,
    Op,
    Region,
    Value,
    bound,
    defined,
    operands,
    regions,
    results_of,
    used_inside,
    uses,
    walk,
    with_fields,
)
from wsdsl.ir.op_fields import fields_of, names_of
from wsdsl.ir.ops import Yield
from wsdsl.reachability import reached


def definitions(kernel: Kernel) -> Iterator[Value]:
    """Every value of a kernel: parameters, results and region arguments."""
    return iter(kernel.defined)


def free_values(region: Region) -> tuple[Value, ...]:
    """Values that a region uses and does not define, in order of first use."""
    inner = {*defined(region)}
    return tuple(dict.fromkeys([v for v in uses(region) if v not in inner]))


def following(region: Region, values: Iterable[Value]) -> set[Op]:
    """The ops that depend on some of the values in the same iteration."""
    known, found = {*values}, set[Op]()
    for op in region:
        if not known.isdisjoint((*operands(op), *used_inside(op))):
            found.add(op)
            known.update(results_of(op))
    return found


def makers(region: Region, values: Iterable[Value]) -> Region:
    """The ops of a region that the values depend on in the same iteration."""
    wanted, found = {*values}, list[Op]()
    for op in reversed(region):
        if not wanted.isdisjoint(results_of(op)):
            found.append(op)
            wanted.update(operands(op), used_inside(op))
    return tuple(reversed(found))


def yielded(region: Region) -> tuple[Value, ...]:
    """Return the values that a region yields; none if it does not end in a yield."""
    last = region[-1] if region else None
    return last.values if isinstance(last, Yield) else ()


def definers(region: Region) -> dict[Value, Op]:
    """Which op defines a value, as a result or as an argument of its regions."""
    return {v: op for op in walk(region) for v in (*results_of(op), *bound(op))}


def made_of(
    values: Iterable[Value], made: Makers, through: Callable[[Op], bool]
) -> Iterator[tuple[Value, Op]]:
    """Values, and all that they are computed of by ops that it goes `through`; with what makes
    each.
    """

    def after(value: Value) -> tuple[Value, ...]:
        return operands(op) if (op := made.get(value)) and through(op) else ()

    return ((v, made[v]) for v in reached(values, after) if v in made)


def _replace_in(held: Any, swap: Mapping[Value, Value]) -> Any:
    if isinstance(held, Value):
        return swap.get(held, held)
    if isinstance(held, tuple):
        items: tuple[Any, ...] = held  # pyright: ignore[reportUnknownVariableType]
        return tuple([_replace_in(h, swap) for h in items])
    return held


def replace_operands(op: Op, swap: Mapping[Value, Value], inside: bool = True) -> Op:
    """The op with its operands (not what it defines) exchanged, in its regions too if `inside`."""
    if not swap or (swap.keys().isdisjoint(operands(op)) and not (inside and regions(op))):
        return op
    changed: dict[str, Any] = {}
    for name in names_of(type(op), "operand"):
        held = getattr(op, name)
        if held is not None and (new := _replace_in(held, swap)) != held:
            changed[name] = new
    for name in names_of(type(op), "region") if inside else ():
        held = getattr(op, name)
        if (new := tuple([replace_operands(inner, swap) for inner in held])) != held:
            changed[name] = new
    return with_fields(op, **changed) if changed else op


def with_regions(op: Op, change: Callable[[Region], Region]) -> Op:
    """The op with `change` applied to each of its regions; the same one if that changes nothing."""
    if not regions(op):
        return op
    changed: dict[str, Region] = {}
    for name in names_of(type(op), "region"):
        old: Region = getattr(op, name)
        new = change(old)
        if len(new) != len(old) or not all(map(is_, new, old)):
            changed[name] = new
    return with_fields(op, **changed) if changed else op


def rewrite(region: Region, change: Callable[[Op], Iterable[Op]]) -> Region:
    """The region with each op, whose own regions are rewritten before, exchanged for others."""
    made: list[Op] = []
    for op in region:
        own = with_regions(op, lambda own: rewrite(own, change)) if regions(op) else op
        made += change(own)
    return tuple(made)


class Namer:
    """Makes value names that are new in a kernel; the same requests give the same names."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self.taken = dict.fromkeys(taken, 1)

    @classmethod
    def of(cls, kernel: Kernel) -> Namer:
        return cls([v.name for v in kernel.defined])

    def new(self, wish: str) -> str:
        if wish not in self.taken:
            self.taken[wish] = 1
            return wish
        while True:
            name = f"{wish}_{self.taken[wish]}"
            self.taken[wish] += 1
            if name not in self.taken:
                self.taken[name] = 1
                return name

    def again(self, name: str) -> str:
        """A new name that looks like `name`, which may carry a number already."""
        return self.new(unnumbered(name))


def unnumbered(name: str) -> str:
    """A value's name as the text has it, which may have several of that name."""
    head, _, tail = name.rpartition("_")
    return head if head and tail.isdigit() else name


def copy_region(region: Region, namer: Namer, swap: dict[Value, Value] | None = None) -> Region:
    """A copy in which every value defined inside has a new name; `swap` exchanges outer ones."""
    swap = dict(swap or {})

    def fresh(held: Any) -> Any:
        if isinstance(held, Value):
            new = Value(namer.again(held.name), held.type)
            swap[held] = new
            return new
        return tuple(fresh(h) for h in held)

    def copy(op: Op) -> Op:
        cls, changed = type(op), dict[str, Any]()
        for name in names_of(cls, "operand"):
            changed[name] = _replace_in(getattr(op, name), swap)
        for name in names_of(cls, "bind"):
            changed[name] = fresh(getattr(op, name))
        for name in names_of(cls, "region"):
            changed[name] = tuple(copy(inner) for inner in getattr(op, name))
        for name in names_of(cls, "result"):
            changed[name] = fresh(getattr(op, name))
        return with_fields(op, **changed)

    return tuple(copy(op) for op in region)


def retype(region: Region, swap: Mapping[Value, Value]) -> Region:
    """The region with values exchanged where they are defined, too."""

    def change(op: Op) -> Op:
        changed: dict[str, Any] = {}
        for name, kind in fields_of(type(op)):
            held = getattr(op, name)
            if kind == "region":
                changed[name] = tuple(change(inner) for inner in held)
            elif kind != "attribute":
                changed[name] = _replace_in(held, swap)
        return with_fields(op, **changed)

    return tuple(change(op) for op in region)
