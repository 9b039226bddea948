"""The shortest way to a failure, for a person to read and for the simulator to follow."""

import itertools
from collections.abc import Iterator

from wsdsl.diagnostics import Finding
from wsdsl.ir import ops
from wsdsl.ir.effects import Arrive, Wait
from wsdsl.ir.op import Kernel, Op, Value, walk
from wsdsl.ir.printer import IR_HINT, print_head, print_op
from wsdsl.ir.types import Sizes
from wsdsl.prover.failure import GLOBAL_ORDER, KINDS, SPLIT_K, Failure, Party
from wsdsl.prover.machine.explore import Decisions, Refuted, follow, start
from wsdsl.prover.machine.flatten import model_of
from wsdsl.prover.machine.history import History, Step, barrier_text
from wsdsl.prover.machine.machine import Machine
from wsdsl.prover.machine.model import Model
from wsdsl.record import record

MAX_TRIES = 160
SHOWN = 48


@record
class Counterexample:
    """How a kernel goes wrong.

    `sizes` are dimensions at which it does, None if none were found; then `script` lets
    `simulate(kernel, arrays, script=..., num_sms=1)` go the same way.
    """

    kind: str
    message: str
    hint: str
    party: Party
    earlier: Party | None
    names: tuple[str, ...]
    steps: tuple[Step, ...]
    waiting: tuple[tuple[int, Op, str], ...]
    sizes: Sizes | None
    script: tuple[tuple[str, Op], ...]

    @property
    def headline(self) -> str:
        shown = ", ".join(f"{k} = {v}" for k, v in (self.sizes or {}).items())
        return f"{self.message} (at {shown})" if shown else self.message

    def render(self) -> str:
        """The failure, a hint and the steps that lead to it."""
        prevented = [f"  hint: {self.hint}"] if self.hint else []
        return "\n".join((self.headline, *prevented, self.way()))

    def way(self) -> str:
        lines = ["  steps that lead to it:"]
        steps = self.steps
        if len(steps) > SHOWN:
            lines.append(f"    ... {len(steps) - SHOWN} steps before")
            steps = steps[-SHOWN:]
        width = max((len(n) for n in self.names), default=0)
        lines += [
            "    " + self._line(step.agent, width, step.op, step.loops, step.barrier)
            for step in steps
        ]
        for agent, op, why in self.waiting:
            lines.append("    " + self._line(agent, width, op, (), why))
        if self.earlier is not None:
            lines.append("  it conflicts with:")
            lines.append("    " + self._line(self.earlier.agent, width, self.earlier.op, (), ""))
        return "\n".join(lines)

    def _line(
        self, agent: int, width: int, op: Op, loops: tuple[tuple[str, str], ...], after: str
    ) -> str:
        where = "".join(f" %{name}={value}" for name, value in loops)
        line = f"line {op.loc.line}: " if op.loc else ""
        shown = print_head(op)
        return f"{self.names[agent]:{width}}  {line}{shown}{where}" + (
            f"  [{after}]" if after else ""
        )

    def _named(self, party: Party) -> str:
        """One line of the source may be several ops."""
        return f"{print_head(party.op)} of the {self.names[party.agent]}"

    def findings(self) -> list[Finding]:
        """The failing op, and the conflicting one, each at its location; then the steps."""
        hint = self.hint or IR_HINT
        if self.kind != "deadlock":
            hint += f"; the failing op is {self._named(self.party)}"
        made = [Finding(f"{KINDS[self.kind]}: {self.headline}", self.party.op.loc, hint)]
        if self.earlier is not None:
            clash = f"the conflicting op is {self._named(self.earlier)}"
            made.append(Finding(clash, self.earlier.op.loc))
        made.append(Finding(self.way()))
        return made


def counterexample(kernel: Kernel, refuted: Refuted) -> Counterexample:
    """Find the shortest way to the failure, at small sizes if any of them show it."""
    model = model_of(kernel)
    apart = refuted.failure.kind in (SPLIT_K, GLOBAL_ORDER)
    tries = 0 if apart else MAX_TRIES
    for sizes in itertools.islice(candidates(kernel), tries):
        m, history, failure = trace(model.at(sizes), ())
        if failure is not None:
            return tell(m, history, failure, sizes)
    m, history, failure = trace(model, refuted.decisions)
    return tell(m, history, failure or refuted.failure, None)


def trace(model: Model, decisions: Decisions) -> tuple[Machine, History, Failure | None]:
    """Run with a history, along the decisions; a failure, if there is one."""
    m, history = start(model), History()
    m.trace = history
    return m, history, follow(m, decisions)


