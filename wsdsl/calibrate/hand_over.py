"""Measure communication through global memory between CTAs of different clusters."""

from __future__ import annotations

from wsdsl.calibrate.asm import Asm, Kernel, kernel
from wsdsl.calibrate.gpu import Gpu

THREADS = 128
COUNT = 500
LINE = 128
"""Bytes that a flag has for itself."""
DATA = 2 * THREADS * 16


def hand_over() -> Kernel:
    """Two CTAs alternate: all threads store, one sets the other CTA's flag; there one thread waits
    for it, and all load the stored data.
    """
    asm = Asm()
    asm(f"""
        .reg .b64 own, other, from, into;
        .reg .b32 v<4>, seen, wanted;
        xor.b32 k, cta, 1;
        mad.wide.u32 own, cta, {LINE}, flags;
        mad.wide.u32 other, k, {LINE}, flags;
        mul.wide.u32 address, tid, 16;
        add.u64 address, address, place;
        mad.wide.u32 into, cta, {THREADS * 16}, address;
        mad.wide.u32 from, k, {THREADS * 16}, address;
        mov.u32 v0, tid;
        mov.u32 v1, 0;
        mov.u32 v2, 0;
        mov.u32 v3, 0;""")
    asm.start()
    with asm.loop("i", "count"):
        asm("add.u32 wanted, i, 1;")
        with asm.where("eq.u32 cta, 1"):
            _take(asm)
        _give(asm)
        with asm.where("eq.u32 cta, 0"):
            _take(asm)
    asm.stop()
    asm.keep("v", 4)
    return kernel("hand_over", asm, THREADS, "u64 flags", "u64 place")


def _give(asm: Asm) -> None:
    asm("st.global.v4.b32 [into], {v0, v1, v2, v3};\nbar.sync 0;")
    with asm.where("eq.u32 tid, 0"):
        asm("red.release.gpu.global.add.u32 [other], 1;")


def _take(asm: Asm) -> None:
    with asm.where("eq.u32 tid, 0"):
        asm.until("ld.acquire.gpu.global.b32 seen, [own];\nsetp.ge.u32 done, seen, wanted;")
    asm("bar.sync 0;\nld.relaxed.gpu.global.v4.b32 {v0, v1, v2, v3}, [from];")


def counter() -> Kernel:
    asm = Asm()
    asm("mov.u32 k, 1;")
    asm.start()
    with asm.where("eq.u32 tid, 0"), asm.loop("i", "count"):
        asm("atom.relaxed.gpu.global.add.u32 k, [flags], k;")
    asm.stop()
    asm("xor.b32 sink, sink, k;")
    return kernel("counter", asm, 32, "u64 flags")


HAND_OVER, COUNTER = hand_over(), counter()
KERNELS = (HAND_OVER, COUNTER)


def measure(gpu: Gpu) -> dict[str, float]:
    flags, place = gpu.buffer(2 * LINE), gpu.buffer(DATA)
    gpu.clear(place, DATA)
    taken: list[float] = []
    for _ in range(4):
        gpu.clear(flags, 2 * LINE)
        taken.append(gpu.once(HAND_OVER, 2, COUNT, flags, place).cycles / COUNT / 2)
    return {
        # The first one loads the kernel.
        "hand_over_cycles": sorted(taken[1:])[1],
        "atomic_cycles": gpu.run(COUNTER, 1, COUNT, flags).cycles / COUNT,
    }
