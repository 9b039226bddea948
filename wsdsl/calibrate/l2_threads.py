"""Measure loads and stores of threads that hit L2, each CTA in separate cache lines."""

from __future__ import annotations

from wsdsl.calibrate.asm import Asm, Kernel, kernel
from wsdsl.calibrate.gpu import Gpu

THREADS = 512
EACH = 8
"""Accesses per thread, of 16 bytes, that are in flight together."""
OWN = THREADS * EACH * 16
"""Bytes of a CTA."""
COUNT = 300


def accesses(name: str, form: str) -> Kernel:
    """`form`: an access to `{at}` of `{values}`."""
    asm = Asm()
    asm(f".reg .f32 v<{4 * EACH}>;\nmad.wide.u32 address, tid, 16, place;")
    asm(f"mad.wide.u32 address, cta, {OWN}, address;")
    for n in range(4 * EACH):
        asm(f"mov.f32 v{n}, 0f00000000;")
    asm.start()
    with asm.loop("i", "count"):
        for n in range(EACH):
            values = ", ".join(f"v{4 * n + m}" for m in range(4))
            asm(form.format(at=f"[address+{16 * THREADS * n}]", values=f"{{{values}}}"))
        if name == "thread_loads":
            # So that no load of the next round starts before all of this one are there.
            asm.keep("v", 4 * EACH, "f32")
    asm("membar.gl;")
    asm.stop()
    return kernel(name, asm, THREADS, "u64 place")


LOADS = accesses("thread_loads", "ld.relaxed.gpu.global.v4.f32 {values}, {at};")
STORES = accesses("thread_stores", "st.relaxed.gpu.global.v4.f32 {at}, {values};")
KERNELS = (LOADS, STORES)


def measure(gpu: Gpu) -> dict[str, float]:
    place = gpu.buffer(gpu.num_sms * OWN)
    gpu.clear(place, gpu.num_sms * OWN)
    taken = {"l2_load_bytes": LOADS, "l2_store_bytes": STORES}
    cycles = {name: gpu.run(run, gpu.num_sms, COUNT, place).cycles for name, run in taken.items()}
    return {name: COUNT * OWN / time for name, time in cycles.items()}
