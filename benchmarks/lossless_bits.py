"""That lossless weights are so: random bf16, packed and got back, compared bit by bit.

python -m benchmarks.lossless_bits --workers 8      # 10^9 weights of each distribution, on a GPU
python -m benchmarks.lossless_bits --weights 20000 --side 64      # without one, in the simulator

Each matrix goes two ways. `unpack` gives all bits back, whatever they are. The product's kernel
multiplies rows of the identity, each of which takes one weight of every row, exactly: 1 times it,
plus zeros. What is not finite would make NaN of a whole column there, and is replaced by finite
patterns; -0 comes back as 0, since it is summed with zeros.

trained: normal in rows whose widths are lognormal, with a few outliers and zeros. uniform: every
pattern of 16 bits as likely as every other, which no palette holds.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Sequence
from multiprocessing import get_context
from typing import TYPE_CHECKING

from benchmarks.machine import write

if TYPE_CHECKING:
    import torch

ROWS = 2048
"""Of the identity at a time."""
EXPONENT, ALL_BUT_SIGN = 0x7F80, 0x7FFF


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weights", type=float, default=1e9, help="of each distribution")
    parser.add_argument("--side", type=int, default=8192, help="of a matrix")
    parser.add_argument("--distribution", choices=DISTRIBUTIONS, action="append")
    parser.add_argument("--workers", type=int, default=1, help="processes, each with its own seed")
    options = parser.parse_args()
    names, workers = options.distribution or [*DISTRIBUTIONS], options.workers
    each = math.ceil(options.weights / workers)
    asked = [(name, each, options.side, seed) for name in names for seed in range(workers)]
    if workers == 1:
        found = [compared(*one) for one in asked]
    else:
        with get_context("spawn").Pool(workers) as pool:
            found = pool.starmap(compared, asked, chunksize=1)
    result = {
        name: together(found[i * workers : (i + 1) * workers]) for i, name in enumerate(names)
    }
    print(f"written to {write('lossless_bits', result)}")
    return 1 if any(row["unpacked_wrong"] + row["product_wrong"] for row in result.values()) else 0


def together(parts: Sequence[dict[str, float]]) -> dict[str, float]:
    """Counts added up; bits in the mean."""
    whole = {name: sum(part[name] for part in parts) for name in parts[0]}
    return whole | {"bits": whole["bits"] / len(parts)}


def compared(name: str, weights: int, side: int, seed: int) -> dict[str, float]:
    """How many weights came back with other bits, of how many."""
    import torch

    from wsdsl.kernels import lossless

    draw, began, bits = DISTRIBUTIONS[name], time.monotonic(), 0.0
    unpacked_wrong = product_wrong = 0
    device = "cuda" if torch.cuda.is_available() else "cpu"
    own = torch.Generator(device).manual_seed(seed)
    count = -(-weights // side**2)
    for done in range(1, count + 1):
        w = draw(own, side)
        packed = lossless.pack(w.view(torch.bfloat16))
        unpacked_wrong += int((packed.unpack().view(torch.int16) != w).sum())
        finite = torch.where((w & EXPONENT) == EXPONENT, w ^ 0x0100, w)
        if not torch.equal(finite, w):
            packed = lossless.pack(finite.view(torch.bfloat16))
        product_wrong += wrong_in_product(packed, finite)
        bits += packed.statistics.bits / count
        said = f"{done} of {count}: {unpacked_wrong} unpacked and {product_wrong} multiplied wrong"
        print(f"{name:>8}  {said}, {time.monotonic() - began:.0f} s", flush=True)
    return {
        "weights": count * side**2,
        "unpacked_wrong": unpacked_wrong,
        "product_wrong": product_wrong,
        "bits": bits,
    }


def wrong_in_product(packed: object, bits: torch.Tensor) -> int:
    """Weights that the kernel gives other bits than these, which are all finite."""
    import torch

    from wsdsl.kernels import lossless

    side, wrong = len(bits), 0
    for first in range(0, side, ROWS):
        x = torch.zeros((min(ROWS, side - first), side), dtype=torch.bfloat16, device=bits.device)
        x[torch.arange(len(x)), first + torch.arange(len(x))] = 1
        got = lossless.matmul(x, packed).view(torch.int16)  # pyright: ignore[reportArgumentType]
        wanted = bits[:, first : first + len(x)].T
        both_zero = ((got | wanted) & ALL_BUT_SIGN) == 0
        wrong += int(((got != wanted) & ~both_zero).sum())
    return wrong


def trained(own: torch.Generator, side: int) -> torch.Tensor:
    """Bits, as i16."""
    import torch

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, device=own.device, generator=own)

    w = normal(side, side) * torch.exp(0.4 * normal(side, 1)) / 50
    chance = torch.rand((side, side), device=own.device, generator=own)
    w = torch.where(chance < 1e-5, w * 2.0**12, w)
    return torch.where(chance > 1 - 1e-5, 0.0, w).bfloat16().view(torch.int16)


def uniform(own: torch.Generator, side: int) -> torch.Tensor:
    """Bits, as i16."""
    import torch

    given = {"device": own.device, "generator": own, "dtype": torch.int16}
    return torch.randint(-(1 << 15), 1 << 15, (side, side), **given)


DISTRIBUTIONS = {"trained": trained, "uniform": uniform}


if __name__ == "__main__":
    raise SystemExit(main())
