"""How long kernels without products take by the model, beside what `benchmarks.bandwidth` measured.

python -m benchmarks.bandwidth_predictions            # of results/bandwidth_h100.json; needs no GPU
python -m benchmarks.bandwidth_predictions FILE -k softmax

Of the default schedules of this checkout, whatever was measured.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.bandwidth import TEXT
from benchmarks.predictions import WITHIN, read
from wsdsl import Kernel, Schedule, parse
from wsdsl.ir.hardware.target import TARGETS, Target
from wsdsl.kernels.rows import cross_entropy, layernorm, rmsnorm, softmax
from wsdsl.kernels.rows.row_arrays import kernel_of
from wsdsl.lowering.cost_model.predict import Prediction, predict
from wsdsl.lowering.cost_model.workload import Work
from wsdsl.lowering.footprint import axis_sizes
from wsdsl.lowering.pipeline import scheduled_tile

RESULTS = Path(__file__).parent / "results" / "bandwidth_h100.json"
KINDS = dict(g="bf16", x="bf16", y="bf16", w="bf16")
WEIGHT = dict(params=" W: bf16[N],", factor=" * W[n]")


@dataclass(frozen=True)
class Row:
    """A case as it was measured, in microseconds."""

    name: str
    measured: float
    prediction: Prediction

    @property
    def ratio(self) -> float:
        return self.prediction.microseconds / self.measured

    @property
    def is_near(self) -> bool:
        return abs(math.log(self.ratio)) < math.log(1 + WITHIN)


@cache
def kernels() -> Mapping[str, Kernel]:
    """By the name of a case, without its sizes, as `benchmarks.bandwidth` calls them."""
    biased = dict(params=" W: bf16[N], B: bf16[N],", affine=" * W[n] + B[n]")
    targets = dict(t="i32[M, 2]", target="T[m, 0]", sums=softmax.SUMS)
    return {
        **vars(parse(TEXT)),
        "layernorm": kernel_of(layernorm.FORWARD, **KINDS, **biased, outputs="", stores=""),
        "rmsnorm_backward": kernel_of(rmsnorm.BACKWARD, **KINDS, **WEIGHT),
        "softmax_backward": kernel_of(softmax.BACKWARD["softmax"], **KINDS),
        "weight_backward": kernel_of(rmsnorm.WEIGHT, **KINDS),
        "cross_entropy": kernel_of(cross_entropy.FORWARD, **KINDS, **targets, lse="", store=""),
    }


def rows(held: Mapping[str, Any], part: str = "") -> Iterator[Row]:
    """Of a result file; what it has no kernel for here is left out."""
    card = next(t for t in TARGETS if t.name.split()[0] in held["gpu"]["name"])
    for name, figures in held["result"].items():
        kind, _, size = name.partition(" ")
        numbers = [int(n) for n in size.split("x") if n.isdigit()]
        kernel = kernels().get(f"{kind}_line" if len(numbers) == 1 else kind)
        if part in name and kernel is not None:
            dims = ("M", "N") if len(numbers) > 1 else ("N",)
            yield Row(
                name,
                figures["wsdsl"],
                predicted(kernel, dict(zip(dims, numbers, strict=True)), card),
            )


def predicted(
    kernel: Kernel, sizes: Mapping[str, int], card: Target, given: Schedule | None = None
) -> Prediction:
    """With what the schedule leaves open chosen."""
    source = kernel._compiled_for(None, sizes).source  # pyright: ignore[reportPrivateUsage]
    chosen = scheduled_tile(dataclasses.replace(source, card=card, schedule=given), dict(sizes))
    assert chosen.schedule is not None
    tile = axis_sizes(chosen, chosen.schedule)
    return predict(Work(chosen, sizes), chosen.schedule, tile)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", type=Path, nargs="?", default=RESULTS, help="of a result")
    parser.add_argument("-k", default="", help="cases whose name has this in it")
    options = parser.parse_args()
    near, found = 0, 0
    for row in rows(read(options.file), options.k):
        plain = row.prediction.plain
        limit = plain.limit if plain else "-"
        told = f"{row.prediction.microseconds:8.1f} predicted, {row.ratio:5.2f} of it  {limit}"
        far = "" if row.is_near else "  FAR"
        print(f"{row.name:32} {row.measured:8.1f} us measured {told}{far}")
        near, found = near + row.is_near, found + 1
    print(f"{near} of {found} within {WITHIN:.0%}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
