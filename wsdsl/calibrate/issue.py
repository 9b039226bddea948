"""How many threads' instructions of each kind an SM executes a cycle."""

from wsdsl.calibrate.asm import Asm, Kernel, kernel
from wsdsl.calibrate.gpu import Gpu

THREADS = 1024
CHAINS = 8
"""Dependency chains per thread: each instruction of a chain uses the result of the one before."""
UNROLLED = 16
COUNT = 200
FORMS = {"fma_lanes": "fma.rn.f32 {v}, {v}, u0, u1;", "exp_lanes": "ex2.approx.ftz.f32 {v}, {v};"}


def instructions(name: str, form: str) -> Kernel:
    asm = Asm()
    asm(f".reg .b32 v<{CHAINS}>, u<2>;")
    asm("add.u32 u0, tid, 0x3f000000;\nadd.u32 u1, tid, 0x3e800000;")
    for n in range(CHAINS):
        asm(f"add.u32 v{n}, tid, {0x3F800000 + n};")
    with asm.timed(), asm.loop("i", "count"):
        for _ in range(UNROLLED):
            for n in range(CHAINS):
                asm(form.format(v=f"v{n}"))
    asm.keep("v", CHAINS)
    return kernel(name, asm, THREADS)


KERNELS = tuple(instructions(name, form) for name, form in FORMS.items())


def measure(gpu: Gpu) -> dict[str, float]:
    total = COUNT * UNROLLED * CHAINS * THREADS
    return {kernel.name: total / gpu.run(kernel, 1, COUNT).cycles for kernel in KERNELS}
