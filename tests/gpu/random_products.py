"""Random matmuls on the GPU versus float64: python -m tests.gpu.random_products [SECONDS] [SEED].

Types, layouts, epilogues, dequantized weights and sizes are random, including TMA-incompatible and
ragged ones. Most use the default schedule, some three consumers. Each child has a watchdog, which
reports the sizes and schedule of a kernel that hangs.
"""

import os
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks.predicted_kernels import EPILOGUES, Case, product_case
from benchmarks.predictions import kernel_of
from benchmarks.watchdog import Report, watched_all
from wsdsl import Schedule, WsdslError

WIDTHS = (64, 96, 136, 160, 192)
MOST_ERROR = {"bf16": 0.05, "f16": 0.05, "f8e4m3": 0.05, "i8": 0.0}
"""Of a result, as a share of itself and a twentieth of what its terms come to in the mean: results
have 8 bits or more, and sums of f8 those of the tensor cores."""


@dataclass(frozen=True)
class Drawn:
    case: Case
    kind: str
    layout: str
    epilogue: str
    schedule: Schedule | None

    def __str__(self) -> str:
        how = f" by {self.schedule}" if self.schedule else ""
        return f"{self.kind} {self.layout} {self.epilogue or 'plain'} {dict(self.case.sizes)}{how}"


def drawn(rng: random.Random) -> Drawn:
    kind = rng.choice(("bf16", "bf16", "f16", "f8e4m3", "i8"))
    floats = kind in ("bf16", "f16")
    layout = rng.choice(("tn", "tn", "nn", "nt")) if floats else "tn"
    epilogue = rng.choice(("", "", *EPILOGUES)) if floats else ""
    by = 1 if floats and rng.random() < 0.15 else 8 if floats else 16
    decoded = kind == "bf16" and layout == "tn" and not epilogue and by > 1 and rng.random() < 0.15

    def size(most: float, by: int) -> int:
        return max(by, round(2 ** rng.uniform(0, most) / by) * by)

    m = size(11.5, 1 if layout == "tn" else by)
    shape = m, size(11.5, max(by, 8)), size(12, 16 if decoded else by)
    more, result = EPILOGUES.get(epilogue, ("", "acc"))
    name = epilogue or "product"
    rest = dict(name=name, more=more, result=result)
    case = product_case("random", "product", shape, kind, layout, decoded=decoded, **rest)
    schedule = None
    if not decoded and rng.random() < 0.3:
        width, turned = rng.choice(WIDTHS), rng.random() < 0.5
        tile = dict(m=width, n=192) if turned else dict(m=192, n=width)
        mma = "n" if turned else None
        schedule = Schedule(tile=tile, consumers=3, mode="cooperative", mma_m=mma)
    return Drawn(case, kind, layout, epilogue, schedule)


def operands(one: Drawn, params: Any, seed: int) -> list[Any]:
    """The result is full of what no product leaves there."""
    import torch  # pyright: ignore[reportMissingImports]

    rng = torch.Generator(device="cuda").manual_seed(seed)
    kinds: Mapping[str, Any] = {
        "bf16": torch.bfloat16, "f16": torch.float16, "f8e4m3": torch.float8_e4m3fn,
        "f32": torch.float32, "i8": torch.int8, "i32": torch.int32,
    }  # fmt: skip
    made: list[Any] = []
    for param in params:
        dims = [d if isinstance(d, int) else one.case.sizes[d] for d in param.type.dims]
        kind = kinds[str(param.type.dtype)]
        whole = kind in (torch.int8, torch.int32)
        numbers = torch.randint(-8, 8, dims, device="cuda", generator=rng) if whole else None
        if numbers is None:
            numbers = torch.randn(dims, device="cuda", generator=rng)
        made.append(numbers.to(kind))
    made[-1] = torch.full_like(made[-1].float(), 77).to(made[-1].dtype)
    return made


def error(one: Drawn, args: list[Any]) -> float:
    """The largest, beside float64."""
    from torch.nn import functional as fn  # pyright: ignore[reportMissingImports]

    a, b, *more, out = (x.double() for x in args)
    acc = (a.T if one.layout == "nt" else a) @ (b.T if one.layout == "tn" else b)
    match one.epilogue:
        case "bias_gelu":
            acc = fn.gelu(acc + more[0])
        case "residual":
            acc = acc + more[0]
        case "scaled_rows":
            acc = (acc * more[0][:, None] + more[1]).tanh()
        case "silu_mul":
            acc = fn.silu(acc) * more[0]
        case _:
            pass
    off = (out - acc).abs()
    if one.kind != "i8":
        off = off / (acc.abs() + 0.05 * one.case.sizes["K"] ** 0.5)
    return float(off.max())


def share(report: Report, seed: int, until: float) -> None:
    import torch  # pyright: ignore[reportMissingImports]

    os.environ["WSDSL_TUNING_CACHE"] = "off"
    rng = random.Random(seed)
    while time.time() < until:
        one = drawn(rng)
        report(str(one))
        kernel = kernel_of(one.case)
        kernel.exact = True
        try:
            compiled = kernel.compile(one.schedule, arch="sm_90a", **one.case.sizes)
            _ = compiled.artifact
        except WsdslError as e:
            told = "" if one.schedule else f"refused: {one}: {e}"
            report(str(one), ("refused", told))
            continue
        args = operands(one, compiled.params, rng.randrange(1 << 30))
        compiled(*args)
        torch.cuda.synchronize()
        off = error(one, args)
        wrong = not off <= MOST_ERROR[one.kind]
        report(str(one), ("right", f"off by {off}: {one}, {compiled.schedule}" if wrong else ""))


def run(seconds: float, seed: int) -> Iterator[str]:
    """What went wrong; at last how many there were."""
    workers, until = max(1, (os.cpu_count() or 2) - 1), time.time() + seconds
    works = [partial(share, seed=seed * 1000 + n, until=until) for n in range(workers)]
    found = Counter[str]()
    for outcome in watched_all(works, workers):
        for kind, told in outcome.results:
            found["wrong" if told else kind] += 1
            if told:
                yield told
        if not outcome.ok:
            found["wrong"] += 1
            yield f"{outcome}\n{outcome.detail}"
    yield ", ".join(f"{num} {kind}" for kind, num in sorted(found.items()))


def main() -> int:
    seconds, seed = [*map(int, sys.argv[1:3]), *(60, 0)[len(sys.argv) - 1 :]]
    lines = list(run(seconds, seed))
    print("\n".join(lines))
    return "wrong" in lines[-1]


if __name__ == "__main__":
    raise SystemExit(main())
