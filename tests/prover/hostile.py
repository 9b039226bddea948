"""Hostile mutants of kernels under five schedules each: `python -m tests.prover.hostile N SEED`.

The simulator says which of them do harm: wrong values, a race or a deadlock in some order. Of these
the spec or the prover must refuse each one. N are the mutants that are drawn.
"""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from collections.abc import Iterator
from random import Random

import numpy as np

from tests.kernels import CASES, check, expected, inputs
from tests.prover.random_schedules import random_schedule
from tests.simulator.hostile_mutants import hostile_mutants
from tests.simulator.mutants import mutants
from wsdsl.diagnostics import ProofError, VerifyError, WsdslError
from wsdsl.ir.op import Kernel
from wsdsl.prover.prove import prove
from wsdsl.simulator.machine import simulate

KERNELS = (
    "gemm", "mn_major", "epilogue", "two_products", "held_operand", "nested", "product_f8e4m3",
    "block_scaled", "two_loops", "batched", "reduce_into", "bias_first",
)  # fmt: skip
SCHEDULES, SEEDS = 5, 3
OF_VALUES = ("wrong", "relative error", "absolute error", "with other bits", "Mismatched", "nan")
"""What the simulator and the reference say of a kernel that computes something else, of which no
proof speaks: an operand is read where other operands lie, for instance."""


def victims(rng: Random) -> Iterator[tuple[str, Kernel, dict[str, int]]]:
    """Each kernel under each of its schedules."""
    for name in rng.sample(KERNELS, len(KERNELS)):
        case, found = CASES[name], 0
        sizes = dict.fromkeys(case.kernel.dims, 136) | dict(case.sizes)
        for _ in range(60):
            threads = tuple(p.name for p in case.kernel.tile.params) if rng.random() < 0.3 else ()
            try:
                compiled = case.kernel._compile(random_schedule(rng), sizes, threads)
                kernel = compiled.scheduled
            except WsdslError:
                continue
            yield name, kernel, sizes | dict(kernel.sizes)
            found += 1
            if found == SCHEDULES:
                break


def refusal(kernel: Kernel) -> str:
    """Who refuses it; "" if it is proved. Anything but these two errors is a fault, and raised."""
    try:
        prove(kernel)
    except ProofError:
        return "prover"
    except VerifyError:
        return "spec"
    return ""


def harm(name: str, kernel: Kernel, sizes: dict[str, int]) -> str:
    """What the simulator finds in some order; what is not only about values first."""
    case, found = CASES[name], list[str]()
    with np.errstate(all="ignore"):
        for seed in range(SEEDS):
            arrays = inputs(case, seed, **sizes)
            wanted = expected(case, arrays)
            try:
                simulate(kernel, arrays, seed=seed, num_sms=2)
                check(case, arrays, wanted)
            except (WsdslError, AssertionError) as error:
                found.append(str(error) or "wrong")
    return min(found, key=is_of_values, default="")


def attack(count: int, seed: int, most: int = 0) -> tuple[Counter[str], list[str]]:
    """How many ended how, and those that are proved though they race or wait for ever; with `most`,
    of so many kernels."""
    rng, ended, missed = Random(seed), Counter[str](), list[str]()
    every = list(itertools.islice(victims(rng), most or None))
    share = -(-count // len(every))
    for name, kernel, sizes in every:
        if alarm := refusal(kernel):
            missed.append(f"{name}: a false alarm of the {alarm}\n  {kernel.schedule!r}")
        if sum(ended.values()) >= count:
            break
        drawn = list(itertools.chain(mutants(kernel), hostile_mutants(kernel)))
        for what, mutant in rng.sample(drawn, min(share, len(drawn))):
            told = refusal(mutant)
            if told:
                ended[f"refused by the {told}"] += 1
                continue
            found = harm(name, mutant, sizes)
            if not found:
                ended["proved, and harmless"] += 1
            elif is_of_values(found):
                ended["proved, and computes something else"] += 1
            elif harm(name, kernel, sizes):
                ended["proved, at sizes that the original does not take"] += 1
            else:
                ended["MISSED"] += 1
                missed.append(f"{name}: {what}\n  {found.splitlines()[0]}\n  {kernel.schedule!r}")
    return ended, missed


def is_of_values(found: str) -> bool:
    return any(word in found for word in OF_VALUES)


def main(count: int, seed: int) -> int:
    ended, missed = attack(count, seed)
    for what, number in sorted(ended.items()):
        print(f"{number:6} {what}")
    print("\n".join(missed))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0))
