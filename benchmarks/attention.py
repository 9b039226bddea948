"""Attention forward, softmax(Q Kᵀ / √D) V in bf16: wsdsl beside torch's cuDNN and flash.

python -m benchmarks.attention                        # D = 64, 128, full and causal, 2048 and 8192
python -m benchmarks.attention --quick --head 128 --keys 8192 --mask full
python -m benchmarks.attention --schedule "order_barriers=true" --schedule "tile.t=64 stages=3"

By the protocol of contest.py. Causal work is counted as half of the whole. "wsdsl best" is the best
of the default and the schedules given.
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.contest import (
    QUICK,
    SMOKE,
    Bout,
    Call,
    Contestant,
    Length,
    Rows,
    Variant,
    hold,
    line,
)
from benchmarks.machine import write
from benchmarks.problems import Problem
from benchmarks.suites import KINDS

if TYPE_CHECKING:
    import torch

DEFAULT = "default"
BATCH, HEADS = 2, 16


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = partial(parser.add_argument, action="append", default=[])
    add("--head", type=int, help="elements of a head (64 and 128)")
    add("--keys", type=int, help="queries, and keys (2048 and 8192)")
    add("--mask", choices=("full", "causal"), help="(both)")
    add("--schedule", help='"tile.t=64 stages=3": "wsdsl best" is of these and the default')
    parser.add_argument("--quick", action="store_true", help="the shortest contests that count")
    parser.add_argument("--smoke", action="store_true", help="no figures: to see that all runs")
    parser.add_argument("--out", type=Path, help="folder of the result file (benchmarks/results)")
    options = parser.parse_args()
    wanted = itertools.product(
        options.head or (64, 128), options.mask or ("full", "causal"), options.keys or (2048, 8192)
    )
    problems = [problem(*each) for each in wanted]
    length = SMOKE if options.smoke else QUICK if options.quick else Length()
    result = run(problems, options.schedule, length)
    print(f"written to {write('attention', result, options.out)}")
    return 0 if all(row["correct"] for rows in result.values() for row in rows.values()) else 1


def run(problems: Sequence[Problem], schedules: Sequence[str], length: Length) -> dict[str, Rows]:
    """Rows by problem; ratios are to cuDNN."""
    result: dict[str, Rows] = {}

    def over(index: int, rows: Rows) -> None:
        result[problems[index].name] = rows
        for name, row in rows.items():
            print(f"{problems[index].name:>24}  {name:<10} {line(row)}", flush=True)

    hold([Bout(p, contestants(schedules), length) for p in problems], over)
    return result


def problem(head: int, mask: str, keys: int) -> Problem:
    import torch

    shape = (BATCH, HEADS, keys, head)
    return Problem(
        name=f"D {head} {mask} {keys}",
        kind=KINDS["bf16"],
        size=(keys, head, keys),
        operands=partial(operands, shape),
        shape=shape,
        dtype=torch.bfloat16,
        reference=partial(reference, mask == "causal"),
        flop=4.0 * BATCH * HEADS * keys * keys * head * (0.5 if mask == "causal" else 1.0),
        bytes=4 * 2 * math.prod(shape),
        tolerance=2.0**-7,
    )


def operands(shape: tuple[int, ...], seed: int) -> tuple[torch.Tensor, ...]:
    import torch

    generator = torch.Generator(device="cuda").manual_seed(seed)
    made = (torch.randn(shape, device="cuda", generator=generator) for _ in range(3))
    return tuple(x.bfloat16() for x in made)


def reference(causal: bool, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """A head after the other: the scores of all are more than memory holds."""
    import torch

    exact = torch.empty(q.shape, dtype=torch.float64, device="cuda")
    for b, h in itertools.product(*map(range, q.shape[:2])):
        scores = q[b, h].double() @ k[b, h].double().T / math.sqrt(q.shape[-1])
        if causal:
            beyond = torch.ones(scores.shape, dtype=torch.bool, device="cuda").triu_(1)
            scores.masked_fill_(beyond, -math.inf)
        exact[b, h] = torch.softmax(scores, -1) @ v[b, h].double()
    return exact


def contestants(schedules: Sequence[str]) -> list[Contestant]:
    return [
        Contestant("cudnn", lambda p: [Variant("sdpa", partial(sdpa, "CUDNN_ATTENTION", p))]),
        Contestant("flash", lambda p: [Variant("sdpa", partial(sdpa, "FLASH_ATTENTION", p))]),
        Contestant("wsdsl", lambda p: [Variant(DEFAULT, partial(ours, DEFAULT, p))]),
        *([Contestant("wsdsl best", partial(best_of, schedules))] if schedules else []),
    ]


def best_of(schedules: Sequence[str], posed: Problem) -> list[Variant]:
    texts = [DEFAULT, *schedules]
    return [Variant(t, partial(ours, t, posed), "wsdsl" * (t == DEFAULT)) for t in texts]


def is_causal(posed: Problem) -> bool:
    return "causal" in posed.name


def sdpa(backend: str, posed: Problem) -> Call:
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    def call(q: Any, k: Any, v: Any, out: Any) -> Any:
        del out
        with sdpa_kernel(getattr(SDPBackend, backend)):
            return scaled_dot_product_attention(q, k, v, is_causal=is_causal(posed))

    return call


def ours(text: str, posed: Problem) -> Call:
    from benchmarks import kernels
    from wsdsl.cli.options import schedule_from

    kernel = kernels.attention_causal if is_causal(posed) else kernels.attention
    batch, heads, keys, head = posed.shape
    sizes = dict(B=batch, H=heads, S=keys, T=keys, D=head)
    made = kernel.compile(schedule_from([] if text == DEFAULT else text.split()), **sizes)
    scale = math.log2(math.e) / math.sqrt(head)
    return lambda q, k, v, out: made(q, k, v, out, scale)


if __name__ == "__main__":
    raise SystemExit(main())
