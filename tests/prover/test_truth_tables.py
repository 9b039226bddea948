"""Of each handshake every subset of its operations: only the whole is right."""

import itertools
from typing import Any

import pytest

from tests.prover.handshake import CONSUME, PRODUCE, THREADS_PRODUCE, ring, verdict

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
STORED_BY_THREADS = """
sync_warp()
store_shared(value=%v, shared=%y, item=%zero, swizzle="128B")
sync_warp(
)
thread_store(tensor=%Y, coordinates=(%zero, %j), box=(16, 64), swizzle="128B", row_dim=0,
  shared=%y, item=%zero)
"""
WAIT_FOR_SLOT = "mbarrier_wait(barriers=%empty, state=%p)"
WAIT_FOR_DATA = "mbarrier_wait(barriers=%full, state=%c)"
EXPECT = "mbarrier_arrive_expect_tx(barriers=%full, state=%p, tx_bytes=8192)"
ARRIVE = "mbarrier_arrive(barriers=%full, state=%p, each_thread=True)"
RELEASE = "mbarrier_arrive(barriers=%empty, state=%c)"
FENCE, MEET = "fence_async_proxy()", "sync_warp(\n)"
# The wait at an iteration's end makes the one at its beginning superfluous, but not its sync.
WAIT_AND_MEET = "tma_store_wait(pending=0)\nsync_warp()"
BY_TMA = CONSUME + VALUE + STAGED + "tma_store_wait(pending=0)\n"
BY_THREADS = CONSUME + VALUE + STORED_BY_THREADS
HANDSHAKES: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "slots filled by TMA": ((WAIT_FOR_SLOT, EXPECT, WAIT_FOR_DATA, RELEASE), {}),
    "slots filled by threads": (
        (WAIT_FOR_SLOT, FENCE, ARRIVE, WAIT_FOR_DATA, RELEASE),
        dict(produce=THREADS_PRODUCE, by_threads=True),
    ),
    "products": (("wgmma_fence()", "wgmma_commit()", "pending=0"), {}),
    "staged stores": (
        (WAIT_AND_MEET, FENCE, MEET, "tma_store_commit()"),
        dict(consume=BY_TMA, more=STAGING),
    ),
    "stores by threads": (("sync_warp()", MEET), dict(consume=BY_THREADS, more=STAGING)),
}
SUBSETS = [
    (name, kept)
    for name, (texts, *_) in HANDSHAKES.items()
    for kept in itertools.product((True, False), repeat=len(texts))
]


@pytest.mark.parametrize(("name", "kept"), SUBSETS)
def test_only_the_whole_is_right(name: str, kept: tuple[bool, ...]) -> None:
    texts, own = HANDSHAKES[name]
    given: dict[str, Any] = dict(produce=PRODUCE, consume=CONSUME) | own
    for text, keep in zip(texts, kept, strict=True):
        assert text in given["produce"] + given["consume"]
        if not keep:
            for side in ("produce", "consume"):
                other = "pending=1" if text == "pending=0" else ""
                given[side] = given[side].replace(text, other)
    assert (verdict(ring(**given)) == "") == all(kept)
