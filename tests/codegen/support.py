"""SCHEDULED kernels around a few lines, and what codegen and ptxas make of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from wsdsl.codegen.emit import emit_ptx
from wsdsl.codegen.module import emit_llvm
from wsdsl.codegen.ptxas import Assembled, assemble_checked, find_ptxas
from wsdsl.ir.op import Kernel
from wsdsl.ir.parser import parse_kernel

ROW = ', columns=64, swizzle="128B")'
SAMPLES = Path(__file__).parents[1] / "samples"
needs_ptxas = pytest.mark.skipif(
    find_ptxas() is None, reason="needs ptxas: pip install nvidia-cuda-nvcc"
)


def kernel_of(body: str, params: str = "", setup: str = "", warpgroups: int = 1) -> Kernel:
    """One compute partition that runs `body`; `setup` stands before it."""
    text = (
        f"kernel sample @ scheduled ({params}) {{\n{setup}\n"
        f'partition(role="compute", num_warps={4 * warpgroups}) {{\n{body}\n}}\n}}\n'
    )
    return parse_kernel(text)


def ptx_of(kernel: Kernel) -> str:
    return emit_ptx(emit_llvm(kernel), kernel.target)


def assembled(kernel: Kernel) -> Assembled:
    found = assemble_checked(kernel, ptx_of(kernel))
    assert found is not None
    return found


def gemm() -> str:
    return (SAMPLES / "gemm.scheduled.ir").read_text()


def gemm_128x256() -> str:
    """The sample with a tile twice as wide, as it is fastest at large sizes."""
    text = gemm()
    for old, new in (
        ('("N", 128)', '("N", 256)'),
        ("tensor=%B, box=(128, 64)", "tensor=%B, box=(256, 64)"),
        ("shared<32768 x 4>", "shared<49152 x 4>"),
        ("offset=131072", "offset=196608"),
        ("163840", "229376"),
        ("163872", "229408"),
        ("tx_bytes=32768", "tx_bytes=49152"),
        ("64x128]", "64x256]"),
        (f"rows=128{ROW}\n        wgmma_fence", f"rows=256{ROW}\n        wgmma_fence"),
        ("args=(%n_size, %c127)", "args=(%n_size, %c255)"),
        ("args=(%n_up, %c128)", "args=(%n_up, %c256)"),
        ("args=(%nt, %c128)", "args=(%nt, %c256)"),
        ("args=(%nt_1, %c128)", "args=(%nt_1, %c256)"),
        ("  %c128: i32 = constant(value=128)\n", "  %c128: i32 = constant(value=128)\n"
         "  %c255: i32 = constant(value=255)\n  %c256: i32 = constant(value=256)\n"),
    ):  # fmt: skip
        assert old in text
        text = text.replace(old, new)
    start, end = text.index("      %left: frag"), text.index("      yield(values=(%s3,))")
    chunks = ""
    for i in range(4):
        chunks += f"""
      %off{i}: i32 = constant(value={64 * i})
      %n_c{i}: i32 = map(fn="add", args=(%n_1, %off{i}))
      %part{i}: frag<f32[64x64]> = slice(x=%product, start={64 * i})
      %out{i}: frag<bf16[64x64]> = cast(x=%part{i})
      tma_store_wait(pending=1)
      sync_warp()
      store_shared(value=%out{i}, shared=%staging, item=%item{i % 2}, swizzle="128B")
      fence_async_proxy()
      sync_warp()
      tma_store(map=%c_map, coordinates=(%m_row, %n_c{i}), row_dim=0, shared=%staging,
        item=%item{i % 2})
      tma_store_commit()
"""
    return text[:start] + chunks + text[end:]
