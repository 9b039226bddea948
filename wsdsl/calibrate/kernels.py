"""Measure the time from kernel to kernel, and count the GPU's SMs, L2 bytes and clusters."""

from wsdsl.calibrate.asm import Asm, Kernel, kernel
from wsdsl.calibrate.gpu import Gpu

LENGTH = 200
"""Kernels of a graph."""
THREADS = 384


def empty(name: str, *, early: bool = False, cluster: int = 1) -> Kernel:
    """`early`: lets the next one start at once, and waits for the one in front."""
    asm = Asm()
    asm("mov.u64 clock0, 0;\nmov.u64 clock1, 0;\nmov.u64 timer0, 0;\nmov.u64 timer1, 0;")
    with asm.where("eq.u32 tid, 0"):
        asm.init("base", 1)
    asm("bar.sync 0;")
    if early:
        asm("griddepcontrol.launch_dependents;\ngriddepcontrol.wait;")
    return kernel(name, asm, THREADS, cluster=cluster)


EMPTY, EARLY = empty("empty"), empty("empty_early", early=True)
CLUSTERS = {size: empty(f"empty_{size}", cluster=size) for size in (2, 4, 8)}
KERNELS = (EMPTY, EARLY)
CARD_KERNELS = tuple(CLUSTERS.values())


def measure(gpu: Gpu) -> dict[str, float]:
    return {
        "kernel_ns": gpu.chain(EMPTY, gpu.num_sms, LENGTH, early=False),
        "dependent_kernel_ns": gpu.chain(EARLY, gpu.num_sms, LENGTH, early=True),
    }


def measure_card(gpu: Gpu) -> dict[str, float]:
    found = {f"clusters_{size}": float(gpu.room(kernel)) for size, kernel in CLUSTERS.items()}
    return {"num_sms": float(gpu.num_sms), "l2_capacity_bytes": float(gpu.l2_bytes)} | found
