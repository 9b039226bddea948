"""Matmuls whose operands are indexed by all kinds of index expressions.

`python -m tests.lowering.indexed_operands 2000 SEED` draws 2000 kernels and lowers each by three
schedules. Each must agree with `reference`, or be rejected at its line with a hint.
"""

import itertools
import sys
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np

from tests.case_data import DTYPES
from wsdsl import CompileError, Schedule, ScheduleError, parse
from wsdsl.diagnostics import WsdslError
from wsdsl.dispatch.kernel import Kernel

INDICES = (
    "0", "1", "2", "s", "s + 1", "E - 1", "E // 2", "rows[0]", "rows[s]", "rows[rows[1]]",
    "rows[s] - 1", "(rows[2] + s) % 3", "min(rows[0], s)", "max(rows[0] - 1, 0)",
    "where(s > 0, 1, rows[2])", "where(rows[0] > rows[1], rows[0], 0)", "s - 7", "s + 9",
    "cast(f, i32)", "cast(scales[1], i32)", "table[s, 1]",
    "abs(rows[1] - rows[2])", "e", "rows[e]", "(e + 1) % 3", "E - 1 - e", "rows[E - 1 - e]",
    "min(e, s)", "rows[e] * e // 2", "where(e > 0, rows[e], s)", "r", "rows[r]", "(r + e) % 3",
)  # fmt: skip
"""`e` stands for what an `each` around gives, `r` for what is computed in front, or carried."""
FIRST = ("X[{}, m, k]", "Y[m, {}, k]", "X[0, m, k]", "U[{}, m, {}, k]")
SECOND = ("W[{}, n, k]", "V[n, {}, k]", "W[1, n, k]")
ONE_AXIS = {
    "one product": """
        for k in tiles(K):
            a += {x0} @ {w0}
""",
    "two products": """
        for k in tiles(K):
            a += {x0} @ {w0}
            b += {x1} @ {w1}
""",
    "one first operand": """
        for k in tiles(K):
            x = {x0}
            a += x @ {w0}
            b += x @ {w1}
            a += x @ {w2}
""",
    "one second operand": """
        for k in tiles(K):
            w = {w0}
            a += {x0} @ w
            b += {x1} @ w
""",
    "indices between": """
        for k in tiles(K):
            x = {x0}
            i = {i0}
            a += x @ W[i, n, k]
            j = (i + rows[i]) % 3
            b += x @ W[j, n, k]
            i = (j + {i1}) % 3
            b += X[i, m, k] @ {w0}
""",
    "an if between": """
        for k in tiles(K):
            x = {x0}
            i = {i0}
            a += x @ {w0}
            if s > rows[0]:
                i = {i1}
            b += x @ W[i, n, k]
""",
    "a loop between": """
        for k in tiles(K):
            x = {x0}
            i = 0
            a += x @ {w0}
            for g in each(E):
                i = max(i, rows[g] - s)
            b += x @ W[i, n, k]
            b += x @ W[{i1}, n, k]
""",
    "a loop with products between": """
        for k in tiles(K):
            x = {x0}
            i = s
            a += x @ {w0}
            for g in each(E):
                a += x @ W[g, n, k]
                i = rows[i]
            b += x @ W[i, n, k]
            b += X[i, m, k] @ {w1}
""",
    "an if with a product between": """
        for k in tiles(K):
            x = {x0}
            i = {i0}
            a += x @ {w0}
            if rows[i] > s:
                a += x @ W[rows[i], n, k]
                i = (i + 1) % 3
            b += x @ W[i, n, k]
""",
    "either": """
        for k in tiles(K):
            if rows[0] > s:
                a += {x0} @ {w0}
            else:
                b += {x1} @ {w1}
            b += {x0} @ {w1}
""",
    "chosen by an if": """
        i = 0
        if rows[1] > s:
            i = {i0}
        else:
            i = {i1}
        for k in tiles(K):
            a += X[i, m, k] @ {w0}
            b += {x0} @ W[i, n, k]
""",
    "carried": """
        r = s
        for k in tiles(K, by=32):
            a += {x0} @ W[r, n, k]
            r = rows[r]
            b += {x1} @ W[r, n, k]
""",
    "carried by each": """
        r = s
        for g in each(E):
            for k in tiles(K):
                a += {x0} @ W[r, n, k]
                b += X[g, m, k] @ {w0}
            r = (r + rows[g]) % 3
""",
    "carried by both": """
        r = s
        for g in each(E):
            q = r
            for k in tiles(K, by=32):
                a += X[g, m, k] @ W[q, n, k]
                q = rows[q]
                b += {x0} @ W[q, n, k]
            r = (r + q) % 3
""",
    "one loop after another": """
        for k in tiles(K):
            a += {x0} @ {w0}
        i = {i0}
        for k in tiles(K):
            b += {x0} @ W[i, n, k]
            a += {x1} @ {w1}
""",
    "held around each": """
        for k in tiles(K):
            x = {x0}
            w = {w0}
            for g in each(E):
                a += x @ W[(g + {i0}) % 3, n, k]
                b += X[rows[g], m, k] @ w
            b += x @ w
""",
    "each in the loop": """
        for k in tiles(K):
            for g in each(E):
                i = (g + {i0}) % 3
                a += {x0} @ W[i, n, k]
                b += X[rows[i], m, k] @ {w0}
""",
    "some of each": """
        for g in each(E):
            if rows[g] > s:
                for k in tiles(K):
                    a += X[g, m, k] @ {w0}
                    b += {x0} @ W[rows[g], n, k]
""",
    "no loop": """
        x = {x0}
        a = a + x @ {w0}
        i = rows[{i0}]
        b = b + x @ W[i, n, k]
""",
    "each without a loop": """
        for g in each(E):
            x = {x0}
            a += x @ {w0}
            i = (g + {i0}) % 3
            b += x @ W[i, n, k]
""",
    "read by threads too": """
        for k in tiles(K):
            x = {x0}
            i = {i0}
            a += x @ {w0}
            c = c + sum(cast(x, f32), over=k)
            b += X[i, m, k] @ {w1}
""",
    "threads read another": """
        for k in tiles(K):
            a += {x0} @ {w0}
            i = {i0}
            c = c + sum(cast(X[i, m, k], f32), over=k) * cast({i1}, f32)
            b += {x1} @ {w1}
""",
}
"""What the loops do; `k` is an axis, or, where no loop walks it, taken whole."""
SCHEDULES = (
    None,
    Schedule(tile=dict(m=64, n=24), mode="pingpong", stages=2),
    Schedule(tile=dict(m=64, n=24), consumers=1, cluster=dict(m=2)),
    Schedule(tile=dict(m=64, n=16), consumers=1, cluster=dict(n=2), stages=2),
    Schedule(tile=dict(m=64, n=48), consumers=1, cluster=dict(m=2, n=2), scheduler="grid"),
    Schedule(tile=dict(m=128, n=40), stages=1),
    Schedule(tile=dict(m=64, n=64), consumer_split="n"),
    Schedule(tile=dict(m=24, n=64), mma_m="n"),
    Schedule(tile=dict(m=16, n=64), mma_m="n", mode="pingpong", cluster=dict(n=2)),
    Schedule(pdl_independent=("W", "rows"), consumers=1),
    Schedule(pdl_independent=("X", "V", "rows", "table", "scales"), consumers=1),
    Schedule(tile=dict(m=64, n=32), scheduler="stream_k"),
    Schedule(tile=dict(m=64, n=32), scheduler="split_k", splits=2, reduction="parallel"),
    Schedule(tile=dict(m=64, n=32), consumers=1, cluster=dict(k=2)),
)
KINDS = {
    "bf16": ("bf16", "bf16"),
    "f16": ("f16", "f16"),
    "f8e4m3": ("f8e4m3", "f8e5m2"),
    "i8": ("i8", "u8"),
}
SIZES = dict(M=72, N=40, E=3)


