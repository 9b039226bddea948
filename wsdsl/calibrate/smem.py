"""SMEM: what threads read and write, and what wgmma, threads and TMA do to each other there."""

from __future__ import annotations

from wsdsl.calibrate import rings, tensor
from wsdsl.calibrate.asm import Asm, Kernel, kernel
from wsdsl.calibrate.gpu import Gpu
from wsdsl.rates.rates import A_BYTES, COLUMN_BYTES

THREADS = 512
EACH = 8
"""Accesses of 16 bytes, one behind the other."""
COUNT = 1000
NARROW = 32
"""Columns of wgmmas that SMEM limits."""
GROUPS, READS, FILLS = 2000, 400, 400
"""Of products, and of what is told how often it runs in the time of these."""
READERS = 256
FILL_SLOTS = 4


def accesses(write: bool) -> Kernel:
    asm = Asm()
    asm(f".reg .b32 v<{4 * EACH}>;\nmad.lo.u32 k, tid, 16, base;")
    asm("mov.u32 v0, tid;\nmov.u32 v1, cta;\nmov.u32 v2, 0;\nmov.u32 v3, 0;")
    asm.start()
    with asm.loop("i", "count"):
        _access(asm, write, THREADS)
    asm.stop()
    return kernel("smem_writes" if write else "smem_reads", asm, THREADS)


def _access(asm: Asm, write: bool, threads: int) -> None:
    for n in range(EACH):
        at = f"[k+{16 * threads * n}]"
        if write:
            asm(f"st.volatile.shared.v4.b32 {at}, {{v0, v1, v2, v3}};")
        else:
            own = ", ".join(f"v{4 * n + m}" for m in range(4))
            asm(f"ld.volatile.shared.v4.b32 {{{own}}}, {at};")
    if not write:
        asm.keep("v", 4 * EACH)


def beside(fills: bool) -> Kernel:
    """`count` groups of products by a warpgroup; beside it `others` rounds of reads by threads, or
    blocks by TMA."""
    asm = Asm()
    tensor.declare(asm, NARROW)
    asm(f".reg .b32 v<{4 * EACH}>;")
    if fills:
        rings.begin(asm, FILL_SLOTS)
        asm(f"mad.wide.u32 address, cta, {rings.BLOCK}, source;")
    # Behind what is read or filled beside.
    asm(f"add.u32 j, base, {1 << 17};\nadd.u32 k, base, {(1 << 17) + tensor.GROUP_BYTES};")
    tensor.operands(asm, "j", "k")
    asm.start()
    with asm.where("lt.u32 warp, 4"):
        with asm.loop("i", "count"):
            asm("setp.ne.u32 further, i, 0;")
            tensor.group(asm, 16, NARROW, False)
        asm("wgmma.wait_group.sync.aligned 0;")
    if fills:
        with asm.where("eq.u32 tid, 128"):
            with asm.loop("i", "others"):
                rings.take(asm)
                rings.expect(asm)
                asm(f"{rings.BULK} [to], [address], {rings.BLOCK}, [at];")
                rings.step(asm, FILL_SLOTS)
            with asm.loop("i", FILL_SLOTS):
                rings.take(asm)
                rings.step(asm, FILL_SLOTS)
    else:
        asm("sub.u32 k, tid, 128;\nmad.lo.u32 k, k, 16, base;")
        with asm.where("ge.u32 warp, 4"), asm.loop("i", "others"):
            _access(asm, False, READERS)
    asm.stop()
    asm.keep("d", NARROW // 2, "f32")
    if fills:
        return kernel("products_beside_fills", asm, 160, "u32 others", "u64 source")
    return kernel("products_beside_reads", asm, 128 + READERS, "u32 others")


READING, WRITING = accesses(False), accesses(True)
BESIDE_READS, BESIDE_FILLS = beside(False), beside(True)
KERNELS = (READING, WRITING)
SHARING_KERNELS = (BESIDE_READS, BESIDE_FILLS)


def measure(gpu: Gpu) -> dict[str, float]:
    moved = COUNT * THREADS * EACH * 16
    return {
        "smem_read_bytes": moved / gpu.run(READING, 1, COUNT).cycles,
        "smem_write_bytes": moved / gpu.run(WRITING, 1, COUNT).cycles,
    }


def measure_sharing(gpu: Gpu) -> dict[str, float]:
    """By how much longer both take than each alone, which take the same: for each byte beside, in
    what products need for one.
    """
    block = gpu.buffer(rings.BLOCK)
    gpu.clear(block, rings.BLOCK)
    read = GROUPS * tensor.STEPS * (A_BYTES + NARROW * COLUMN_BYTES)

    def share(kernel: Kernel, some: int, each: int, *arguments: int) -> float:
        alone = gpu.run(kernel, 1, GROUPS, 0, *arguments).cycles
        others = round(some * alone / gpu.run(kernel, 1, 0, some, *arguments).cycles)
        both = gpu.run(kernel, 1, GROUPS, others, *arguments).cycles
        return max(0.0, (both - alone) / alone * read / (others * each))

    return {
        "smem_sharing": share(BESIDE_READS, READS, READERS * EACH * 16),
        "smem_fill_sharing": share(BESIDE_FILLS, FILLS, rings.BLOCK, block),
    }
