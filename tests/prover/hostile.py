"""Hostile mutants of kernels under five schedules each: `python -m tests.prover.hostile N SEED`.

The simulator finds the mutants that do harm: in some order, for some sizes, they hang, race, misuse
the hardware or give results that depend on the order. The verifier or the prover must reject each
of these. Mutants with one wrong result in every order compute something else, and are counted
apart.

`--part 3/16` takes every sixteenth kernel from the third on.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import traceback
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.prover.hostile_kernels import (
    FEATURES,
    KERNELS,
    ORDERS,
    SCHEDULES,
    Victim,
    featured,
    same,
    victim,
)
from tests.simulator.hostile_mutants import hostile_mutants
from tests.simulator.mutants import mutants
from tests.tensor_memory import mutants as of_tensor_memory
from wsdsl.diagnostics import ProofError, VerifyError
from wsdsl.ir.op import Kernel
from wsdsl.prover.prove import prove
from wsdsl.simulator.simulation_error import SimulationError

PROVER, SPEC = "refused by the prover", "refused by the spec"
HARMLESS, OTHER, HARM = "harmless", "another result", "harm"


@dataclass
class Outcome:
    """How many mutants ended how, and how many did harm; what is missed, what is refused and was
    right, and what is proved and computes something else."""

    kernels: int = 0
    ended: Counter[str] = field(default_factory=Counter[str])
    harmful: int = 0
    missed: list[str] = field(default_factory=list[str])
    alarms: list[str] = field(default_factory=list[str])
    others: list[str] = field(default_factory=list[str])

    def miss(self, told: str) -> None:
        """Told at once: a run takes long."""
        self.missed.append(told)
        print("MISSED", told, flush=True)

    def __str__(self) -> str:
        told = ", ".join(f"{n} {what}" for what, n in sorted(self.ended.items()))
        judged = f"of {self.harmful} that do harm {len(self.missed)} missed"
        number, alarms = self.ended.total(), len(self.alarms)
        return (
            f"{number} mutants of {self.kernels} kernels: {told}; {judged}; {alarms} false alarms"
        )


def refusal(kernel: Kernel) -> str:
    """Who refuses it; "" if it is proved. Anything but these two errors is a fault, and raised."""
    try:
        prove(kernel)
    except ProofError:
        return PROVER
    except VerifyError:
        return SPEC
    return ""


def harm(victim: Victim, mutant: Kernel) -> tuple[str, str]:
    """HARM, OTHER or HARMLESS, and what the simulator finds."""
    ended = HARMLESS
    for trial, wanted in zip(victim.trials, victim.wanted, strict=True):
        left: list[dict[str, Any]] = []
        for order in range(len(ORDERS)):
            try:
                left.append(trial.run(mutant, order))
            except SimulationError as error:
                if error.kind != "overlap":
                    return HARM, f"{error.kind}: {error.findings[0].message}"
                ended = OTHER
            except Exception:
                return HARM, traceback.format_exc()
        if not all(same(found, left[0]) for found in left):
            return HARM, "the results depend on the order"
        if not all(same(found, wanted) for found in left):
            ended = OTHER
    return ended, ""


def drawn(kernel: Kernel, rng: Random, count: int) -> list[tuple[str, Kernel]]:
    """Mutants of every kind in turn, as far as there are some."""
    kinds = defaultdict[str, list[tuple[str, Kernel]]](list)
    every = mutants(kernel), hostile_mutants(kernel), of_tensor_memory(kernel)
    for what, mutant in itertools.chain(*every):
        kinds[what.split()[0]].append((what, mutant))
    for held in kinds.values():
        rng.shuffle(held)
    order = rng.sample(sorted(kinds), len(kinds))
    turns = itertools.zip_longest(*(kinds[kind] for kind in order))
    return [m for m in itertools.chain.from_iterable(turns) if m is not None][:count]


def victims(seed: int, part: tuple[int, int]) -> Iterator[Victim]:
    """Of all kernels under all of their schedules those of one part of so many."""
    every = [(name, number) for number in range(SCHEDULES) for name in KERNELS]
    every += [(name, -1) for name in FEATURES]
    for name, number in itertools.islice(every, part[0] - 1, None, part[1]):
        yield featured(name) if number < 0 else victim(name, number, seed)


def attack(victims: Iterable[Victim], share: int, seed: int) -> Outcome:
    """So many mutants of each."""
    outcome = Outcome()
    for one in victims:
        outcome.kernels += 1
        try:
            _ = one.wanted
            refused = refusal(one.kernel)
        except Exception:
            refused = traceback.format_exc()
        if refused:
            outcome.alarms.append(str(one))
            print("FALSE ALARM", one, refused, flush=True)
            continue
        for what, mutant in drawn(one.kernel, Random(f"{seed} {one}"), share):
            told = f"{one}\n  {what}"
            try:
                refused = refusal(mutant)
            except Exception:
                outcome.miss(f"{told}\n  {traceback.format_exc()}")
                continue
            harmful, found = harm(one, mutant)
            outcome.ended[refused or f"proved, {harmful}"] += 1
            outcome.harmful += harmful == HARM
            if harmful == HARM and not refused:
                outcome.miss(f"{told}\n  {found}")
            elif harmful == OTHER and not refused:
                outcome.others.append(told)
    return outcome


def main(given: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="tests.prover.hostile")
    parser.add_argument("count", type=int)
    parser.add_argument("seed", type=int, nargs="?", default=0)
    parser.add_argument("--part", default="1/1", help="which of how many")
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="tell what computes something else"
    )
    asked = parser.parse_args(given)
    which, parts = (int(n) for n in asked.part.split("/"))
    share = -(-asked.count // (SCHEDULES * len(KERNELS) + len(FEATURES)))
    outcome = attack(victims(asked.seed, (which, parts)), share, asked.seed)
    if asked.verbose:
        print("\n".join(outcome.others))
    print(f"hostile, seed {asked.seed}, part {which}/{parts}: {outcome}")
    return 1 if outcome.missed or outcome.alarms else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
