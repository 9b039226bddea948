"""A kernel's scalars are its tile scheduler's at all sizes: what differs at some is refused."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.prover.test_generated import other_turns
from tests.prover.test_split_k_protocol import objection, scheduled
from tests.simulator.mutants import exchange
from wsdsl.diagnostics import ProofError
from wsdsl.ir import ops
from wsdsl.ir.op import Kernel, Op, Value
from wsdsl.ir.ops import Partition
from wsdsl.ir.printer import print_op
from wsdsl.ir.rewriter import walk
from wsdsl.lowering.builder import FLAG, INT
from wsdsl.prover.prove import prove

LARGE = 1 << 20


def of_the_scheduler(kernel: Kernel, partition: Partition) -> set[Value]:
    """What the loop over the work, and the flags' places, counts and tests, are computed from."""
    made = kernel.definers
    ahead: list[Value] = []
    for op in walk(partition.body):
        match op:
            case ops.ForRange() if any(isinstance(o, ops.SemaphoreWait) for o in walk(op.body)):
                ahead += [op.start, op.stop, op.step]
            case ops.If() if any(
                isinstance(o, ops.SemaphoreWait | ops.SemaphoreArrive) for o in walk((op,))
            ):
                ahead.append(op.cond)
            case ops.SemaphoreWait():
                ahead += [*op.index, op.count]
            case ops.SemaphoreArrive():
                ahead += [*op.index, *(v for v in (op.by, op.wrap) if v)]
            case ops.StoreGlobal():
                ahead.append(op.index[0])
            case _:
                pass
    found: set[Value] = set()
    while ahead:
        value = ahead.pop()
        if value not in found:
            found.add(value)
            op = made.get(value)
            ahead += op.args if isinstance(op, ops.Map) else ()
            ahead += (op.start,) if isinstance(op, ops.Iota) else ()
    return found


def others(op: ops.Map, size: Value) -> Iterator[tuple[str, tuple[Op, ...]]]:
    """Ops that give what `op` does, but where that, or a size, is large."""
    name = op.result.name
    own = Value(f"{name}_own", op.result.type)
    first = replace(op, result=own)

    def number(suffix: str, n: int) -> ops.Constant:
        return ops.Constant(result=Value(f"{name}_{suffix}", INT), value=n)

    limit, one = number("limit", LARGE), number("one", 1)
    more, large = Value(f"{name}_more", INT), Value(f"{name}_large", FLAG)
    if op.result.type == FLAG:
        small = ops.Map(result=large, fn="lt", args=(size, limit.result))
        both = ops.Map(result=op.result, fn="and", args=(own, large))
        yield "and", (first, limit, small, both)
        return
    yield "min", (first, limit, ops.Map(result=op.result, fn="min", args=(own, limit.result)))
    low = number("limit", -LARGE)
    yield "max", (first, low, ops.Map(result=op.result, fn="max", args=(own, low.result)))
    yield "one more", (
        first, limit, one,
        ops.Map(result=large, fn="gt", args=(own, limit.result)),
        ops.Map(result=more, fn="add", args=(own, one.result)),
        ops.Map(result=op.result, fn="where", args=(large, more, own)),
    )  # fmt: skip
    if op.fn in ("floordiv", "mod"):
        other = "shr" if op.fn == "floordiv" else "and"
        yield other, (replace(op, fn=other),)
        yield "the other way round", (replace(op, args=op.args[::-1]),)
    elif op.fn == "where":
        yield "never", (replace(op, args=(op.args[0], op.args[1], op.args[1])),)


def mutants(kernel: Kernel) -> Iterator[tuple[str, Kernel]]:
    """All of the last compute partition's."""
    partition = [op for op in kernel.body if isinstance(op, Partition) and op.role == "compute"][-1]
    size = next(op.result for op in kernel.body if isinstance(op, ops.DimSize))
    used = of_the_scheduler(kernel, partition)
    inside = {id(op) for op in walk(partition.body)}
    for at, op in enumerate(walk(kernel.body)):
        if isinstance(op, ops.Map) and op.result in used and id(op) in inside:
            for what, new in others(op, size):
                yield f"{what} of {print_op(op).strip()}", exchange(kernel, at, *new)


EVERY = {
    "stream_k": 1, "split_k": 1, "parallel": 1, "cluster": 2, "cluster_slices": 1,
    "pingpong": 4, "three": 9,
}  # fmt: skip
"""How many mutants are passed over: in ping-pong the same scalars come once more."""


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", EVERY)
def test_other_at_large_sizes(name: str) -> None:
    made = list(mutants(scheduled(name)))
    assert len(made) > 60
    assert not [what for what, mutant in made[:: EVERY[name]] if not objection(mutant)]


def test_no_further_than_some_size() -> None:
    """Of what is loaded, too: other partitions have other bounds."""
    kernel, count = scheduled("stream_k"), 0
    for role, told in (("load", "deadlock|race|not|bounds"), ("compute", "tile scheduler|waits?")):
        inside = {id(o) for p in kernel.body if isinstance(p, Partition) and p.role == role
                  for o in walk(p.body)}  # fmt: skip
        for at, op in enumerate(walk(kernel.body)):
            if not (isinstance(op, ops.Map) and id(op) in inside and op.fn == "mul"):
                continue
            if op.result.name.startswith("begin"):
                low = replace(op, result=Value("begin_own", INT))
                most = ops.Constant(result=Value("most", INT), value=4096)
                cut = ops.Map(result=op.result, fn="min", args=(low.result, most.result))
                with pytest.raises(ProofError, match=told):
                    prove(exchange(kernel, at, low, most, cut))
                count += 1
    assert count == 2


@pytest.mark.parametrize("name", ["pingpong", "three"])
def test_whose_turn_it_is(name: str) -> None:
    """Exactly one partition's, in each turn."""
    turns = [turn for turn in other_turns(scheduled(name)) if "left_over" not in turn[0]]
    assert len(turns) >= 4
    assert not [what for what, mutant in turns if not objection(mutant)]


def test_pieces_that_go_through_a_tile_together_have_no_turns() -> None:
    kernel = scheduled("split_k")
    body = tuple(
        replace(op, together=True) if isinstance(op, ops.LaunchGrid) else op for op in kernel.body
    )
    assert objection(replace(kernel, body=body))
