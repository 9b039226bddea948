"""How many threads' instructions of each kind an SM executes a cycle."""

from __future__ import annotations

from wsdsl.calibrate.asm import Asm, Kernel, kernel
from wsdsl.calibrate.gpu import Gpu

THREADS = 1024
CHAINS = 8
"""Of a thread, each of which goes on from its own result."""
UNROLLED = 16
COUNT = 200
FORMS = {
    "fma_lanes": ("fma.rn.f32 {v}, {v}, u0, u1;",),
    "alu_lanes": ("prmt.b32 {v}, {v}, u0, u1;",),
    "exp_lanes": ("ex2.approx.ftz.f32 {v}, {v};",),
    "convert_lanes": ("cvt.rn.bf16x2.f32 {v}, {v}, u0;",),
    "convert_8_lanes": (
        "cvt.rn.satfinite.e4m3x2.f32 h0, {v}, u0;",
        "cvt.rn.satfinite.e4m3x2.f32 h1, u1, {v};",
        "mov.b32 {v}, {{h0, h1}};",
    ),
    "shuffle_lanes": ("shfl.sync.bfly.b32 {v}, {v}, 1, 31, -1;",),
}
"""Instructions for each chain; a `mov` is none."""
MIXED = ("fma.rn.f32 {v}, {v}, u0, u1;",) * 2 + ("prmt.b32 {w}, {w}, u0, u1;",)
"""More than one kind of unit takes. What schedulers issue is the most that any of these shows."""


def executed(forms: tuple[str, ...]) -> int:
    return sum(not form.startswith("mov") for form in forms)


def instructions(name: str, forms: tuple[str, ...]) -> Kernel:
    asm = Asm()
    asm(f".reg .b32 v<{CHAINS}>, w<{CHAINS}>, u<2>;\n.reg .b16 h<2>;")
    asm("add.u32 u0, tid, 0x3f000000;\nadd.u32 u1, tid, 0x3e800000;")
    for n in range(CHAINS):
        asm(f"add.u32 v{n}, tid, {0x3F800000 + n};\nadd.u32 w{n}, tid, {n};")
    asm.start()
    with asm.loop("i", "count"):
        for _ in range(UNROLLED):
            for n in range(CHAINS):
                for form in forms:
                    asm(form.format(v=f"v{n}", w=f"w{n}"))
    asm.stop()
    asm.keep("v", CHAINS)
    asm.keep("w", CHAINS)
    return kernel(name, asm, THREADS)


BY_RATE = {name: instructions(name, forms) for name, forms in FORMS.items()}
ISSUE = instructions("issue_slots", MIXED)
KERNELS = (*BY_RATE.values(), ISSUE)


def measure(gpu: Gpu) -> dict[str, float]:
    def lanes(kernel: Kernel, forms: tuple[str, ...]) -> float:
        total = COUNT * UNROLLED * CHAINS * executed(forms) * THREADS
        return total / gpu.run(kernel, 1, COUNT).cycles

    found = {name: lanes(kernel, FORMS[name]) for name, kernel in BY_RATE.items()}
    return found | {"issue_slots": max(*found.values(), lanes(ISSUE, MIXED)) / 32}