@dataclass(frozen=True)
class Program:
    """`depth`: of the contraction, that is taken whole where a loop does not walk it."""

    what: str
    text: str
    kinds: tuple[str, str]
    depth: int

    @property
    def kernel(self) -> Kernel:
        return parse(self.text).indexed


def program(rng: Random, what: str | None = None) -> Program:
    what = what or rng.choice([*ONE_AXIS])
    body = ONE_AXIS[what]
    kinds = KINDS[rng.choice(("bf16", "bf16", *KINDS))]
    outside, inner = rng.random() < 0.4, "each(E)" in body
    known = [i for i in INDICES if (outside or "e" not in _names(i))]
    known = [i for i in known if "r = s" in body or "r" not in _names(i)]

    def index() -> str:
        found = rng.choice(known)
        return rng.choice((found, "g", "rows[g]")) if inner and _after_each(body) else found

    def operand(forms: tuple[str, ...]) -> str:
        form = rng.choice(forms)
        return form.format(*(index() for _ in range(form.count("{}"))))

    held = {f"x{i}": operand(FIRST) for i in range(2)} | {
        f"w{i}": operand(SECOND) for i in range(3)
    }
    held |= {f"i{i}": index() for i in range(2)}
    lines = body.strip("\n").format(**held)
    if "tiles(K" not in body:
        lines = lines.replace(", k]", ", :]")
    sum_ = "i32" if kinds[0] == "i8" else "f32"
    reads = "c = c" in lines
    if reads and sum_ == "i32":
        lines = lines.replace("f32", "i32")
    head = f"""
        a = zeros({sum_}[m, n])
        b = zeros({sum_}[m, n])
""" + (f"        c = zeros({sum_}[m])\n" if reads else "")
    both = "a + c" if reads else "a"
    tail = f"        C[m, n] {{}} {both}\n        D[m, n] {{}} b\n"
    tail = tail.replace("{}", "+=" if outside else "=")
    loops = "    for m, n in tiles(M, N):\n"
    if outside:
        loops, *rest = "    for e in each(E):\n", *(loops + head + lines + "\n" + tail).split("\n")
        loops += "\n".join("    " + line for line in rest)
    else:
        loops += head + lines + "\n" + tail
    x, w = kinds
    text = f"""
@kernel
def indexed(X: {x}[E, M, K], Y: {x}[M, E, K], U: {x}[E, M, E, K], W: {w}[E, N, K], V: {w}[N, E, K],
            rows: i32[E], table: i32[E, E], scales: f32[E], s: i32, f: f32,
            C: {sum_}[M, N], D: {sum_}[M, N]):
{loops}"""
    return Program(
        what,
        text,
        kinds,
        rng.choice((96, 80, 48, 75)) if "tiles(K" in body else rng.choice((64, 48, 37)),
    )


