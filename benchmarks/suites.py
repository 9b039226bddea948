"""What is contested: kinds of product, and suites of shapes (M × N × K)."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Literal

Shape = tuple[int, int, int]
Scaling = Literal["none", "tensor", "row", "block"]


@dataclass(frozen=True)
class Kind:
    """A form of C = A Bᵀ: what the operands are, how they are scaled, what follows."""

    name: str
    dtype: Literal["bf16", "fp8", "int8"] = "bf16"
    scaling: Scaling = "none"
    fast: bool = False
    """fp8: partial sums stay in the tensor cores' narrow accumulators (else promoted to f32)."""
    epilogue: bool = False
    """gelu(C + bias) + residual"""
    columns: str = ""
    """The operands ("a", "b") that are stored by columns: K is not their contiguous axis."""


KINDS: dict[str, Kind] = {
    k.name: k
    for k in (
        Kind("bf16"),
        Kind("fp8-tensor", "fp8", "tensor"),
        Kind("fp8-tensor-fast", "fp8", "tensor", fast=True),
        Kind("fp8-row", "fp8", "row"),
        Kind("fp8-row-fast", "fp8", "row", fast=True),
        Kind("fp8-block", "fp8", "block"),
        Kind("int8", "int8"),
        Kind("epilogue", epilogue=True),
        Kind("bf16-nn", columns="b"),
        Kind("bf16-nt", columns="ab"),
    )
}

LLAMA: list[Shape] = [(4096, 10240, 8192), (4096, 57344, 8192), (4096, 8192, 28672)]
DEEPSEEK: list[Shape] = [(4096, 7168, 2048), (4096, 7168, 16384), (4096, 24576, 1536)]
BIG: list[Shape] = [(4096, 4096, 4096), (8192, 8192, 8192), *LLAMA, *DEEPSEEK]
BF16: dict[str, list[Shape]] = {
    "square": [(n, n, n) for n in (1024, 2048, 4096, 8192)],
    "waves": [(1024, n, 4096) for n in (2112, 2304, 3840, 4224, 7296)],
    "llama-70b": LLAMA,
    "tensor-parallel": [(4096, 1280, 8192), (4096, 8192, 1024)],
    "deepseek": DEEPSEEK,
    "few-rows": [*((m, 28672, 8192) for m in (1, 16, 64, 128)), (64, 8192, 28672)],
    "deep": [(256, 256, 65536), (512, 512, 16384), (128, 128, 131072)],
}
SWEEPS: dict[str, list[Shape]] = {
    f"sweep-{k}": [(1024, n, k) for n in range(384, 7873, 192)] for k in (1024, 4096, 16384)
}
"""From one to the next, tiles fill the last wave more, or begin another."""
SMALL: list[Shape] = [
    (m, n, k)
    for m in (1, 16, 64, 128, 256, 512)
    for n, k in ((512, 2048), (640, 5120), (1024, 4096), (1536, 7168))
]
"""Fewer tiles than SMs: what is left of a layer on one of several cards."""


LAYOUTS: list[Shape] = [
    (512, 1024, 4096), (128, 6144, 4096), (640, 1280, 4096), (768, 3072, 768), (1024, 3840, 4096),
    (2048, 14336, 2048), (4096, 4096, 4096), (4096, 8192, 1024), (4096, 4096, 11008),
]  # fmt: skip
ODD: list[Shape] = [
    (1000, 1000, 1000), (3000, 3000, 3000), (5000, 5000, 5000), (10000, 10000, 1000),
    (4096, 1152, 4304), (1500, 1500, 1500), (900, 2500, 2500), (4095, 4095, 4095),
    (1024, 50257, 768),
]  # fmt: skip
"""Rows that begin amid lines of 128 bytes, and rows that TMA can not take."""


@dataclass(frozen=True)
class Contest:
    """One problem of a suite."""

    suite: str
    kind: Kind
    shape: Shape
    swept: bool = False
    """One of many neighbours, which have little time each; "best" is chosen from what the model of
    schedules has to offer, to see how good it is."""

    @property
    def name(self) -> str:
        return "x".join(map(str, self.shape))

    def __str__(self) -> str:
        return f"{self.suite} {self.name}"


SUITES: dict[str, list[Contest]] = {
    # Small ones of every kind, to see that everybody runs (`--smoke`).
    "smoke": [
        *(Contest("smoke", kind, (1024, 1024, 1024)) for kind in KINDS.values()),
        *(Contest("smoke", KINDS["bf16"], s) for s in ((16, 4096, 1024), (256, 256, 8192))),
    ],
    "default": [Contest("default", KINDS["bf16"], s) for s in BIG[:2]],
    **{name: [Contest(name, KINDS["bf16"], s) for s in shapes] for name, shapes in BF16.items()},
    **{
        name: [Contest(name, KINDS["bf16"], s, swept=True) for s in shapes]
        for name, shapes in SWEEPS.items()
    },
    **{
        name: [Contest(name, kind, s) for s in BIG]
        for name, kind in KINDS.items()
        if kind.dtype == "fp8"
    },
    "small": [Contest("small", KINDS["bf16"], s, swept=True) for s in SMALL],
    "bf16-nn": [Contest("bf16-nn", KINDS["bf16-nn"], s) for s in (*LAYOUTS, ODD[0], ODD[-1])],
    "bf16-nt": [Contest("bf16-nt", KINDS["bf16-nt"], s) for s in LAYOUTS],
    "odd": [Contest("odd", KINDS["bf16"], s) for s in ODD],
    "int8": [Contest("int8", KINDS["int8"], s) for s in BIG[:4]],
    "epilogue": [
        Contest("epilogue", KINDS["epilogue"], s)
        for s in (*BIG[:3], (4096, 8192, 1024), (4096, 24576, 1536))
    ],
}
GROUPS: dict[str, list[str]] = {
    "bf16": list(BF16),
    "fp8": [name for name, kind in KINDS.items() if kind.dtype == "fp8"],
    "sweep": list(SWEEPS),
    "layouts": ["bf16-nn", "bf16-nt", "odd"],
}
GROUPS["all"] = [*GROUPS["bf16"], *GROUPS["fp8"], "int8", "epilogue"]


def contests(suites: list[str], shapes: list[Shape], kind: str = "bf16") -> list[Contest]:
    """Those of the suites and groups named, then the single shapes; "default" if there are none."""
    names = [n for name in suites for n in GROUPS.get(name, [name])]
    found = [contest for name in dict.fromkeys(names) for contest in SUITES[name]]
    found += [Contest("shapes", KINDS[kind], shape) for shape in shapes]
    return found or SUITES["default"]


def shape_from(text: str) -> Shape:
    parts = text.replace("*", "x").split("x")
    if len(parts) != 3 or not all(p.isdecimal() and int(p) > 0 for p in parts):
        raise argparse.ArgumentTypeError(f"{text!r} is no shape; expected MxNxK, 4096x4096x4096")
    m, n, k = map(int, parts)
    return m, n, k
