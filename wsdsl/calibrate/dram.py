"""Measure DRAM reads, writes and copies by TMA blocks on all SMs."""

from wsdsl.calibrate.gpu import Gpu
from wsdsl.calibrate.rings import BLOCK, copies, loads, stores

BYTES = 4 << 30
"""Many times what L2 holds."""
READS = loads("reads", boxes=False)
ONE_READ = loads("one_read", boxes=False, slots=1)
WRITES = stores("writes")
COPIES = copies("copies")
KERNELS = (READS, ONE_READ, WRITES, COPIES)
FAR = (1 << 48) - 1


def measure(gpu: Gpu) -> dict[str, float]:
    grid = gpu.num_sms
    stride = grid * BLOCK
    count = BYTES // stride
    moved = count * stride
    source, target = gpu.buffer(moved), gpu.buffer(moved)
    gpu.clear(source, moved)
    reading = gpu.run(READS, grid, count, source, stride).nanoseconds
    writing = gpu.run(WRITES, grid, count, target, 1, stride, FAR).nanoseconds
    copying = gpu.run(COPIES, grid, count, source, target, stride).nanoseconds
    alone = gpu.run(ONE_READ, grid, count, source, stride).nanoseconds
    return {
        "dram_read_bytes": moved / reading,
        "dram_write_bytes": moved / writing,
        "dram_copy_bytes": 2 * moved / copying,
        "dram_loaded_ns": alone / count,
    }