def _names(index: str) -> set[str]:
    return {*"".join(c if c.isalnum() else " " for c in index).split()}


def _after_each(body: str) -> bool:
    """Whether all that is filled in stands in an `each` of the body."""
    return "{" in body and body.index("each(E)") < body.index("{")


def programs(seed: int) -> Iterator[Program]:
    """Without end, each of the shapes in turn."""
    rng = Random(seed)
    for what in itertools.cycle(ONE_AXIS):
        yield program(rng, what)


def arrays(made: Program, rng: Random) -> dict[str, Any]:
    """Small whole numbers: every sum is exact."""
    source = np.random.default_rng(rng.randrange(1 << 30))
    sizes = SIZES | dict(K=made.depth)
    found: dict[str, Any] = {}
    for p in made.kernel.tile_ir.params:
        kind: Any = p.type
        if p.name in ("s", "f"):
            found[p.name] = rng.randrange(2) if p.name == "s" else 1.75
            continue
        shape = tuple(sizes[d] for d in kind.dims)
        if p.name in ("rows", "table"):
            found[p.name] = source.integers(0, 3, shape).astype(np.int32)
        elif p.name in "CD":
            found[p.name] = np.zeros(shape, DTYPES[kind.dtype.name])
        else:
            least = 0 if kind.dtype.name == "u8" else -2
            found[p.name] = source.integers(least, 3, shape).astype(DTYPES[kind.dtype.name])
    return found


def outcome(made: Program, schedule: Schedule | None, given: dict[str, Any], seed: int = 0) -> str:
    """ "right", how it was refused, or how it failed: "FAILED …"."""
    wanted, found = ([np.array(v) if isinstance(v, np.ndarray) else v for v in given.values()]
                     for _ in range(2))  # fmt: skip
    try:
        made.kernel.simulate(*found, schedule=schedule, seed=seed)
        made.kernel.reference(*wanted)
    except (CompileError, ScheduleError) as error:
        by_line = all(f.loc and f.hint for f in error.findings)
        if by_line or isinstance(error, ScheduleError):
            return f"refused: {type(error).__name__} {error.findings[0].message}"
        return f"FAILED, without a line or a hint: {error!r}"
    except WsdslError as error:
        return f"FAILED, {type(error).__name__}: {error}"
    except Exception:
        return f"FAILED, {traceback.format_exc()}"
    for name, x, y in zip(given, found, wanted, strict=True):
        if isinstance(x, np.ndarray) and not np.array_equal(x.astype(float), y.astype(float)):
            return f"FAILED, {name} is wrong in {(x != y).mean():.0%} of its elements"
    return "right"


def main(count: int, seed: int) -> int:
    rng, ends, failed = Random(seed), Counter[str](), 0
    for number, made in zip(range(count), programs(seed), strict=False):
        given = arrays(made, rng)
        for schedule in (None, *rng.sample(SCHEDULES[1:], 2)):
            end = outcome(made, schedule, given, number)
            ends[end.split("\n")[0].replace(made.what, "")] += 1
            if end.startswith("FAILED"):
                failed += 1
                print(f"--- {number} {made.what}, {schedule!r}\n{made.text}\n{end}", flush=True)
    for end, times in ends.most_common():
        print(f"{times:6} {end}")
    return failed


if __name__ == "__main__":
    sys.exit(min(1, main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)))
