"""Rates of the tensor cores: wgmma by type, columns, and where A is. One CTA."""

from wsdsl.calibrate.asm import Asm, Kernel, kernel
from wsdsl.calibrate.gpu import Gpu
from wsdsl.rates.rates import A_BYTES, COLUMN_BYTES

TYPES = {16: ("k16", "bf16"), 8: ("k32", "e4m3"), 32: ("k8", "tf32")}
STEPS = 4
"""wgmmas of a group, which go along rows of 128 bytes."""
GROUP_BYTES = 64 * 128
"""Of the rows of a warpgroup."""
DESCRIPTOR = 0x4000004000010000
"""128-byte swizzle, 1024 bytes from 8 rows to the next."""
COUNT = 2000
COLUMNS = 128
"""Enough that neither SMEM nor the minimum duration of a wgmma is the limit."""
SETTLED = 64
"""Columns of the wgmmas that are waited for one by one."""


def declare(asm: Asm, columns: int) -> None:
    asm(f".reg .f32 d<{columns // 2}>;\n.reg .b32 a<16>;\n.reg .b64 rows, cols, at_a, at_b;")
    asm(".reg .pred further;")


def operands(asm: Asm, rows: str, columns: str) -> None:
    """Descriptors of what lies at these addresses of SMEM."""
    for made, at in (("rows", rows), ("cols", columns)):
        asm(f"shr.u32 x, {at}, 4;\nand.b32 x, x, 0x3fff;\ncvt.u64.u32 {made}, x;")
        asm(f"or.b64 {made}, {made}, {DESCRIPTOR:#x};")


def group(
    asm: Asm, bits: int, columns: int, in_registers: bool, steps: int = STEPS, pending: int = 1
) -> None:
    """Products into the same sums; the first ones of all where `further` is not set."""
    step, type = TYPES[bits]
    sums = ", ".join(f"d{n}" for n in range(columns // 2))
    form = f"wgmma.mma_async.sync.aligned.m64n{columns}{step}.f32.{type}.{type}"
    transposed = (", 0" if in_registers else ", 0, 0") if bits == 16 else ""
    asm("wgmma.fence.sync.aligned;")
    for n in range(steps):
        asm(f"add.s64 at_a, rows, {2 * n};\nadd.s64 at_b, cols, {2 * n};")
        own = ", ".join(f"a{4 * n + m}" for m in range(4))
        a = f"{{{own}}}" if in_registers else "at_a"
        add = "further" if n == 0 else "1"
        asm(f"{form} {{{sums}}}, {a}, at_b, {add}, 1, 1{transposed};")
    asm(f"wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned {pending};")


def products(bits: int, columns: int, in_registers: bool, settled: bool = False) -> Kernel:
    """Two warpgroups, each with rows of its own; `settled`: one, and each product is waited for."""
    asm = Asm()
    declare(asm, columns)
    asm("shr.u32 y, warp, 2;\nmad.lo.u32 y, y, 8192, base;\nadd.u32 k, base, 16384;")
    operands(asm, "y", "k")
    for n in range(16):
        asm(f"add.u32 a{n}, tid, {n};")
    with asm.timed():
        with asm.loop("i", "count"):
            asm("setp.ne.u32 further, i, 0;")
            if settled:
                group(asm, bits, columns, in_registers, steps=1, pending=0)
            else:
                group(asm, bits, columns, in_registers)
        asm("wgmma.wait_group.sync.aligned 0;")
    asm.keep("d", columns // 2, "f32")
    where = "registers" if in_registers else "smem"
    name = f"{'settled' if settled else 'products'}_{bits}_n{columns}_{where}"
    return kernel(name, asm, 128 if settled else 256)


WIDE = {bits: products(bits, COLUMNS, True) for bits in TYPES}
LEAST, NARROW = products(16, 8, True), products(16, 32, False)
ALONE = products(16, SETTLED, False, settled=True)
KERNELS = (*WIDE.values(), LEAST, NARROW, ALONE)


def measure(gpu: Gpu) -> dict[str, float]:
    def each(kernel: Kernel, products: int) -> float:
        return gpu.run(kernel, 1, COUNT).cycles / COUNT / products

    columns = {bits: each(kernel, 2 * STEPS) / COLUMNS for bits, kernel in WIDE.items()}
    smem = (A_BYTES + 32 * COLUMN_BYTES) / each(NARROW, 2 * STEPS)
    busy = max(SETTLED * columns[16], (A_BYTES + SETTLED * COLUMN_BYTES) / smem)
    return {
        "tensor_16_cycles": columns[16],
        "tensor_8_cycles": columns[8],
        "tensor_32_cycles": columns[32],
        "tensor_least_cycles": each(LEAST, 2 * STEPS),
        "tensor_smem_bytes": smem,
        "tensor_latency_cycles": each(ALONE, 1) - busy,
    }
