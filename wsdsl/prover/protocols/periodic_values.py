"""Carried variables that depend on nothing but constants: whose tile it is, in ping-pong.

Such values come round: after some iterations they are what they were before. So all iterations are
looked at if each of these `PeriodicValues` is.
"""

import math
from collections.abc import Iterable, Mapping

from wsdsl.ir import ops
from wsdsl.ir.op import Makers, Value
from wsdsl.ir.rewriter import yielded
from wsdsl.prover.machine.symbolic_terms import FOLD
from wsdsl.reachability import reached
from wsdsl.record import record

MAX_PERIOD = 64
I32 = range(-(2**31), 2**31)
Known = Mapping[Value, int | None]
"""None: it depends on something else."""


@record
class PeriodicValues:
    """Values known in each iteration; after the last one comes that of number `again`."""

    known: tuple[Known, ...]
    again: int

    def number(self, iteration: int) -> int:
        if iteration < len(self.known):
            return iteration
        return self.again + (iteration - self.again) % (len(self.known) - self.again)


def periodic_values_of(work: ops.Loop, conditions: Iterable[Value], made: Makers) -> PeriodicValues:
    """As far as `conditions` ask for them."""
    used = _used(work, conditions, made)
    next_of = {arg: after for arg, after in zip(work.args, yielded(work.body)) if arg in used}
    held: dict[Value, int | None] = {}
    now: Known = {v: evaluate(x, held, made) for v, x in zip(work.args, work.init) if v in used}
    seen: list[Known] = []
    while now not in seen:
        if len(seen) == MAX_PERIOD:
            return PeriodicValues(({},), 0)
        seen.append(now)
        held = dict(now)
        now = {arg: evaluate(after, held, made) for arg, after in next_of.items()}
    return PeriodicValues(tuple(seen), seen.index(now))


def _used(work: ops.Loop, conditions: Iterable[Value], made: Makers) -> frozenset[Value]:
    """The loop's arguments on which the conditions depend, in this iteration or a later one."""

    def after(value: Value) -> tuple[Value, ...]:
        if value in work.args:
            return (yielded(work.body)[work.args.index(value)],)
        return op.args if isinstance(op := made.get(value), ops.Map) else ()

    return frozenset(reached(conditions, after)) & {*work.args}


def evaluate(value: Value, known: dict[Value, int | None], made: Makers) -> int | None:
    """None where it depends on more than constants and known values; a value found is added."""
    if value not in known:
        match made.get(value):
            case ops.Constant(value=int(number)):
                known[value] = number
            case ops.Map(fn=fn, args=args):
                known[value] = _apply(fn, [evaluate(x, known, made) for x in args])
            case _:
                known[value] = None
    return known[value]


def _apply(fn: str, args: list[int | None]) -> int | None:
    if fn == "where":
        test, then, orelse = args
        return None if test is None else then if test else orelse
    if None in args:
        return None
    if fn == "not":
        return not args[0]
    if fn not in FOLD or fn in ("shl", "shr") or (fn in ("floordiv", "mod") and not args[1]):
        return None
    made = int(FOLD[fn](*args))
    return made if made in I32 else None


def iterations_of(phases: Iterable[PeriodicValues]) -> range:
    """After this number of iterations all of them have been together in each way that comes."""
    held = list(phases)
    first = max((p.again for p in held), default=0)
    return range(first + math.lcm(*(len(p.known) - p.again for p in held)))
