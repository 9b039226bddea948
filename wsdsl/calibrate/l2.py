"""Measure TMA bandwidth between L2 and the SMs, where each SM accesses different cache lines.

CTAs of a matmul share lines: an SM gets a line that another SM of its GPC has just loaded, if they
keep step, and CTAs that only load do not. So the rates of shared lines are fitted to measured
matmuls instead.
"""

from __future__ import annotations

from wsdsl.calibrate.gpu import Gpu
from wsdsl.calibrate.rings import BLOCK, BLOCK_ROWS, loads, stores

PITCH = 512
"""Bytes of a row: twice 128 of them for each of 132 SMs are 17 MB, which L2 holds."""
COUNT = 2000
STORED = 1 << 17
"""Bytes that a CTA stores to again and again."""
LOADS, STORES = loads("boxes", boxes=True), stores("stores")
KERNELS = (LOADS, STORES)


def measure(gpu: Gpu) -> dict[str, float]:
    rows = 2 * gpu.num_sms * BLOCK_ROWS
    loaded, stored = gpu.buffer(rows * PITCH), gpu.buffer(gpu.num_sms * STORED)
    gpu.clear(loaded, rows * PITCH)
    map = gpu.rows(loaded, rows, PITCH, BLOCK_ROWS)
    anew = STORED // BLOCK, BLOCK, STORED - 1
    taken = {
        "l2_own_bytes": gpu.run(LOADS, gpu.num_sms, COUNT, map, PITCH // 2 - 1),
        "l2_one_bytes": gpu.run(LOADS, 1, COUNT, map, PITCH // 2 - 1),
        "l2_tma_store_bytes": gpu.run(STORES, gpu.num_sms, COUNT, stored, *anew),
    }
    return {name: COUNT * BLOCK / run.cycles for name, run in taken.items()}
