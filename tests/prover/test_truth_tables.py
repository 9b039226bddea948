"""Of each handshake every subset of its operations: only the whole is right."""

import itertools

import pytest

from tests.prover.handshake import CONSUME, PRODUCE, THREADS_PRODUCE, ring, verdict

COPIED_BY_TMA = (
    ("wait_barrier(barriers=%empty, state=%p)", PRODUCE),
    ("arrive_expect_tx(barriers=%full, state=%p, tx_bytes=8192)", PRODUCE),
    ("wait_barrier(barriers=%full, state=%c)", CONSUME),
    ("arrive_barrier(barriers=%empty, state=%c)", CONSUME),
)
COPIED_BY_THREADS = (
    ("wait_barrier(barriers=%empty, state=%p)", THREADS_PRODUCE),
    ("fence_async_proxy()", THREADS_PRODUCE),
    ("arrive_barrier(barriers=%full, state=%p, each_thread=True)", THREADS_PRODUCE),
    ("wait_barrier(barriers=%full, state=%c)", CONSUME),
    ("arrive_barrier(barriers=%empty, state=%c)", CONSUME),
)
PRODUCTS = (
    ("wgmma_fence()", CONSUME),
    ("wgmma_commit()", CONSUME),
    ("pending=0", CONSUME),
)
STAGED = """
tma_store_wait(pending=0)
sync_warp()
store_shared(value=%v, shared=%y, item=%zero, swizzle="128B")
fence_async_proxy()
sync_warp(
)
tma_store(map=%out, coordinates=(%zero, %j), row_dim=0, shared=%y, item=%zero)
tma_store_commit()
"""
STAGING = (
    '%y: shared<8192 x 1> = allocate_shared(label="y", offset=100000)\n'
    '%out: tensor_map = make_tensor_map(tensor=%Y, box=(16, 64), swizzle="128B")\n'
    "%one: f32 = constant(value=1.0)\n"
)
VALUE = "%f: frag<f32[64x64]> = full(value=%one)\n%v: frag<bf16[64x64]> = cast(x=%f)\n"
STORE = (
    "tma_store_wait(pending=0)\nsync_warp()",
    "fence_async_proxy()",
    "sync_warp(\n)",
    "tma_store_commit()",
)

BY_THREADS = """
sync_warp()
store_shared(value=%v, shared=%y, item=%zero, swizzle="128B")
sync_warp(
)
thread_store(tensor=%Y, coordinates=(%zero, %j), box=(16, 64), swizzle="128B", row_dim=0,
  shared=%y, item=%zero)
"""


def subsets(count: int) -> list[tuple[bool, ...]]:
    return list(itertools.product((True, False), repeat=count))


@pytest.mark.parametrize("kept", subsets(4))
def test_slots_filled_by_tma(kept: tuple[bool, ...]) -> None:
    gone = [text for (text, _), keep in zip(COPIED_BY_TMA, kept, strict=True) if not keep]
    produce, consume = PRODUCE, CONSUME
    for text in gone:
        produce, consume = produce.replace(text, ""), consume.replace(text, "")
    assert (verdict(ring(produce, consume)) == "") == all(kept)


@pytest.mark.parametrize("kept", subsets(5))
def test_slots_filled_by_threads(kept: tuple[bool, ...]) -> None:
    gone = [text for (text, _), keep in zip(COPIED_BY_THREADS, kept, strict=True) if not keep]
    produce, consume = THREADS_PRODUCE, CONSUME
    for text in gone:
        produce, consume = produce.replace(text, ""), consume.replace(text, "")
    assert (verdict(ring(produce, consume, by_threads=True)) == "") == all(kept)


@pytest.mark.parametrize("kept", subsets(3))
def test_products(kept: tuple[bool, ...]) -> None:
    consume = CONSUME
    for (text, _), keep in zip(PRODUCTS, kept, strict=True):
        if not keep:
            consume = consume.replace(text, "pending=1" if text == "pending=0" else "")
    assert (verdict(ring(consume=consume)) == "") == all(kept)


@pytest.mark.parametrize("kept", subsets(4))
def test_staged_stores(kept: tuple[bool, ...]) -> None:
    staged = STAGED
    for text, keep in zip(STORE, kept, strict=True):
        if not keep:
            staged = staged.replace(text, "")
    kernel = ring(consume=CONSUME + VALUE + staged + "tma_store_wait(pending=0)\n", more=STAGING)
    # The wait at the iteration's end makes the one at its beginning superfluous, but not its sync.
    assert (verdict(kernel) == "") == all(kept)


@pytest.mark.parametrize("kept", subsets(2))
def test_stores_by_threads(kept: tuple[bool, ...]) -> None:
    staged = BY_THREADS
    for text, keep in zip(("sync_warp()", "sync_warp(\n)"), kept, strict=True):
        if not keep:
            staged = staged.replace(text, "")
    kernel = ring(consume=CONSUME + VALUE + staged, more=STAGING)
    assert (verdict(kernel) == "") == all(kept)
