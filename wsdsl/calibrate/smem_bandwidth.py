"""Measure SMEM reads of threads, and SMEM contention between wgmma and TMA."""

from wsdsl.calibrate import rings, tensor
from wsdsl.calibrate.asm import Asm, Kernel, kernel
from wsdsl.calibrate.gpu import Gpu
from wsdsl.rates.rates import A_BYTES, COLUMN_BYTES

THREADS = 512
EACH = 8
"""Accesses of 16 bytes, back to back."""
COUNT = 1000
NARROW = 32
"""Columns of wgmmas that SMEM limits."""
GROUPS, FILLED = 2000, 400
"""Of products, and blocks that are filled to see how many are in the time of these."""
FILL_SLOTS = 4


def reads() -> Kernel:
    asm = Asm()
    asm(f".reg .b32 v<{4 * EACH}>;\nmad.lo.u32 k, tid, 16, base;")
    with asm.timed(), asm.loop("i", "count"):
        for n in range(EACH):
            own = ", ".join(f"v{4 * n + m}" for m in range(4))
            asm(f"ld.volatile.shared.v4.b32 {{{own}}}, [k+{16 * THREADS * n}];")
        asm.keep("v", 4 * EACH)
    return kernel("smem_reads", asm, THREADS)


def fills() -> Kernel:
    """`count` groups of wgmmas by a warpgroup; concurrently, `others` blocks by TMA."""
    asm = Asm()
    tensor.declare(asm, NARROW)
    rings.begin(asm, FILL_SLOTS)
    asm(f"mad.wide.u32 address, cta, {rings.BLOCK}, source;")
    # After the stages that TMA fills.
    asm(f"add.u32 j, base, {1 << 17};\nadd.u32 k, base, {(1 << 17) + tensor.GROUP_BYTES};")
    tensor.operands(asm, "j", "k")
    with asm.timed():
        with asm.where("lt.u32 warp, 4"):
            with asm.loop("i", "count"):
                asm("setp.ne.u32 further, i, 0;")
                tensor.group(asm, 16, NARROW, False)
            asm("wgmma.wait_group.sync.aligned 0;")
        with asm.where("eq.u32 tid, 128"):
            with asm.loop("i", "others"):
                rings.take(asm)
                rings.expect(asm)
                asm(f"{rings.BULK} [to], [address], {rings.BLOCK}, [at];")
                rings.step(asm, FILL_SLOTS)
            with asm.loop("i", FILL_SLOTS):
                rings.take(asm)
                rings.step(asm, FILL_SLOTS)
    asm.keep("d", NARROW // 2, "f32")
    return kernel("products_beside_fills", asm, 160, "u32 others", "u64 source")


READS, FILLS = reads(), fills()
KERNELS = (READS,)
SHARING_KERNELS = (FILLS,)


def measure(gpu: Gpu) -> dict[str, float]:
    return {"smem_read_bytes": COUNT * THREADS * EACH * 16 / gpu.run(READS, 1, COUNT).cycles}


def measure_sharing(gpu: Gpu) -> dict[str, float]:
    """The slowdown of wgmmas and fills that take equally long alone, when concurrent: per byte that
    TMA fills, in the time in which wgmmas read one byte.
    """
    block = gpu.buffer(rings.BLOCK)
    gpu.clear(block, rings.BLOCK)
    read = GROUPS * tensor.STEPS * (A_BYTES + NARROW * COLUMN_BYTES)
    alone = gpu.run(FILLS, 1, GROUPS, 0, block).cycles
    others = round(FILLED * alone / gpu.run(FILLS, 1, 0, FILLED, block).cycles)
    both = gpu.run(FILLS, 1, GROUPS, others, block).cycles
    share = (both - alone) / alone * read / (others * rings.BLOCK)
    return {"smem_fill_sharing": max(0.0, share)}
