"""What a kernel of the tests is, and the table that they are entered in."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np

import wsdsl
from wsdsl.ir.op import Kernel


@dataclass(frozen=True)
class Case:
    """`expected` maps inputs (float64) to outputs by name; `sizes` are small and odd."""

    text: str
    expected: Callable[..., dict[str, Any]]
    sizes: Mapping[str, int] = field(default_factory=dict)

    @property
    def kernel(self) -> wsdsl.Kernel:
        """Always the same: what one test has compiled, others need not."""
        return parsed(self.text)

    def with_schedule(self, schedule: wsdsl.Schedule, **known: Any) -> Kernel:
        """The TILE kernel with its schedule."""
        return replace(self.kernel.tile_ir, schedule=schedule, **known)

    def fresh(self) -> wsdsl.Kernel:
        """One that has compiled nothing yet."""
        known = self.kernel
        return wsdsl.Kernel(known.name, lambda: known.tile_ir, self.text)


@cache
def parsed(text: str) -> wsdsl.Kernel:
    """The kernel of a text, always the same."""
    return next(iter(vars(wsdsl.parse(text)).values()))


def erf(x: Any) -> Any:
    import math

    return np.vectorize(math.erf)(x)


def gelu(x: Any) -> Any:
    return 0.5 * x * (1 + erf(x / np.sqrt(2)))


def silu(x: Any) -> Any:
    return x / (1 + np.exp(-np.maximum(x, -700)))


def matmul_text(signature: str, operands: str, *results: str) -> str:
    """Return the text of a kernel: a GEMM main loop, and the lines of its epilogue."""
    lines = "\n        ".join(results)
    return f"""@kernel
def {signature}:
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += {operands}
        {lines}
"""


CASES: dict[str, Case] = {}
Reference = Callable[..., dict[str, Any]]


def case(
    table: dict[str, Case] = CASES, /, **sizes: int
) -> Callable[[str], Callable[[Reference], Reference]]:
    """`@case(M=64)(text)` enters a kernel, written without `@kernel`, under the name of the
    function below, which says what is expected.
    """

    def entered(text: str) -> Callable[[Reference], Reference]:
        def keep(expected: Reference) -> Reference:
            table[expected.__name__] = Case(f"\n@kernel{text}", expected, sizes)
            return expected

        return keep

    return entered
