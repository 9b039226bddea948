"""How long one TMA load takes, and how long its thread is busy with it. One CTA, one thread."""

from wsdsl.calibrate.asm import Asm, Kernel, kernel
from wsdsl.calibrate.gpu import Gpu
from wsdsl.calibrate.rings import BOX

ROWS = 8
"""Of a box, of 128 bytes each."""
BOX_BYTES = ROWS * 128
BURST = 8
"""Loads that a thread issues back to back."""
COUNT = 1024
STEP = 64
"""Rows from one load to the next: no two are in one page of DRAM or the same lines."""
WARM_ROWS = 4096
COLD_ROWS = COUNT * STEP
FLUSH = 8
"""Times what L2 holds is written, so that it holds nothing else."""


def loads(name: str, burst: int, wait_counts: bool) -> Kernel:
    """`count` times: `burst` loads, and a wait for all. Cycles of both, or of the issue alone."""
    asm = Asm()
    asm(".reg .b64 before, spent;\nmov.u64 spent, 0;\nmov.u32 k, 0;\nmov.u32 y, 0;")
    asm(f"add.u32 bar, base, {burst * BOX_BYTES};\nmov.u32 x, 0;")
    with asm.where("eq.u32 tid, 0"):
        asm.init("bar", 1)
    with asm.timed(), asm.where("eq.u32 tid, 0"), asm.loop("i", "count"):
        asm("and.b32 k, i, 1;")
        bytes = burst * BOX_BYTES
        if wait_counts:
            asm("mov.u64 before, %clock64;")
        asm(f"mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], {bytes};")
        if not wait_counts:
            asm("mov.u64 before, %clock64;")
        for n in range(burst):
            asm(f"add.u32 j, base, {n * BOX_BYTES};\n{BOX} [j], [rows, {{x, y}}], [bar];")
            asm(f"add.u32 y, y, {STEP};\nand.b32 y, y, wrap;")
        if not wait_counts:
            asm("mov.u64 clock1, %clock64;")
        asm.wait("bar", "k")
        if wait_counts:
            asm("mov.u64 clock1, %clock64;")
        asm("sub.u64 clock1, clock1, before;\nadd.u64 spent, spent, clock1;")
    # The sample is what was spent, and not the time from start to stop.
    asm("add.u64 clock1, clock0, spent;")
    return kernel(name, asm, 32, "map rows", "u32 wrap")


ONE, ISSUED = loads("one_load", 1, True), loads("issued_loads", BURST, False)
KERNELS = (ONE, ISSUED)


def measure(gpu: Gpu) -> dict[str, float]:
    warm, cold = gpu.buffer(WARM_ROWS * 128), gpu.buffer(COLD_ROWS * 128)
    flushed = gpu.buffer(FLUSH * gpu.l2_bytes)
    gpu.clear(warm, WARM_ROWS * 128)
    gpu.clear(cold, COLD_ROWS * 128)
    near = gpu.rows(warm, WARM_ROWS, 128, ROWS)
    found = {
        "tma_l2_cycles": gpu.run(ONE, 1, COUNT, near, WARM_ROWS - 1).cycles / COUNT,
        "tma_issue_cycles": gpu.run(ISSUED, 1, COUNT, near, WARM_ROWS - 1).cycles / COUNT / BURST,
    }
    gpu.clear(flushed, FLUSH * gpu.l2_bytes)
    once = gpu.once(ONE, 1, COUNT, gpu.rows(cold, COLD_ROWS, 128, ROWS), COLD_ROWS - 1)
    return found | {"tma_dram_cycles": once.cycles / COUNT}
