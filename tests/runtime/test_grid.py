"""How many CTAs a launch has, by tile scheduler."""

from dataclasses import replace
from typing import Any

from wsdsl.artifact.signature import Signature
from wsdsl.runtime.launcher import num_ctas

GEMM = Signature(
    name="gemm",
    arguments=(),
    threads=384,
    smem_bytes=200_000,
    tiles=(("M", 128), ("N", 256)),
    scheduler="stream_k",
    contraction=(("K", 64),),
)


def test_the_grid() -> None:
    def ctas(scheduler: str, m: int, k: int, **fields: Any) -> int:
        signature = replace(GEMM, scheduler=scheduler, **fields)
        return num_ctas(signature, {"M": m, "N": 256, "K": k}, 132, fields.get("room"))

    assert ctas("grid", 128 * 500, 64) == 500
    assert ctas("persistent", 128 * 500, 64) == 132
    assert ctas("split_k", 128 * 10, 6400, splits=5) == 50
    assert ctas("split_k", 128 * 10, 128, splits=5) == 20
    assert ctas("split_k", 128 * 100, 6400, splits=5) == 130
    assert ctas("stream_k", 128 * 10, 6400) == 132
    assert ctas("stream_k", 128, 64) == 1
    for scheduler in ("grid", "persistent", "split_k", "stream_k"):
        assert ctas(scheduler, 0, 64, splits=2) == 0


def test_the_grid_of_clusters() -> None:
    signature = replace(GEMM, cluster=2, tiles=(("M", 256), ("N", 256)))
    dims = {"M": 256 * 10, "N": 256, "K": 6400}
    assert num_ctas(signature, dims, 132, 60) == 120
    assert num_ctas(signature, dims, 132, 70) == 132
