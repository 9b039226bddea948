"""Operands and exact results of every kind of product.

Operands are those that every contestant is given, in this order: A [M, K], B [N, K] (by kind with
the strides of [K, M] and [K, N]), then by kind
their scales (per tensor [1], per row [M] and [N], per block [M, K/128] and [N/128, K/128]), or
bias [N] and residual [M, N].
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.suites import Contest, Kind, Shape

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

ROTATION_BYTES = 160_000_000
"""Operands and outputs of all sets together: well over the 60 MB of L2."""
BLOCK = 128


@dataclass(frozen=True)
class Problem:
    """What everybody solves: operands by seed, shape of the output, the exact result."""

    name: str
    kind: Kind
    size: Shape
    operands: Callable[[int], tuple[torch.Tensor, ...]]
    shape: tuple[int, ...]
    dtype: torch.dtype
    reference: Callable[..., torch.Tensor]
    flop: float
    bytes: int
    tolerance: float
    swept: bool = False

    @property
    def num_sets(self) -> int:
        return min(64, math.ceil(ROTATION_BYTES / self.bytes)) if self.bytes < ROTATION_BYTES else 1


def problem(contest: Contest) -> Problem:
    import torch

    m, n, k = contest.shape
    kind = contest.kind
    width = 2 if kind.dtype == "bf16" else 1
    out_width = 4 if kind.dtype == "int8" else 2
    return Problem(
        name=contest.name,
        kind=kind,
        size=contest.shape,
        operands=partial(operands, kind, contest.shape),
        shape=(m, n),
        dtype=torch.int32 if kind.dtype == "int8" else torch.bfloat16,
        reference=partial(reference, kind),
        flop=2.0 * m * n * k,
        bytes=width * (m * k + n * k) + out_width * m * n * (2 if kind.epilogue else 1),
        tolerance=tolerance(kind),
        swept=contest.swept,
    )


def tolerance(kind: Kind) -> float:
    """Of ‖out - exact‖ / ‖exact‖. Rounding to bf16 costs 0.0017; libraries round more than once
    where they take several kernels, and the tensor cores' own fp8 sums keep 14 bits."""
    if kind.dtype == "int8":
        return 0.0
    return 2.0**-7 if kind.epilogue or kind.fast else 2.0**-8


def operands(kind: Kind, shape: Shape, seed: int) -> tuple[torch.Tensor, ...]:
    import torch

    m, n, k = shape
    generator = torch.Generator(device="cuda").manual_seed(seed)

    def normal(*size: int) -> torch.Tensor:
        return torch.randn(*size, device="cuda", generator=generator)

    def scale(*size: int) -> torch.Tensor:
        return torch.rand(*size, device="cuda", generator=generator) + 0.5

    def matrix(rows: int) -> torch.Tensor:
        if kind.dtype == "int8":
            size = (rows, k)
            return torch.randint(
                -128, 128, size, device="cuda", generator=generator, dtype=torch.int8
            )
        return normal(rows, k).to(torch.float8_e4m3fn if kind.dtype == "fp8" else torch.bfloat16)

    def stored(name: str, rows: int) -> torch.Tensor:
        made = matrix(rows)
        return made.T.contiguous().T if name in kind.columns else made

    a, b = stored("a", m), stored("b", n)
    if kind.epilogue:
        # The bias weighs as much as the product, so that half of gelu is bent.
        return a, b, normal(n) * math.sqrt(k), normal(m, n).bfloat16() * math.sqrt(k)
    if kind.scaling == "tensor":
        return a, b, scale(1), scale(1)
    if kind.scaling == "row":
        return a, b, scale(m), scale(n)
    if kind.scaling == "block":
        return a, b, scale(m, k // BLOCK), scale(n // BLOCK, k // BLOCK)
    return a, b


def reference(kind: Kind, a: torch.Tensor, b: torch.Tensor, *more: torch.Tensor) -> torch.Tensor:
    import torch

    x, y = a.double(), b.double()
    if kind.scaling == "block":
        row, block = (s.double() for s in more)
        x = x * row.repeat_interleave(BLOCK, 1)
        y = y * block.repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)
    exact = x @ y.T
    if kind.scaling in ("tensor", "row"):
        exact *= more[0].double()[:, None] * more[1].double()
    if kind.epilogue:
        exact = torch.nn.functional.gelu(exact + more[0].double()) + more[1].double()
    return exact
