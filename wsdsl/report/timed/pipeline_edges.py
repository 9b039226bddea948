"""Names of barriers: the tensors in a pipeline, and the phase that is waited for."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from wsdsl.ir.effects import Access, Arrive
from wsdsl.ir.op import Kernel, Op, Value, operands, walk
from wsdsl.ir.ops import Partition
from wsdsl.ir.types import Fragment, State
from wsdsl.report.timed.cycle_costs import OpEffects

FULL, EMPTY = "full", "empty"


def edge_names(kernel: Kernel, effects: Mapping[int, OpEffects]) -> dict[str, str]:
    """By the name of a value that is barriers: "pipeline of A, B (full)"."""
    made: Any = kernel.definers
    brought: dict[str, dict[str, None]] = defaultdict(dict)
    scaling = {id(op) for p in kernel.of(Partition) if p.role == "scale" for op in walk(p.body)}
    for op in kernel.ops:
        for value, name in _brought(op, effects[id(op)], id(op) in scaling):
            brought[_number(made[value].label)][name] = None
    found: dict[str, str] = {}
    barriers: Any = kernel.having("arrivals")
    for op in barriers:
        side = next((s for s in (FULL, EMPTY) if op.label.startswith(s)), op.label)
        what = ", ".join(brought[_number(op.label)])
        found[op.result.name] = f"pipeline of {what} ({side})" if what else op.label
    return found


def _brought(op: Op, effects: OpEffects, scales: bool) -> Iterator[tuple[Value | None, str]]:
    """Yield the stages, or the barriers, to which an op brings data, and the data's name."""
    arrival = next((e for e in effects.events if isinstance(e, Arrive)), Arrive("grid"))
    has_fragments = any(isinstance(v.type, Fragment) for v in operands(op))
    match effects.accesses.get("smem"), effects.accesses.get("gmem"):
        case Access(kind="write", of=stages), Access(kind="read", of=Value(name=name)):
            yield arrival.of or stages, name
        case Access(kind="write", asynchronous=True), None:
            yield arrival.of, "the next tile"
        case Access(kind="write", cta=Value()), None:
            yield arrival.of, "accumulators of the cluster"
        case Access(kind="write", of=stages, item=Value(type=State()), ctas=1), None if (
            has_fragments
        ):
            yield stages, "transformed operands"
        case _:
            pass
    match effects.accesses.get("tmem"):
        case Access(kind="write", of=stages) if has_fragments:
            yield stages, "transformed operands"
        case _:
            pass
    # Arrivals at empty barriers release a stage of another pipeline.
    if arrival.on == "mbarrier" and arrival.of and arrival.of.name.startswith(FULL):
        if arrival.asynchronous:
            yield arrival.of, "accumulators"
        elif scales:
            yield arrival.of, "scale factors"


def _number(label: str) -> str:
    """Return the number in a pipeline's labels of barriers and stages: full_1, empty_1, slots_1."""
    number = label.rpartition("_")[2]
    return number if number.isdigit() else ""