def tell(m: Machine, history: History, failure: Failure, sizes: Sizes | None) -> Counterexample:
    if failure.kind == "deadlock":
        chosen = range(len(history.steps))
    else:
        kept = history.before(failure.details.get("past", 0))
        if failure.earlier is not None and failure.kind != "proxy":
            place = history.last(failure.earlier)
            may_be_later = ("before it is written", "miss it")
            if place >= 0 and not any(said in failure.message for said in may_be_later):
                kept |= history.before(history.pasts[place]) | {place}
        chosen = sorted(kept)
    steps = tuple(history.steps[i] for i in chosen)
    waiting: list[tuple[int, Op, str]] = []
    if failure.kind == "deadlock":
        for a in m.agents:
            if not a.ended:
                op = m.model.codes[a.partition].instructions[a.pc].op
                waiting.append((a.index, op, "waits here" + _why(m, a.index)))
            else:
                waiting.append((a.index, m.model.kernel.body[-1], "has ended"))
    else:
        known = failure.kind != "unknown"
        why = "fails here" if known else "followed up to here"
        waiting.append((failure.party.agent, failure.party.op, why))
    keys = agent_keys(m.model)
    script = tuple((keys[s.agent], s.op) for s in steps)
    if failure.kind != "deadlock":
        script = (*script, (keys[failure.party.agent], failure.party.op))
    return Counterexample(
        failure.kind,
        failure.message,
        failure.hint or _hint(m, failure),
        failure.party,
        failure.earlier,
        tuple(m.model.names),
        steps,
        tuple(waiting),
        sizes,
        script,
    )


def _why(m: Machine, agent: int) -> str:
    a = m.agents[agent]
    i = m.model.codes[a.partition].instructions[a.pc]
    match next((effect for effect in i.effects if isinstance(effect, Wait)), None):
        case Wait(on="mbarrier", item=Value(name=name)):
            return f" for parity {a.slots[i.extra[name]].parity}; {barrier_text(m, a, i)}"
        case Wait(on="registers"):
            more = i.op.count - a.registers
            return f" for {more} registers per thread; {m.pool[a.cta]} are free"
        case _:
            return ""


def _hint(m: Machine, failure: Failure) -> str:
    """Name the arrivals that could complete the barriers of waiting threads."""
    if failure.kind != "deadlock":
        return ""
    wanted: list[str] = []
    for a in m.agents:
        i = None if a.ended else m.model.codes[a.partition].instructions[a.pc]
        waits = [e for e in (i.effects if i else ()) if isinstance(e, Wait) and e.on == "mbarrier"]
        wanted += [wait.of.name for wait in waits if wait.of is not None]
    for name in dict.fromkeys(wanted):
        label = m.model.arrays[name].label
        lines = [
            f"line {op.loc.line}" if op.loc else print_op(op).strip()
            for op in walk(m.model.kernel.body)
            for e in op.effects(m.model.kernel.definers)
            if isinstance(e, Arrive) and e.of is not None and e.of.name == name and e.count
        ]
        if lines:
            return f"an arrival on `{label}` must come first; candidates: {', '.join(lines)}"
        return f"add an arrival on `{label}`: no op arrives on it"
    return ""


def agent_keys(model: Model) -> list[str]:
    """The agents as scripts of the simulator call them."""
    return [f"cta{model.ranks[cta]}/{n}.{p.role}.{rank}" for cta, n, p, rank in model.agents]


def _loop_steps(kernel: Kernel) -> Iterator[tuple[str, int]]:
    """The dimensions at whose ends loops end, each with the loop's step."""
    for op in (op for op in kernel.ops if isinstance(op, ops.Loop)):
        _, stop, step = map(kernel.definers.get, op.bounds)
        if isinstance(stop, ops.DimSize) and isinstance(step, ops.Constant):
            yield from [(stop.dim, step.value)] if isinstance(step.value, int) else []


def candidates(kernel: Kernel) -> Iterator[dict[str, int]]:
    """Small sizes: each dimension a few of the steps that loops and tiles take along it."""
    fixed = dict(kernel.sizes)
    grid = ops.grid_of(kernel)
    units = dict.fromkeys((op.dim for op in kernel.of(ops.DimSize)), 1)
    units |= dict(grid.tiles if grid else ())
    for dim, step in _loop_steps(kernel):
        units[dim] = max(units.get(dim, 1), step)
    open_dims = [dim for dim in units if dim not in fixed]
    most = 10 if len(open_dims) <= 2 else 6
    counts = itertools.product(range(most + 1), repeat=len(open_dims))
    for count in sorted(counts, key=lambda c: (sum(c), max(c, default=0))):
        yield {d: n * units[d] for d, n in zip(open_dims, count, strict=True)}
