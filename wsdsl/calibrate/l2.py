"""Measure bandwidth between L2 and the SMs, of TMA and of threads, where each SM accesses different
cache lines.

CTAs of a matmul share lines: an SM gets a line that another SM of its GPC has just loaded, if they
keep step, and CTAs that only load do not. So the rates of shared lines are fitted to measured
matmuls instead.
"""

from wsdsl.calibrate.asm import Asm, Kernel, kernel
from wsdsl.calibrate.gpu import Gpu
from wsdsl.calibrate.rings import BLOCK, BLOCK_ROWS, loads, stores

PITCH = 512
"""Bytes of a row: twice 128 of them for each of 132 SMs are 17 MB, which L2 holds."""
COUNT = 2000
STORED = 1 << 17
"""Bytes that a CTA stores to again and again."""
THREADS = 512
EACH = 8
"""Accesses per thread, of 16 bytes, that are in flight together."""
OWN = THREADS * EACH * 16
"""Bytes of a CTA."""
ROUNDS = 300
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


def accesses(name: str, form: str) -> Kernel:
    """`form`: an access to `{at}` of `{values}`."""
    asm = Asm()
    asm(f".reg .f32 v<{4 * EACH}>;\nmad.wide.u32 address, tid, 16, place;")
    asm(f"mad.wide.u32 address, cta, {OWN}, address;")
    for n in range(4 * EACH):
        asm(f"mov.f32 v{n}, 0f00000000;")
    with asm.timed():
        with asm.loop("i", "count"):
            for n in range(EACH):
                values = ", ".join(f"v{4 * n + m}" for m in range(4))
                asm(form.format(at=f"[address+{16 * THREADS * n}]", values=f"{{{values}}}"))
            if name == "thread_loads":
                # So that no load of the next round starts before all of this one are there.
                asm.keep("v", 4 * EACH, "f32")
        asm("membar.gl;")
    return kernel(name, asm, THREADS, "u64 place")


THREAD_LOADS = accesses("thread_loads", "ld.relaxed.gpu.global.v4.f32 {values}, {at};")
THREAD_STORES = accesses("thread_stores", "st.relaxed.gpu.global.v4.f32 {at}, {values};")
THREAD_KERNELS = (THREAD_LOADS, THREAD_STORES)


def measure_threads(gpu: Gpu) -> dict[str, float]:
    place = gpu.buffer(gpu.num_sms * OWN)
    gpu.clear(place, gpu.num_sms * OWN)
    taken = {"l2_load_bytes": THREAD_LOADS, "l2_store_bytes": THREAD_STORES}
    cycles = {name: gpu.run(run, gpu.num_sms, ROUNDS, place).cycles for name, run in taken.items()}
    return {name: ROUNDS * OWN / time for name, time in cycles.items()}
