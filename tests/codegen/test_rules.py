"""The rules of the spec on clusters, named barriers, flags, alignment and register operands."""

import re

import pytest

from tests.simulator.kernels import rejected, sample_text
from wsdsl.ir.hardware.wgmma_shapes import columns_fault
from wsdsl.ir.parser import parse_kernel
from wsdsl.ir.types import DTYPES
from wsdsl.ir.verify.verifier import verify

B_LOAD = "tma_load(map=%b_map, coordinates=(%n, %k), shared=%slots, offset=16384, state=%f1, "
NO_CLUSTER = "has no cluster"
TURN = '%k_next: i32 = map(fn="add", args=(%k_1, %c64))\n'
CONVERT = "%a: frag<bf16[64x64] operand> = convert_layout(x=%loaded)"
LOADED = (
    "%loaded: frag<bf16[64x64]> = load_global(tensor=%A, index=(%rows, %depth))\n"
    f"        {CONVERT}\n"
)
BROKEN: dict[str, tuple[str, str, str, str]] = {
    "cluster_of_3": ("gemm_cluster", "cluster=2", "cluster=3", "cluster=3 must be one of"),
    "cluster_of_16": ("gemm_cluster", "cluster=2", "cluster=16", "cluster=16 must be one of"),
    "no_meeting": ("gemm_cluster", "  sync_cluster()\n  %m_size", "  sync_cta()\n  %m_size",
                   "all threads must synchronize (sync_cluster)"),
    "sync_cluster": ("gemm", "sync_cta()", "sync_cta()\nsync_cluster()", NO_CLUSTER),
    "cluster_index": ("gemm", "cta_index()", "cluster_index()", NO_CLUSTER),
    "num_clusters": ("gemm", "num_ctas()", "num_clusters()", NO_CLUSTER),
    "cta_rank": ("gemm", "cta_index()", "cta_rank()", NO_CLUSTER),
    "arrive_at": ("gemm", "state=%last, pred=%any", "state=%last, cta=%zero", NO_CLUSTER),
    "multicast": ("gemm", B_LOAD, f"{B_LOAD}multicast=%two, ", NO_CLUSTER),
    "barrier_0": ("gemm_pingpong", "barrier_arrive(barrier=1", "barrier_arrive(barrier=0",
                  "must be 1 to 15"),
    "barrier_16": ("gemm_pingpong", "barrier_sync(barrier=2", "barrier_sync(barrier=16",
                   "must be 1 to 15"),
    "other_count": ("gemm_pingpong", "barrier_arrive(barrier=1, num_warpgroups=2",
                    "barrier_arrive(barrier=1, num_warpgroups=3", "has 2 warpgroups"),
    "too_many": ("stream_k", "=2)\n        semaphore_arrive", "=4)\n        semaphore_arrive",
                 "kernel has 3"),
    "flag_of_f32": ("stream_k", "%flags: tensor<i32", "%flags: tensor<f32", "a tensor of i32"),
    "tiles_at": ("gemm", "offset=131072", "offset=131200", "start at a multiple of 1024"),
    "items_of": ("gemm", "shared<8192 x 4>", "shared<7680 x 4>", "must be a multiple of 1024"),
    "barriers_at": ("gemm", "offset=163872", "offset=163876", "at a multiple of 8 bytes"),
    "copy_at": ("gemm", B_LOAD, B_LOAD.replace("16384", "15872"), "swizzle 128B must start at"),
    "operand_at": ("gemm", "%b: matrix_descriptor = smem_descriptor(shared=%slots, offset=16384",
                   "%b: matrix_descriptor = smem_descriptor(shared=%slots, offset=16512",
                   "swizzle 128B must start at"),
    "part_of_k": ("gemm", 'dtype="bf16", k=64)', 'dtype="bf16", k=56)', "needs a multiple of 16"),
    "f32": ("gemm", 'dtype="bf16", k=64)', 'dtype="f32", k=64)',
            "wgmma cannot multiply f32 and f32"),
    "two_types": ("gemm", 'dtype="bf16", k=64)', 'dtype="f8e4m3", b_dtype="i8", k=64)',
                  "wgmma cannot multiply f8e4m3 and i8"),
    "integers": ("gemm", 'dtype="bf16", k=64)', 'dtype="i8", k=64)',
                 "wgmma of i8 accumulates i32, not f32"),
    "part_of_k_of_fp8": ("gemm", 'dtype="bf16", k=64)', 'dtype="f8e5m2", k=48)',
                         "wgmma of f8e5m2 needs a multiple of 32"),
    "mn_major": ("gemm", 'dtype="bf16", k=64)', 'dtype="tf32", k=64, b_k_major=False)',
                 "an operand of tf32 must be K-major"),
    "tf32_in_registers": ("gemm_registers", 'dtype="bf16", k=64)', 'dtype="tf32", k=64)',
                          "in registers must have 16 or 8 bits"),
    "not_converted": ("gemm_registers", "a=%a,", "a=%loaded,", "use `convert_layout`"),
    "made_otherwise": ("gemm_registers", "convert_layout(", "cast(", "only `convert_layout` gives"),
    "taken_otherwise": ("gemm_registers", CONVERT, f"{CONVERT}\n%p: frag<f32[64x64]> = cast(x=%a)",
                        "only wgmma can use it"),
    "of_f32": ("gemm_registers", CONVERT,
               "%w: frag<f32[64x64]> = cast(x=%loaded)\n"
               "%a: frag<f32[64x64] operand> = convert_layout(x=%w)", "64 rows of 16 or 8 bits"),
    "part_of_a_step": (
        "gemm_registers", CONVERT,
        "%w: frag<bf16[64x8]> = slice_columns(x=%loaded, start=0)\n"
        "%a: frag<bf16[64x8] operand> = convert_layout(x=%w)", "a multiple of 32 bytes"),
    "other_b": ("gemm", 'dtype="bf16", k=64)', 'dtype="f8e4m3", k=64)',
                "the wgmma expects f8e4m3"),
    "columns": ("gemm", "64x128]", "64x264]", "8 to 256 columns"),
    "narrow": ("gemm_registers", 'dtype="bf16", k=64)', 'dtype="bf16", k=32)', "be 64 x 32"),
    "other_dtype": ("gemm_registers", "bf16[64x64]", "f16[64x64]", "the wgmma expects bf16"),
    "in_flight": ("gemm_registers", "pending=0, fragments", "pending=1, fragments",
                  "%a may be overwritten before"),
    "in_flight_but_at_the_end": (
        "gemm_registers", "wgmma_wait(pending=0, fragments=(%a,))",
        f'{TURN}%end: bool = map(fn="ge", args=(%k_next, %k_size))\n'
        "if(cond=%end) { wgmma_wait(pending=0, fragments=(%a,)) yield() } "
        "{ wgmma_wait(pending=1, fragments=(%a,)) yield() }", "%a may be overwritten before"),
    "carried": (
        "gemm_registers", "wgmma_wait(pending=0, fragments=(%a,))",
        "wgmma_wait(pending=1, fragments=(%a,))\nwgmma_wait(pending=1)", "%a may be overwritten"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_broken(name: str) -> None:
    kernel, *change = BROKEN[name]
    rejected(sample_text(kernel), *change)


WAIT = "wgmma_wait(pending=0, fragments=(%a,))"
SECOND = """
%acc9: acc<f32[64x128]> = wgmma_mma_async(acc=%acc2, a=%a2, b=%b,
    accumulate=%more, dtype="bf16", k=64)
wgmma_commit()
"""
SLICED = """
%q: frag<bf16[64x64]> = slice_columns(x=%loaded, start=0)
wgmma_fence()
"""
KEPT = {
    "both arms": f"if(cond=%more) {{ {WAIT} yield() }} {{ {WAIT} yield() }}",
    "one group behind, in one iteration": f"{SECOND}wgmma_wait(pending=1, fragments=(%a,))\n"
    "wgmma_wait(pending=0, fragments=(%a2,))",
    "a join with it": "%ab: frag<bf16[64x128]> = join_columns(parts=(%loaded2, %loaded))\n"
    "wgmma_wait(pending=0, fragments=(%ab,))",
}


@pytest.mark.parametrize("name", KEPT)
def test_kept(name: str) -> None:
    text = sample_text("gemm_registers").replace(WAIT, KEPT[name])
    second = re.sub("%(loaded|a)([:)])", r"%\g<1>2\2", LOADED)
    text = text.replace(LOADED, LOADED + second)
    if "acc9" in KEPT[name]:
        text = text.replace("yield(values=(%acc2,", "yield(values=(%acc9,")
    verify(parse_kernel(text))


NOT_FENCED = "no wgmma_fence follows the last write"
FENCES = {
    "none": ("", "", NOT_FENCED),
    "before the loop": ("wgmma_fence()\n", "", NOT_FENCED),
    "in one arm": ("", "if(cond=%more) { wgmma_fence() yield() } { yield() }", NOT_FENCED),
    "in both arms": ("", "if(cond=%more) { wgmma_fence() yield() } { wgmma_fence() yield() }", ""),
    "in a loop that may not run": (
        "", "for_range(index=%j: i32, start=%zero, stop=%k_1, step=%c64, init=(), args=()) "
        "{ wgmma_fence() yield() }", NOT_FENCED),
    "between a slice and a join": (
        "", f"{SLICED}%j: frag<bf16[64x64]> = join_columns(parts=(%q,))\n"
        "%a9: frag<bf16[64x64] operand> = convert_layout(x=%j)", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", FENCES)
def test_fenced(name: str) -> None:
    before, inside, words = FENCES[name]
    text = sample_text("gemm_registers").replace("wgmma_fence()", inside)
    text = text.replace("      %acc3: acc", f"{before}      %acc3: acc")
    if "%a9" in inside:
        text = text.replace("wgmma(acc=%acc1, a=%a,", "wgmma(acc=%acc1, a=%a9,")
    if words:
        rejected(text, "", "", words)
    else:
        verify(parse_kernel(text))


def test_made_once_and_kept_after_the_loop() -> None:
    """Each iteration reads a slice, like of a tile of Q."""
    text = sample_text("gemm_registers").replace(LOADED, "").replace(WAIT, "wgmma_wait(pending=1)")
    depth = "        %depth: frag<i32[1x64]> = iota(start=%k_1)\n"
    assert depth in text
    text = text.replace(depth, "")
    first = "      %acc0: acc"
    made = f"%depth: frag<i32[1x64]> = iota(start=%zero)\n{LOADED}"
    sliced = f"{SLICED}%s: frag<bf16[64x64] operand> = convert_layout(x=%q)\n"
    text = text.replace(first, made + first).replace("wgmma_fence()", sliced)
    text = text.replace("a=%a, b=%b", "a=%s, b=%b")
    kept = text.replace("accumulators=(%acc3,)", "accumulators=(%acc3,), fragments=(%a,)")
    verify(parse_kernel(kept))
    late = "= wgmma_wait(pending=0,", "= wgmma_wait(pending=1,"
    rejected(kept, *late, "%s may be overwritten")


@pytest.mark.parametrize(("columns", "fits"), [(8, True), (24, True), (40, False), (48, True)])
def test_integers_of_few_widths(columns: int, fits: bool) -> None:
    """ptxas takes no others, although it does of floats."""
    assert bool(columns_fault(columns, DTYPES["i8"])) != fits
    assert not columns_fault(columns, DTYPES["f8e4m3"])


def test_sync_cta_may_precede_sync_cluster() -> None:
    text = sample_text("gemm_cluster")
    verify(
        parse_kernel(text.replace("  sync_cluster()\n  %m", "  sync_cta()\nsync_cluster()\n  %m"))
    )
