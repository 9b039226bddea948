"""Where an exploration has been: a fault of the prover must not pass for a proof.

Nothing but control leads anywhere else than to the next op. So what has run is looked at, and the
ways that control went: both from where a test was open, and from the end of a loop that runs any
number of times; nowhere but to where the op leads; and what it leads to has run. Behind a way that
no agent went there follows then from constants, or from earlier decisions.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from wsdsl.ir import ops
from wsdsl.ir.op import Op
from wsdsl.prover.failure import Failure, Party
from wsdsl.prover.machine.instructions import Code, Instruction
from wsdsl.prover.machine.model import Model

VACUOUS = "the prover has a fault: it never"


@dataclass(eq=False)
class Visited:
    """`went`: control, and the places that it went to. `open`: control whose way was open."""

    ran: set[Instruction] = field(default_factory=set[Instruction])
    went: dict[Instruction, set[int]] = field(default_factory=dict[Instruction, set[int]])
    open: set[Instruction] = field(default_factory=set[Instruction])

    def ask(self, i: Instruction, slots: Sequence[Any]) -> None:
        """The way of `i` is open. Of parts of a test both outcomes may lead the same way."""
        if i.target < 0:
            return
        test: Any = slots[i.uses[0]] if isinstance(i.op, ops.If) else ()
        while test[:1] == ("not",):
            test = test[1]
        if test[:1] not in (("and",), ("or",)):
            self.open.add(i)

    def check(self, model: Model) -> None:
        """Raises Failure at an op that had to run, or way that had to be gone, and was not."""
        agent = 0
        for number, code in enumerate(model.codes):
            told, op = self._missed(code, number == 0)
            if op is not None:
                raise Failure("unknown", f"{VACUOUS} {told}", Party(agent, op))
            agent += model.partitions[number].num_agents if model.partitions else 1

    def _missed(self, code: Code, first: bool) -> tuple[str, Op | None]:
        instructions = code.instructions
        if instructions[0] not in self.ran:
            return "ran this", instructions[0].op
        for pc, i in enumerate(instructions[:-1]):
            if i not in self.ran:
                continue
            ways = {pc + 1} if i.target < 0 else {i.target} if i.leaves else {pc + 1, i.target}
            gone = self.went.get(i, set[int]()) if i.target >= 0 else ways
            if not gone or gone - ways:
                return "went where this leads", i.op
            # One thread of each partition is elected in it, and outside of them one in all.
            elected = isinstance(i.op, ops.Elect) and (i.extra or first)
            if elected and pc + 1 not in gone:
                return "ran what this elects a thread for", i.op
            if i in self.open and gone != ways:
                return "went both ways from here", i.op
            for way in gone:
                if instructions[way] not in self.ran:
                    return "ran this", instructions[way].op
        return "", None
