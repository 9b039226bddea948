"""What the tensor cores give for as long as one likes, when a card is limited by its power: bf16
products of a kernel's main loop, without results, with operands from nearer and nearer.

python -m benchmarks.power_floor     (needs nvcc and a GPU)

Nothing of wsdsl runs here: what no schedule can exceed is measured by as little code as can be. Two
warpgroups multiply random normal operands that a third brings to 4 slots; all 132 SMs, no tile ends.
"""

# ruff: noqa: E501 (CUDA C++)

from __future__ import annotations

import argparse
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

NUM_SMS, SMEM = 132, 220 * 1024
LINE = 128
"""Bytes of an operand's row in a slot."""


@dataclass(frozen=True)
class Variant:
    """A tile of 128 * `blocks` rows. `sharing` SMs bring the same `slots` slots again and again; 0:
    nothing is brought."""

    name: str
    columns: int
    blocks: int
    sharing: int
    slots: int = 8

    @property
    def slot(self) -> int:
        return (128 * self.blocks + self.columns) * LINE

    @property
    def stages(self) -> int:
        return min(4, SMEM // self.slot)


VARIANTS = [
    Variant("128 x 256, nothing is brought", 256, 1, 0),
    Variant("128 x 256, each 16 SMs the same", 256, 1, 16),
    Variant("128 x 256, pairs the same", 256, 1, 2),
    Variant("128 x 256, each its own, from L2", 256, 1, 1, slots=4),
    Variant("256 x 192, nothing is brought", 192, 2, 0),
    Variant("256 x 192, each 16 SMs the same", 192, 2, 16),
    Variant("256 x 192, each its own, from L2", 192, 2, 1, slots=4),
]

HEAD = r"""
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>
#define PTX asm volatile
__device__ uint64_t operand(uint32_t at) {
  return (uint64_t)((at & 0x3FFFF) >> 4) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}
__device__ void init(uint32_t b, int n) { PTX("mbarrier.init.shared.b64 [%0], %1;" :: "r"(b), "r"(n)); }
__device__ void wait(uint32_t b, int parity) {
  PTX("{ .reg .pred p; A%=: mbarrier.try_wait.parity.shared.b64 p, [%0], %1; @!p bra A%=; }"
      :: "r"(b), "r"(parity) : "memory");
}
__device__ void arrive(uint32_t b) { PTX("mbarrier.arrive.shared.b64 _, [%0];" :: "r"(b) : "memory"); }
__device__ void expect(uint32_t b, int n) {
  PTX("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" :: "r"(b), "r"(n) : "memory");
}
__device__ void copy(uint32_t to, const void* from, uint32_t b) {
  PTX("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 8192, [%2];"
      :: "r"(to), "l"(from), "r"(b) : "memory");
}
extern __shared__ __align__(1024) unsigned char smem[];
"""
KERNEL = r"""
__global__ void __launch_bounds__(384, 1) k@I(const unsigned char* data, float* out, int steps) {
  const int SLOT = @SLOT, STAGES = @STAGES, group = threadIdx.x / 128;
  uint32_t start = (uint32_t)__cvta_generic_to_shared(smem), slots = (start + 1023) & ~1023u;
  uint32_t full = slots + STAGES * SLOT, empty = full + 64;
  if (threadIdx.x == 0) for (int i = 0; i < STAGES; i++) { init(full + 8 * i, 1); init(empty + 8 * i, 8); }
  const uint4* first = (const uint4*)(data + (blockIdx.x % 97) * 4096);
  for (int i = threadIdx.x; i < STAGES * SLOT / 16; i += 384) ((uint4*)(smem + (slots - start)))[i] = first[i];
  PTX("fence.proxy.async;");
  __syncthreads();
  if (group == 0) {
    PTX("setmaxnreg.dec.sync.aligned.u32 24;");
    const unsigned char* own = data + (size_t)(blockIdx.x / @SHARING) * @SLOTS * SLOT;
    if (threadIdx.x == 0 && @BROUGHT) for (int i = 0, s = 0, parity = 1; i < steps; i++) {
      wait(empty + 8 * s, parity);
      expect(full + 8 * s, SLOT);
      for (int j = 0; j < SLOT; j += 8192) copy(slots + s * SLOT + j, own + i % @SLOTS * SLOT + j, full + 8 * s);
      if (++s == STAGES) s = 0, parity ^= 1;
    }
  } else {
    PTX("setmaxnreg.inc.sync.aligned.u32 240;");
    float d[@BLOCKS][@COLUMNS / 2] = {};
    for (int i = 0, s = 0, parity = 0; i < steps; i++) {
      if (@BROUGHT) wait(full + 8 * s, parity);
      PTX("wgmma.fence.sync.aligned;" ::: "memory");
@PRODUCTS
      PTX("wgmma.commit_group.sync.aligned;" ::: "memory");
      PTX("wgmma.wait_group.sync.aligned 1;" ::: "memory");
      if (@BROUGHT && i && threadIdx.x % 32 == 0) arrive(empty + 8 * (s ? s - 1 : STAGES - 1));
      if (++s == STAGES) s = 0, parity ^= 1;
    }
    PTX("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    float sum = 0;
    for (auto& block : d) for (float x : block) sum += x;
    out[blockIdx.x * 256 + threadIdx.x - 128] = sum;
  }
}
"""
MAIN = r"""
int main() {
  const size_t size = (size_t)132 * 8 * 65536;
  std::vector<unsigned short> values(1 << 20), all(size / 2);
  unsigned seed = 12345;
  auto uniform = [&] { seed = seed * 1664525u + 1013904223u; return ((seed >> 8) + 0.5f) / 16777216.f; };
  for (auto& value : values) {
    float x = std::sqrt(-2 * std::log(uniform())) * std::cos(6.2831853f * uniform());
    unsigned bits;
    std::memcpy(&bits, &x, 4);
    value = (bits + 0x8000) >> 16;
  }
  for (size_t i = 0; i < all.size(); i++) all[i] = values[((i + i / 977) * 2654435761ull >> 7) & 0xFFFFF];
  unsigned char* data; float* out; cudaEvent_t start, stop;
  cudaMalloc(&data, size); cudaMalloc(&out, 132 * 256 * 4); cudaEventCreate(&start); cudaEventCreate(&stop);
  cudaMemcpy(data, all.data(), size, cudaMemcpyHostToDevice);
  auto timed = [&](auto go, int times) {
    float ms;
    cudaEventRecord(start);
    for (int i = 0; i < times; i++) go();
    cudaEventRecord(stop); cudaEventSynchronize(stop); cudaEventElapsedTime(&ms, start, stop);
    return ms / times;
  };
  auto measure = [&](const char* name, auto go, double flop) {
    float once = timed(go, 4);
    timed(go, 300 / once);
    std::printf("%-36s %6.0f TFLOP/s %s\n", name, flop / timed(go, 500 / once) / 1e9, cudaGetErrorString(cudaGetLastError()));
    std::fflush(stdout);
  };
  for (int round = 0; round < 3; round++) {
@CALLS
  }
}
"""


def source() -> str:
    kernels, calls = "", ""
    for i, v in enumerate(VARIANTS):
        text = KERNEL.replace(
            "@PRODUCTS", "\n".join(map(products, [v] * v.blocks, range(v.blocks)))
        )
        names = dict(
            I=i, SLOTS=v.slots, SLOT=v.slot, STAGES=v.stages, SHARING=v.sharing or NUM_SMS,
            BROUGHT=int(v.sharing > 0), BLOCKS=v.blocks, COLUMNS=v.columns,
        )  # fmt: skip
        for name, value in names.items():
            text = text.replace(f"@{name}", str(value))
        kernels += text
        steps, smem = 4096 * 256 // (v.columns * v.blocks), v.stages * v.slot + 2048
        flop = 2.0 * NUM_SMS * 128 * v.blocks * v.columns * 64 * steps
        calls += (
            f"    cudaFuncSetAttribute(k{i}, cudaFuncAttributeMaxDynamicSharedMemorySize, {smem});\n"
            f'    measure("{v.name}", [&] {{ k{i}<<<{NUM_SMS}, 384, {smem}>>>(data, out, {steps}); }}'
            f", {flop});\n"
        )
    return HEAD + kernels + MAIN.replace("@CALLS", calls)


def products(v: Variant, block: int) -> str:
    """Of 64 rows and a slot's 64 of the contraction, 16 at a time."""
    num = v.columns // 2
    registers = ", ".join(f"%{i}" for i in range(num))
    held = ", ".join(f'"+f"(d[{block}][{i}])' for i in range(num))
    return (
        f"      for (int k = 0; k < 4; k++) PTX(\n"
        f'        "wgmma.mma_async.sync.aligned.m64n{v.columns}k16.f32.bf16.bf16 {{{registers}}}, '
        f'%{num}, %{num + 1}, 1, 1, 1, 0, 0;" : {held}\n'
        f'        : "l"(operand(slots + s * SLOT + {v.columns * LINE} '
        f"+ ((group - 1) * {v.blocks} + {block}) * 8192) + 2 * k), "
        f'"l"(operand(slots + s * SLOT) + 2 * k));'
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--keep", type=Path, help="leave the program here, and do not run it")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        text, program = Path(folder, "floor.cu"), options.keep or Path(folder, "floor")
        text.write_text(source())
        arch = "-gencode=arch=compute_90a,code=sm_90a"
        subprocess.run(["nvcc", "-std=c++17", "-O3", arch, text, "-o", program], check=True)
        return 0 if options.keep else subprocess.run([program], check=False).returncode


if __name__ == "__main__":
    raise SystemExit(main())
