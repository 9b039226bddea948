"""Each rule of the spec objects to a kernel that breaks it, with a caret under the op."""

import dataclasses
import pickle

import pytest

from tests.simulator.kernels import rejected, sample_text
from wsdsl.ir.parser import parse_kernel
from wsdsl.ir.verify.verifier import verify

GEMM = sample_text("gemm")
GEMM = GEMM.replace("scheduled (", "scheduled (%U: tensor<u8[M, N]>, ", 1)

BROKEN = {
    "tx_bytes": ("tx_bytes=32768", "tx_bytes=16384", "16384 bytes are expected"),
    "no_copy": (
        "tma_load(map=%b_map, coordinates=(%n, %k), shared=%slots, offset=16384, state=%f1, "
        "barriers=%full)",
        "",
        "the copies bring 16384",
    ),
    "no_expect": (
        "mbarrier_arrive_expect_tx(barriers=%full, state=%f1, tx_bytes=32768)",
        "",
        "no mbarrier_arrive_expect_tx expects",
    ),
    "barrier_not_initialised": (
        "mbarrier_init(barriers=%empty)",
        "",
        "a barrier must be initialized exactly once",
    ),
    "no_fence": ("fence_mbarrier_init()", "", "fence_mbarrier_init must follow"),
    "no_meeting": ("sync_cta()", "", "all threads must synchronize"),
    "registers": ("setmaxnreg(count=232", "setmaxnreg(count=240", "not 232"),
    "registers_missing": ("setmaxnreg(count=40, increase=False)", "", "set its registers"),
    "lowered": ('role="compute"', 'role="compute", in_order=True', "has no effect after lowering"),
    "overlap": ("offset=131072", "offset=130048", "overlaps"),
    "smem": ("offset=163872", "offset=232440", "of 232448"),
    "box": ("box=(16, 64)", "box=(16, 128)", "a row of 256 bytes"),
    "short_lines": ("box=(16, 64)", "box=(16, 32)", "a row of 64 bytes does not fit swizzle 128B"),
    "narrow_panels": (
        'start=%row, dtype="bf16", rows=128, columns=64',
        'start=%row, dtype="bf16", rows=128, columns=32',
        "128 rows of 64 bytes",
    ),
    "step": (
        "%t: i32, start=%first, stop=%num_tiles, step=%num_ctas",
        "%t: i32, start=%first, stop=%num_tiles, step=%k_size",
        "the step may be 0 or negative",
    ),
    "addition": (
        "accumulators=(%acc3,))",
        """accumulators=(%acc3,))
      thread_store(tensor=%U, coordinates=(%item0, %item0), box=(16, 16), swizzle="none",
        row_dim=0, shared=%staging, item=%item0, accumulate=True)""",
        "memory cannot add u8 elements",
    ),
    "beside_others": (
        '  partition(role="compute"',
        '  partition(role="load", num_warps=1) { sync_warp() }\n  partition(role="compute"',
        "put it in elect()",
    ),
    "warps": (
        '  partition(role="compute"',
        4 * '  partition(role="load", num_warps=1) { }\n' + '  partition(role="compute"',
        "no warp of the warpgroup is left",
    ),
    "yield": ("yield(values=(%acc2, %s2, %s1))", "yield(values=(%acc2, %s2))", "yielded"),
}


def test_the_sample_holds() -> None:
    verify(parse_kernel(GEMM))


@pytest.mark.parametrize("name", BROKEN)
def test_broken(name: str) -> None:
    rejected(GEMM, *BROKEN[name])


def test_what_was_found_out_is_not_pickled():
    """Hashes are others in another process."""
    kernel = parse_kernel(GEMM, "gemm")
    verify(kernel)
    hash(kernel)
    assert "_hash" in vars(kernel.body[0])
    again = pickle.loads(pickle.dumps(kernel))
    assert "_hash" not in vars(again.body[0])
    assert vars(again).keys() == {f.name for f in dataclasses.fields(kernel)}
    assert again == kernel
