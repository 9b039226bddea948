"""JAX: the Hopper product that comes with Pallas Mosaic GPU, called on torch's tensors."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest import mock

from benchmarks.contest import Call, Contestant, UnfitError, Variant
from benchmarks.problems import Problem


@dataclass(frozen=True)
class Config:
    """The tile of each of two warpgroups; `wide`: side by side along N, else below one another."""

    m: int
    n: int
    stages: int = 4
    wide: bool = True
    cluster: str = "M"
    band: int = 8

    def __str__(self) -> str:
        side = "N" if self.wide else "M"
        cluster = f"cluster {self.cluster or 1} band {self.band}"
        return f"{self.m}x{self.n} along {side} stages {self.stages} {cluster}"

    def fits(self, m: int, n: int, k: int) -> bool:
        rows = self.m * (1 if self.wide else 2) * (2 if self.cluster == "M" else 1)
        columns = self.n * (2 if self.wide else 1) * (2 if self.cluster == "N" else 1)
        return m % rows == 0 and n % columns == 0 and k % 64 == 0


CONFIGS = [
    *(Config(128, 128, cluster=c, band=b) for c, b in itertools.product(("M", "N", ""), (4, 16))),
    Config(64, 256, wide=False),
    Config(64, 256, wide=False, cluster="N"),
    Config(128, 64, 6),
]


def contestants() -> list[Contestant]:
    return [Contestant("pallas", variants, lay_out=lay_out)]


def variants(problem: Problem) -> list[Variant]:
    if problem.kind.columns:
        raise UnfitError("its operands are stored by rows here")
    if problem.kind.dtype != "bf16" or problem.kind.epilogue:
        raise UnfitError("its product is of 16-bit types, without an epilogue")
    fitting = [c for c in CONFIGS if c.fits(*problem.size)]
    if not fitting:
        raise UnfitError("none of its tiles divides this shape")
    from jax.experimental.pallas.ops.gpu import hopper_matmul_mgpu  # noqa: F401

    return [Variant(str(c), partial(make, c)) for c in fitting]


def lay_out(a: Any, b: Any) -> tuple[Any, ...]:
    """It takes B as K × N, last axis contiguous."""
    return a, b.T.contiguous()


def make(c: Config) -> Call:
    import torch
    from jax.experimental.pallas import mosaic_gpu
    from jax.experimental.pallas.ops.gpu import hopper_matmul_mgpu as hopper

    axis = hopper.MatmulDimension
    config = hopper.TuningConfig(
        tile_m=c.m,
        tile_n=c.n,
        tile_k=64,
        max_concurrent_steps=c.stages,
        grid_minor_dim=axis.N,
        grid_tile_width=c.band,
        wg_dimension=axis.N if c.wide else axis.M,
        cluster_dimension=axis[c.cluster] if c.cluster else None,
    )

    def product(a: Any, b: Any) -> Any:
        return hopper.matmul(a, b, None, config)

    kernel = mosaic_gpu.as_torch_kernel(product)

    def call(a: Any, b: Any, out: Any) -> Any:
        # It would launch on the default stream, which no graph can capture.
        with mock.patch.object(torch.cuda, "default_stream", torch.cuda.current_stream):
            return kernel(a, b)

    return call
