"""`python -m tests.generated 2000 7`: as many programs, from that seed on; `1 SEED` repeats one."""

from __future__ import annotations

import sys
import time
from collections import Counter

from tests.generated.programs import program
from tests.generated.shrink import shrunk
from tests.generated.trial import Outcome, attempts

PTX_EVERY = 10


def failing(text: str, seed: int, schedules: int = 3) -> Outcome | None:
    last = attempts(text, seed, schedules, ptx=seed % PTX_EVERY == 0)[-1]
    return last if last.failed else None


def report(seed: int, text: str, outcome: Outcome) -> str:
    """The failure with the smallest program that shows it, and how to see it again."""

    def same(smaller: str) -> bool:
        other = failing(smaller, seed)
        return other is not None and (other.kind, other.reason) == (outcome.kind, outcome.reason)

    small = shrunk(text, same)
    last = failing(small, seed) or outcome
    return (
        f"{outcome.kind.upper()} {outcome.reason}\n{last.detail}\n{small}"
        f"repeat: .venv/bin/python -m tests.generated 1 {seed}\n"
    )


def main(count: int, seed: int) -> int:
    started = time.perf_counter()
    seen: Counter[tuple[str, str]] = Counter()
    first: dict[tuple[str, str], int] = {}
    for number in range(seed, seed + count):
        text = program(number)
        if (number - seed) % 500 == 499:
            print(f"{number - seed + 1} of {count}", file=sys.stderr, flush=True)
        if count == 1:
            print(text)
        for outcome in attempts(text, number, ptx=number % PTX_EVERY == 0):
            key = outcome.kind, outcome.reason
            seen[key] += 1
            first.setdefault(key, number)
            if outcome.failed and seen[key] == 1:
                print(report(number, text, outcome), flush=True)
            elif count == 1:
                print(outcome.kind, outcome.detail)
    took = time.perf_counter() - started
    total = sum(seen.values())
    print(f"{count} programs, {total} outcomes, {took:.0f} s")
    for (kind, reason), times in seen.most_common():
        share = f"{times:6} {100 * times / total:5.1f} %"
        print(f"{share}  {kind} {reason} (first: {first[kind, reason]})")
    failures = sum(n for (kind, _), n in seen.items() if kind in ("wrong", "crash"))
    print(f"{failures} wrong or crashed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0))
