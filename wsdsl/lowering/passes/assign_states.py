"""Make the stage and parity of every slot explicit, and carry them through the loops.

Before:
    for_range(index=%k, ...) {
      %slot = consumer_wait(ring=%ring)
      ...
    }
After:
    %s0: state = initial_state(parity=0)
    %s3: state = for_range(index=%k, ..., init=(%s0,), args=(%s1: state,)) {
      %slot = consumer_wait(ring=%ring, state=%s1)
      %s2: state = advance(state=%s1, num=4)
      ...
      yield(values=(%s2,))
    }

A producer starts with parity 1, so that it does not wait in the first lap. Of a slot that is
skipped nothing is left but that the state goes on.

Why here: afterwards each slot operation can be lowered by itself.
"""

from wsdsl.ir import ops
from wsdsl.ir.op import Kernel, Op, Region, Value, regions, with_fields
from wsdsl.ir.rewriter import Namer, walk
from wsdsl.ir.types import State

States = dict[Value, Value]
"""The current state of every ring."""


def assign_states(kernel: Kernel) -> Kernel:
    rings = {op.result: op for op in kernel.body if isinstance(op, ops.Pipeline)}
    return ops.with_partitions(kernel, _Threading(rings, Namer.of(kernel)).partition)


def _rings_in(region: Region) -> list[Value]:
    """Rings whose state moves on in a region, in order of first use."""
    taken = [op.ring for op in walk(region) if isinstance(op, ops.TakesStage)]
    return list(dict.fromkeys(ring for ring in taken if ring is not None))


class _Threading:
    def __init__(self, rings: dict[Value, ops.Pipeline], namer: Namer) -> None:
        self.rings, self.namer = rings, namer

    def state(self) -> Value:
        return Value(self.namer.new("s"), State())

    def partition(self, op: ops.Partition) -> ops.Partition:
        states: States = {}
        first: list[Op] = []
        filled = {inner.ring for inner in walk(op.body) if isinstance(inner, ops.ProducerAcquire)}
        for ring in _rings_in(op.body):
            states[ring] = self.state()
            parity = 1 if ring in filled else 0
            first.append(ops.InitialState(result=states[ring], parity=parity, loc=op.loc))
        return with_fields(op, body=(*first, *self.region(op.body, states)))

    def region(self, region: Region, states: States) -> Region:
        """Rewrites a region; `states` is brought up to its end."""
        made: list[Op] = []
        for op in region:
            match op:
                case _ if "scheduled" in op.levels and not regions(op):
                    made.append(op)
                case _ if isinstance(op, ops.TakesStage):
                    assert op.ring is not None
                    if not isinstance(op, ops.SkipSlot):
                        made.append(with_fields(op, state=states[op.ring]))
                    ring = self.rings[op.ring]
                    for _ in ring.parts or (0,):
                        before, states[op.ring] = states[op.ring], self.state()
                        ends = dict(result=states[op.ring], state=before)
                        made.append(ops.Advance(**ends, num=ring.depth, loc=op.loc))
                case ops.ProducerTail() | ops.NoSlot():
                    made.append(with_fields(op, state=states[op.ring]))
                case ops.Loop():
                    made.append(self.loop(op, states))
                case ops.If():
                    made.append(self.branch(op, states))
                case _:
                    assert not any(_rings_in(inner) for inner in regions(op))
                    made.append(op)
        return tuple(made)

    def loop(self, op: ops.Loop, states: States) -> ops.Loop:
        rings = _rings_in(op.body)
        if not rings:
            return op
        inside = dict(states) | {ring: self.state() for ring in rings}
        args = tuple(inside[ring] for ring in rings)
        init = tuple(states[ring] for ring in rings)
        body = self.region(op.body, inside)
        states |= {ring: self.state() for ring in rings}
        return with_fields(
            op,
            result=(*op.result, *(states[ring] for ring in rings)),
            init=(*op.init, *init),
            args=(*op.args, *args),
            body=_yield_more(body, tuple(inside[ring] for ring in rings)),
        )

    def branch(self, op: ops.If, states: States) -> ops.If:
        rings = list(dict.fromkeys((*_rings_in(op.then), *_rings_in(op.orelse))))
        if not rings:
            return op
        then_states, else_states = dict(states), dict(states)
        then = self.region(op.then, then_states)
        orelse = self.region(op.orelse, else_states)
        states |= {ring: self.state() for ring in rings}
        return with_fields(
            op,
            result=(*op.result, *(states[ring] for ring in rings)),
            then=_yield_more(then, tuple(then_states[ring] for ring in rings)),
            orelse=_yield_more(orelse, tuple(else_states[ring] for ring in rings)),
        )


def _yield_more(region: Region, more: tuple[Value, ...]) -> Region:
    last = region[-1] if region else None
    if not isinstance(last, ops.Yield):
        return (*region, ops.Yield(values=more))
    return (*region[:-1], with_fields(last, values=(*last.values, *more)))
