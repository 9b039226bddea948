"""humming (vLLM's kernels for quantised weights), by its own choice of configurations.

pip install humming-kernels; it compiles its kernels by the CUDA that torch has (headers of the
runtime and of CCCL, and NVRTC or nvcc), and keeps them on disk. What fails in it is its row's
failure, and stops nobody else.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from benchmarks.contest import Call, Contestant, UnfitError, Variant
from benchmarks.problems import Problem

SIGNS = 0x88
"""Codes of 4 bits are its unsigned ones less 8: the upper bit the other way round."""


def contestants(group: int) -> list[Contestant]:
    """For weights of i4 with scales of bf16 for each so many along K."""

    def laid_out(x: Any, w: Any, scales: Any) -> tuple[Any, ...]:
        return x, layer(w, scales, group)

    return [Contestant("humming", variants, lay_out=laid_out)]


def variants(_: Problem) -> list[Variant]:
    if find_spec("humming") is None:
        raise UnfitError("humming is not installed (pip install humming-kernels)")
    return [Variant("its own choice", lambda: call)]


def layer(w: Any, scales: Any, group: int) -> Any:
    """Weights [N, K / 2] of two codes to a byte, in its order of memory."""
    import torch
    from humming.layer import HummingLayer  # pyright: ignore[reportMissingImports]

    config = {"dtype": "int4", "group_size": group}
    made: Any = HummingLayer(
        shape_n=w.shape[0], shape_k=2 * w.shape[1], weight_config=config, torch_dtype=scales.dtype
    ).cuda()
    words = (w ^ SIGNS).view(torch.int32)
    made.load_from_tensors({"weight": words, "weight_scale": scales})
    made.transform()
    return made


def _call(x: Any, made: Any, out: Any) -> Any:
    return made(x, outputs=out)


call: Call = _call
