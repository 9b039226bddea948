"""Weights of fewer bits than what they are multiplied by: wsdsl beside cuBLAS on bf16 weights.

python -m benchmarks.weights                    # i8, fp8, i4, u4 with zero points, lossless
python -m benchmarks.weights --quick --form i8 --rows 16 --columns 28672 --depth 8192
python -m benchmarks.weights --schedule operand_transform=smem --schedule "tile.k=128 consumers=2"

By the protocol of contest.py. "packed" is given the weights as `Kernel.pack` lays them out, and
"constant" has them in `Schedule.pdl_independent`, since no kernel before it writes them; "wsdsl
best" and "packed best" are the best of the default and the schedules given. "lossless" are weights
of bf16 by `wsdsl.kernels.lossless`, always packed. Beside i4 runs humming, where it is installed.
Few rows are limited by bytes of weights, of which cuBLAS reads more: a third more, or twice and
four times as many.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Sequence
from dataclasses import replace
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
from benchmarks.peers import humming_peer
from benchmarks.problems import Problem
from benchmarks.suites import KINDS

if TYPE_CHECKING:
    import torch

DEFAULT = "default"
GROUP = 128
LOSSLESS = "lossless"
FORMS = ("i8", "f8e4m3", "i8_groups", "i4_groups", "u4_zeros", LOSSLESS)
SIZES = ((28672, 8192), (8192, 28672), (14336, 4096))
ROWS = (1, 16, 64, 128, 256, 2048)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = partial(parser.add_argument, action="append", default=[])
    add("--form", choices=FORMS, help="of weights (all)")
    add("--rows", type=int, help="of what they are multiplied by (1, 16, 64, 128, 256, 2048)")
    add("--columns", type=int, help="of the result; with --depth, what is summed over")
    add("--depth", type=int)
    text = '"operand_transform=smem": "best" is the best of such and the default'
    add("--schedule", help=text)
    parser.add_argument("--quick", action="store_true", help="the shortest contests that count")
    parser.add_argument("--smoke", action="store_true", help="no figures: to see that all runs")
    parser.add_argument("--out", type=Path, help="folder of the result file (benchmarks/results)")
    options = parser.parse_args()
    if len(options.columns) != len(options.depth):
        parser.error("give --depth as often as --columns")
    sizes = list(zip(options.columns, options.depth, strict=True)) or SIZES
    wanted = itertools.product(options.form or FORMS, options.rows or ROWS, sizes)
    problems = [problem(form, (m, *size)) for form, m, size in wanted]
    length = SMOKE if options.smoke else QUICK if options.quick else Length()
    result = run(problems, options.schedule, length)
    print(f"written to {write('weights', result, options.out)}")
    return 0 if all(row["correct"] for rows in result.values() for row in rows.values()) else 1


def run(problems: Sequence[Problem], schedules: Sequence[str], length: Length) -> dict[str, Rows]:
    """Rows by problem; ratios are to cuBLAS."""
    result: dict[str, Rows] = {}

    def over(index: int, rows: Rows) -> None:
        result[problems[index].name] = rows
        for name, row in rows.items():
            print(f"{problems[index].name:>30}  {name:<12} {line(row)}", flush=True)

    hold([Bout(p, contestants(form_of(p), schedules), length) for p in problems], over)
    return result


def form_of(posed: Problem) -> str:
    return posed.name.split()[0]


def problem(form: str, size: tuple[int, int, int]) -> Problem:
    import torch

    m, n, k = size
    return Problem(
        name=f"{form} {m} x {n} x {k}",
        kind=KINDS["bf16"],
        size=size,
        operands=partial(operands, form, size),
        shape=(m, n),
        dtype=torch.bfloat16,
        reference=lambda x, *given: x.double() @ rebuilt(form, *given).double().T,
        flop=2.0 * m * n * k,
        bytes=n * k * bits_of(form) // 8 + 2 * m * (n + k),
        # A group's scale rounds weights to bf16 once, as it does those that cuBLAS is given.
        tolerance=2.0**-8,
    )


def operands(form: str, size: tuple[int, int, int], seed: int) -> tuple[torch.Tensor, ...]:
    """Activations, weights, their scales; and zero points."""
    import torch

    m, n, k = size
    own = torch.Generator(device="cuda").manual_seed(seed)
    x = torch.randn((m, k), device="cuda", generator=own).bfloat16()
    if form == LOSSLESS:
        return x, torch.randn((n, k), device="cuda", generator=own).div_(50).bfloat16()
    whole = partial(torch.randint, device="cuda", generator=own)
    groups = -(-k // GROUP)
    by_column = form in ("i8", "f8e4m3")
    shape, dtype = ((n,), torch.float32) if by_column else ((n, groups), torch.bfloat16)
    s = torch.rand(shape, device="cuda", generator=own).add_(0.5).div_(64).to(dtype)
    if form == "f8e4m3":
        w = torch.randn((n, k), device="cuda", generator=own)
        return x, w.to(torch.float8_e4m3fn), s
    if bits_of(form) == 8:
        return x, whole(-127, 128, (n, k), dtype=torch.int8), s
    if form == "i4_groups":
        # Symmetric, from -7 to 7: humming has a quicker form where there is no -8.
        codes = whole(1, 16, (n, k), dtype=torch.uint8) ^ 8
        return x, codes[:, ::2] | codes[:, 1::2] << 4, s
    w = whole(0, 256, (n, k // 2), dtype=torch.uint8)
    return x, w, s, whole(0, 256, (n, groups // 2), dtype=torch.uint8)


def bits_of(form: str) -> int:
    """Of a weight."""
    return 12 if form == LOSSLESS else int(form[1])


def unpacked(x: torch.Tensor) -> torch.Tensor:
    """Nibbles, two to a byte."""
    import torch

    return torch.stack([x & 15, x >> 4], -1).flatten(-2)


def rebuilt(form: str, w: torch.Tensor, *given: torch.Tensor) -> torch.Tensor:
    """The weights: by groups as the kernel rounds them, by column, and without scales, exactly."""
    if form == LOSSLESS:
        return w
    s, *zeros = given
    if bits_of(form) == 4:
        w = unpacked(w)
        w = (w ^ 8).to(s.dtype) - 8 if form == "i4_groups" else w.to(s.dtype)
    if s.ndim == 1:
        return w.double() * s.double()[:, None]
    spread = [
        each.repeat_interleave(GROUP, 1)[:, : w.shape[1]] for each in (s, *map(unpacked, zeros))
    ]
    scale, *offset = (each.to(s.dtype) for each in spread)
    return (w.to(s.dtype) - offset[0] if offset else w.to(s.dtype)) * scale


def contestants(form: str, schedules: Sequence[str]) -> list[Contestant]:
    found = [
        Contestant(
            "cublas", lambda _: [Variant("mm", lambda: multiply)], lay_out=partial(whole, form)
        )
    ]
    for name, packed in (("wsdsl", False), ("packed", True))[form == LOSSLESS :]:
        order = partial(laid_out, form) if packed else lambda *given: given
        own = partial(variants, form, packed, [])
        found.append(Contestant(name, own, lay_out=order))
        if schedules:
            best = partial(variants, form, packed, schedules)
            found.append(Contestant(f"{name} best", best, lay_out=order))
    told = partial(variants, form, True, [], constant=True)
    found.append(Contestant("constant", told, lay_out=partial(laid_out, form)))
    return found + (humming_peer.contestants(GROUP) if form == "i4_groups" else [])


def whole(form: str, x: Any, *given: Any) -> tuple[Any, ...]:
    """Weights as bf16, as cuBLAS is given them."""
    return x, rebuilt(form, *given).bfloat16()


def multiply(x: Any, w: Any, out: Any) -> Any:
    import torch

    return torch.mm(x, w.T, out=out)


def laid_out(form: str, x: Any, w: Any, *given: Any) -> tuple[Any, ...]:
    if form == LOSSLESS:
        from wsdsl.kernels import lossless
        from wsdsl.kernels.lossless.lossless_matmul import WEIGHTS

        held = lossless.pack(w, "bytes")
        return x, *(getattr(held, name) for name in WEIGHTS)
    return x, kernel_of(form).pack(W=w), *given


def variants(
    form: str, packed: bool, schedules: Sequence[str], posed: Problem, constant: bool = False
) -> list[Variant]:
    texts = [DEFAULT, *schedules]
    return [Variant(t, partial(ours, form, packed, t, posed, constant)) for t in texts]


def kernel_of(form: str) -> Any:
    from benchmarks import kernels

    return getattr(kernels, f"weights_{form}")


def ours(form: str, packed: bool, text: str, posed: Problem, constant: bool) -> Call:
    from wsdsl import Schedule
    from wsdsl.cli.options import schedule_from

    sizes = dict(zip("MNK", posed.size, strict=True))
    if form == LOSSLESS:
        from wsdsl.kernels.lossless.lossless_matmul import kernel_of as lossless_kernel
        from wsdsl.kernels.lossless.lossless_matmul import sizes_of

        kernel, sizes = lossless_kernel("bytes", "bf16"), sizes_of(**sizes)
    else:
        kernel = kernel_of(form).packed("W") if packed else kernel_of(form)
    if "KB" in kernel.dims:
        sizes["KB"] = -(-sizes["K"] // GROUP)
    given = schedule_from([] if text == DEFAULT else text.split())
    if constant:
        _, *weights, _ = (p.name for p in kernel.params)
        given = replace(given or Schedule(), pdl_independent=tuple(weights))
    return kernel.compile(given, **sizes)


if __name__ == "__main__":
    raise SystemExit(main())
