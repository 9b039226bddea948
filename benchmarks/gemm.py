"""bf16 gemm, C = A Bᵀ: wsdsl's default schedule against torch.matmul (cuBLAS).

python -m benchmarks.gemm                         # 4096³ and 8192³
python -m benchmarks.gemm --suite waves --quick
python -m benchmarks.gemm --shape 4096x1280x8192 --schedule "tile.n=128 mode=pingpong"
"""

from __future__ import annotations

import argparse
import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.contest import QUICK, Call, Contestant, Length, Problem, hold
from benchmarks.machine import write

if TYPE_CHECKING:
    import torch

    from wsdsl import Schedule

Shape = tuple[int, int, int]
SUITES: dict[str, list[Shape]] = {
    "default": [(4096, 4096, 4096), (8192, 8192, 8192)],
    "square": [(n, n, n) for n in (1024, 2048, 4096, 8192)],
    "waves": [(1024, n, 4096) for n in (2112, 2304, 3840, 4224, 7296)],
    "llama-70b": [(4096, 10240, 8192), (4096, 57344, 8192), (4096, 8192, 28672)],
    "tensor-parallel": [(4096, 1280, 8192), (4096, 8192, 1024)],
    "deepseek": [(4096, 7168, 2048), (4096, 7168, 16384), (4096, 24576, 1536)],
    "few-rows": [*((m, 28672, 8192) for m in (1, 16, 64, 128)), (64, 8192, 28672)],
    "deep": [(256, 256, 65536)],
}
TOLERANCE = 2.0**-8


def problem(shape: Shape) -> Problem:
    import torch

    m, n, k = shape
    return Problem(
        name=f"{m}x{n}x{k}",
        operands=partial(operands, shape),
        shape=(m, n),
        dtype=torch.bfloat16,
        reference=reference,
        flop=2.0 * m * n * k,
        bytes=2 * (m * k + n * k + m * n),
        tolerance=TOLERANCE,
    )


def operands(shape: Shape, seed: int) -> tuple[torch.Tensor, ...]:
    import torch

    m, n, k = shape
    generator = torch.Generator(device="cuda").manual_seed(seed)
    made = (torch.randn(s, k, device="cuda", generator=generator) for s in (m, n))
    return tuple(x.bfloat16() for x in made)


def reference(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a.double() @ b.double().T


def torch_matmul(_: Problem) -> Call:
    import torch

    return lambda a, b, out: torch.matmul(a, b.T, out=out)


def ours(schedule: Schedule | None, _: Problem) -> Call:
    from benchmarks.kernels import gemm

    return lambda a, b, out: gemm(a, b, out, schedule=schedule)


def contestants(schedules: list[str]) -> list[Contestant]:
    from wsdsl.cli.options import schedule_from

    found = [Contestant("torch", torch_matmul), Contestant("wsdsl", partial(ours, None))]
    own = (Contestant(text, partial(ours, schedule_from(text.split()))) for text in schedules)
    return [*found, *own]


def compiled(shapes: list[Shape]) -> dict[str, Any]:
    """The default schedule and resources at each shape."""
    from benchmarks.kernels import gemm
    from wsdsl.cli.commands import resources_of

    found: dict[str, Any] = {}
    for m, n, k in shapes:
        made = gemm.compile(M=m, N=n, K=k)
        found[f"{m}x{n}x{k}"] = {
            "schedule": repr(made.schedule),
            "resources": resources_of(made),
        }
    return found


def shape_from(text: str) -> Shape:
    parts = text.replace("*", "x").split("x")
    if len(parts) != 3 or not all(p.isdecimal() and int(p) > 0 for p in parts):
        raise argparse.ArgumentTypeError(f"{text!r} is no shape; expected MxNxK, 4096x4096x4096")
    m, n, k = map(int, parts)
    return m, n, k


def run(shapes: list[Shape], schedules: list[str], length: Length) -> dict[str, Any]:
    import torch  # noqa: F401 - imported before the children are forked, that they need not

    found = hold([problem(s) for s in shapes], contestants(schedules), length)
    return {"compiled": compiled(shapes), "contests": found}


def passed(result: dict[str, Any]) -> bool:
    """Is every row of ours correct and measured?"""
    rows = [row for by_name in result["contests"].values() for row in by_name.values()]
    return all(row["correct"] and "failure" not in row for row in rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--suite", choices=SUITES, action="append", default=[])
    parser.add_argument("--shape", type=shape_from, action="append", default=[])
    parser.add_argument("--schedule", action="append", default=[], help='"tile.n=192 stages=4"')
    parser.add_argument("--quick", action="store_true", help="the shortest contests that count")
    parser.add_argument("--out", type=Path, help="folder of the result file (benchmarks/results)")
    parser.add_argument("--json", action="store_true", help="print the result too")
    options = parser.parse_args()
    shapes = [s for name in options.suite for s in SUITES[name]] + options.shape
    result = run(
        shapes or SUITES["default"], options.schedule, QUICK if options.quick else Length()
    )
    path = write("gemm", result, options.out)
    print(json.dumps(result, indent=1) if options.json else f"written to {path}")
    return 0 if passed(result) else 1


if __name__ == "__main__":
    raise SystemExit(main())
