"""Measure the clock while the GPU is busy for long enough that its power limits the clock.

Two warpgroups multiply random normal numbers on each SM: 128 rows by 256 columns, as in matmuls.
"""

import random
import struct
import time

from wsdsl.calibrate import rings, tensor
from wsdsl.calibrate.asm import Asm, Kernel, kernel
from wsdsl.calibrate.gpu import Argument, Gpu

COLUMNS = 256
SLOT = (128 + COLUMNS) * 128
SLOTS = 4
BLOCKS = SLOT // rings.BLOCK
DATA_BYTES = 16 << 20
"""Of random numbers, which L2 holds. CTAs begin at different places of it."""
SAME = 4
"""CTAs that begin at the same address, so that they load the same L2 lines, as in matmuls."""
COUNT = 4000
"""Pipeline stages that a launch multiplies: some milliseconds."""
WARM = 0.4
"""The share of the time before what counts."""
IDLE_COUNT = 1000000


def products(loaded: bool) -> Kernel:
    """`loaded`: a third warpgroup brings the operands of each step; else those of one step are
    multiplied again and again.
    """
    asm = Asm()
    tensor.declare(asm, COLUMNS)
    asm(".reg .b32 full, empty, stage, phase, place, last, to, v<4>;")
    asm(f"add.u32 full, base, {SLOTS * SLOT};")
    asm(f"add.u32 empty, full, {8 * SLOTS};\nmov.u32 stage, 0;\nmov.u32 phase, 0;")
    with asm.where("eq.u32 tid, 0"):
        asm.init("full", SLOTS)
        asm.init("empty", SLOTS, 2)
    asm(f"shr.u32 k, cta, {SAME.bit_length() - 1};\nmul.lo.u32 k, k, {7 * rings.BLOCK};")
    asm(f"and.b32 k, k, {DATA_BYTES - 1};")
    _fill(asm)
    asm("fence.proxy.async.shared::cta;\nshr.u32 j, warp, 2;\nbar.sync 0;")
    with asm.timed():
        with asm.where("lt.u32 warp, 8"):
            asm("setmaxnreg.inc.sync.aligned.u32 240;")
            with asm.loop("i", "count"):
                if loaded:
                    asm("mad.lo.u32 bar, stage, 8, full;")
                    asm.wait("bar", "phase")
                asm(f"mad.lo.u32 place, stage, {SLOT}, base;\nmad.lo.u32 x, j, 8192, place;")
                asm("mov.u32 y, x;\nadd.u32 k, place, 16384;")
                tensor.operands(asm, "y", "k")
                asm("setp.ne.u32 further, i, 0;")
                tensor.group(asm, 16, COLUMNS, False)
                _advance(asm, loaded)
            asm("wgmma.wait_group.sync.aligned 0;")
            asm.keep("d", COLUMNS // 2, "f32")
        with asm.where("ge.u32 warp, 8"):
            asm("setmaxnreg.dec.sync.aligned.u32 24;")
            if loaded:
                with asm.where("eq.u32 tid, 256"):
                    _bring(asm)
    return kernel("power_fed" if loaded else "power_shared", asm, 384, "u64 source")


def _fill(asm: Asm) -> None:
    """Fill all stages with random numbers, by all threads."""
    asm("cvt.u64.u32 address, k;\nadd.u64 address, source, address;")
    asm(
        "mul.wide.u32 mine, tid, 16;\nadd.u64 address, address, mine;\nmad.lo.u32 x, tid, 16, base;"
    )
    with asm.loop("i", SLOTS * SLOT // (384 * 16)):
        asm(
            "ld.global.v4.b32 {v0, v1, v2, v3}, [address];\nst.shared.v4.b32 [x], {v0, v1, v2, v3};"
        )
        asm(f"add.u64 address, address, {384 * 16};\nadd.u32 x, x, {384 * 16};")


def _advance(asm: Asm, loaded: bool) -> None:
    """Advance to the next stage. The MMAs of the stage before are complete: release it."""
    if loaded:
        asm(
            "and.b32 x, tid, 127;\nsetp.eq.u32 chosen, x, 0;\nsetp.ne.and.u32 chosen, i, 0, chosen;"
        )
        asm(f"sub.u32 last, stage, 1;\nand.b32 last, last, {SLOTS - 1};")
        asm("mad.lo.u32 last, last, 8, empty;")
        asm("@chosen mbarrier.arrive.shared::cta.b64 _, [last];")
    asm(f"""
        add.u32 stage, stage, 1;
        and.b32 stage, stage, {SLOTS - 1};
        setp.eq.u32 done, stage, 0;
        selp.u32 x, 1, 0, done;
        xor.b32 phase, phase, x;""")


def _bring(asm: Asm) -> None:
    asm("mov.u32 phase, 1;")
    with asm.loop("i", "count"):
        asm(f"mad.lo.u32 bar, stage, 8, empty;\nmad.lo.u32 to, stage, {SLOT}, base;")
        asm.wait("bar", "phase")
        asm("mad.lo.u32 bar, stage, 8, full;")
        asm(f"mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], {SLOT};")
        for n in range(BLOCKS):
            asm("cvt.u64.u32 address, k;\nadd.u64 address, source, address;")
            asm(f"add.u32 last, to, {n * rings.BLOCK};")
            asm(f"{rings.BULK} [last], [address], {rings.BLOCK}, [bar];")
            asm(f"add.u32 k, k, {rings.BLOCK};\nand.b32 k, k, {DATA_BYTES - 1};")
        _advance(asm, False)


def idle() -> Kernel:
    asm = Asm()
    with asm.timed(), asm.loop("i", "count"):
        asm("mad.lo.u32 sink, sink, 3, i;")
    return kernel("idle", asm, 32)


SHARED, FED = products(False), products(True)
IDLE = idle()
KERNELS = (SHARED, FED, IDLE)


def measure(gpu: Gpu, seconds: float) -> dict[str, float]:
    source = gpu.buffer(DATA_BYTES + SLOTS * SLOT)
    gpu.upload(source, numbers(DATA_BYTES + SLOTS * SLOT))
    # The idle kernel first: the GPU is warm afterwards.
    found = {"clock": gpu.run(IDLE, gpu.num_sms, IDLE_COUNT).clock}
    for name, busy in (("tensor_smem_clock", SHARED), ("tensor_l2_clock", FED)):
        found[name] = sustained(gpu, busy, seconds / 2, source)
    return found


def sustained(gpu: Gpu, kernel: Kernel, seconds: float, *arguments: Argument) -> float:
    """The mean clock of what is left when the power has settled."""
    start = time.monotonic()
    clocks: list[float] = []
    while not clocks or time.monotonic() - start < seconds:
        clocks.append(gpu.once(kernel, gpu.num_sms, COUNT, *arguments).clock)
    return settled(clocks)


def settled(clocks: list[float]) -> float:
    left = clocks[int(len(clocks) * WARM) :]
    return sum(left) / len(left)


def numbers(size: int) -> bytes:
    """Random normal bf16."""
    own = random.Random(7)
    words = struct.pack("<65536f", *(own.gauss(0.0, 1.0) for _ in range(65536)))
    some = b"".join(words[n + 2 : n + 4] for n in range(0, len(words), 4))
    return (some * (size // len(some) + 1))[:size]
