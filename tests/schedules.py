"""Schedules by which cases run, in the simulator and on a card."""

from dataclasses import replace

from wsdsl import Schedule

ORDERS = (
    Schedule(tile=dict(m=64, n=64), mode="pingpong"),
    Schedule(tile=dict(m=128, n=48), mode="pingpong", stages=2, scheduler="grid"),
    Schedule(tile=dict(m=64, n=32), mode="pingpong", consumers=3, swizzle=1),
    Schedule(tile=dict(m=64, n=64), consumers=1, cluster=dict(m=2)),
    Schedule(tile=dict(m=128, n=80), cluster=dict(n=2), scheduler="grid"),
    Schedule(tile=dict(m=64, n=32), consumers=1, cluster=dict(m=2, n=2), raster="m"),
    Schedule(tile=dict(m=64, n=48), mode="pingpong", cluster=dict(m=4), raster="m", swizzle=2),
    Schedule(tile=dict(m=64, n=64), consumers=1, cluster=dict(m=4, n=2), stages=2),
    Schedule(tile=dict(m=128, n=80), cluster=dict(k=2)),
    Schedule(tile=dict(m=64, n=64, k=32), consumers=1, cluster=dict(k=4), raster="m"),
    Schedule(tile=dict(m=64, n=96), consumers=1, cluster=dict(n=2, k=2), scheduler="grid"),
    Schedule(tile=dict(m=64, n=64, k=32), consumers=1, cluster=dict(k=8), stages=2),
    Schedule(tile=dict(m=48, n=128), mma_m="n"),
    Schedule(tile=dict(m=16, n=64), mma_m="n", mode="pingpong", cluster=dict(n=2)),
)
"""Who does which tile, with whom, and in which order."""

SIZES_OF_TILES = (
    Schedule(tile=dict(m=64, n=16, k=16), consumers=1, stages=1),
    Schedule(tile=dict(m=64, n=48, k=32), consumers=1, stages=3),
    Schedule(tile=dict(m=256, n=80, k=128), stages=2),
    Schedule(tile=dict(m=192, n=32), consumers=3),
    Schedule(tile=dict(m=192, n=72), consumers=1),
    Schedule(tile=dict(m=112, n=192), mma_m="n", consumers=1),
    Schedule(tile=dict(m=64, n=128), consumer_split="n"),
    Schedule(tile=dict(m=128, n=192), consumers=3, consumer_split="n", stages=2),
    Schedule(tile=dict(m=256, n=128), mma_m="n", consumer_split="m"),
    Schedule(tile=dict(n=208), swizzle=1),
    Schedule(tile=dict(n=128), scheduler="grid", swizzle=2),
)

_PARALLEL = Schedule(scheduler="split_k", splits=3, reduction="parallel", mode="cooperative")
_SERIAL = Schedule(scheduler="split_k", splits=2, mode="cooperative")
WIDTHS: tuple[tuple[str, Schedule], ...] = (
    ("gemm", Schedule(tile=dict(m=64, n=8), consumers=1)),
    ("gemm", Schedule(tile=dict(m=128, n=168), mode="cooperative")),
    ("gemm", Schedule(tile=dict(m=64, n=120), mode="pingpong")),
    ("gemm", Schedule(tile=dict(m=256, n=72), scheduler="stream_k")),
    ("gemm", Schedule(tile=dict(n=56), scheduler="stream_k")),
    ("gemm", replace(_SERIAL, tile=dict(n=72))),
    ("gemm", replace(_PARALLEL, tile=dict(n=168))),
    ("gemm", replace(_PARALLEL, tile=dict(n=104), splits=5)),
    ("gemm", Schedule(tile=dict(n=168), cluster=dict(m=2))),
    ("gemm", Schedule(tile=dict(n=72), cluster=dict(n=2))),
    ("gemm", Schedule(tile=dict(m=64, n=176), consumer_split="n")),
    ("gemm", Schedule(tile=dict(m=24, n=64), consumers=1, mma_m="n")),
    ("gemm", Schedule(tile=dict(m=64, n=64), consumers=1, mma_m="n", tile_n_variants=8)),
    ("gemm", Schedule(tile=dict(m=128, n=128), mma_m="n", mode="cooperative", tile_n_variants=8)),
    ("gemm", Schedule(tile=dict(m=192, n=128), mma_m="n", mode="pingpong", tile_n_variants=5)),
    ("column_major_a", Schedule(tile=dict(n=72))),
    ("column_major_b", Schedule(tile=dict(m=64, n=104), consumers=1)),
    ("mn_major", Schedule(tile=dict(m=64, n=24), consumers=1)),
    ("mn_major", Schedule(tile=dict(m=128, n=72), cluster=dict(n=2))),
    ("mn_major", Schedule(tile=dict(m=72, n=64), consumers=1, mma_m="n")),
    ("mn_major", Schedule(tile=dict(m=64, n=144), consumers=3, consumer_split="n")),
    ("mn_major", replace(_SERIAL, tile=dict(n=168))),
    ("epilogue", Schedule(tile=dict(n=72), mode="cooperative")),
    ("epilogue", Schedule(tile=dict(n=120), mode="pingpong")),
    ("nested", Schedule(tile=dict(n=40))),
    ("product_tf32", Schedule(tile=dict(n=72))),
    ("product_tf32", Schedule(tile=dict(m=64, n=64), mma_m="n", tile_n_variants=4)),
    ("product_f8e4m3", Schedule(tile=dict(n=88))),
    ("product_f8e4m3", replace(_PARALLEL, tile=dict(n=72))),
    ("product_i8", Schedule(tile=dict(n=24))),
    ("block_scaled", Schedule(tile=dict(n=72))),
    ("scaled_rows", Schedule(tile=dict(n=40))),
)
"""Tiles whose width is a multiple of 8 alone."""
