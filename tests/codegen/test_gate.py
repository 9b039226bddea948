"""Performance warnings of ptxas become errors at the line at fault."""

import pytest

from tests.codegen.support import assembled, gemm, gemm_128x256, kernel_of, needs_ptxas, ptx_of
from wsdsl.codegen.ptxas import assemble, find_ptxas, ptxas_version
from wsdsl.codegen.ptxas_diagnostics import check
from wsdsl.diagnostics import CompileError, Finding
from wsdsl.ir.op import Kernel
from wsdsl.ir.parser import parse_kernel

pytestmark = needs_ptxas


def finding(kernel: Kernel) -> Finding:
    with pytest.raises(CompileError) as caught:
        assembled(kernel)
    (found,) = caught.value.findings
    assert found.loc
    assert found.hint
    return found


def held_fragment(columns: int) -> Kernel:
    """A fragment that lives across a barrier, in 512 threads (128 registers each)."""
    body = f"""
%zero: i32 = constant(value=0)
%r: frag<i32[64x1]> = iota(start=%zero)
%c: frag<i32[1x{columns}]> = iota(start=%zero)
%x: frag<f32[64x{columns}]> = load_global(tensor=%X, index=(%r, %c), vector=2)
sync_cta()
%y: frag<f32[64x{columns}]> = map(fn="mul", args=(%x, %x))
store_global(tensor=%X, index=(%r, %c), value=%y, vector=2)
"""
    return kernel_of(body, "%X: tensor<f32[M, N]>", warpgroups=4)


def test_spill() -> None:
    found = finding(held_fragment(256))
    assert "spill to local memory" in found.message
    assert "smaller tile" in found.hint
    assert assembled(held_fragment(128)).resources.spill_store_bytes == 0


def test_spill_may_be_allowed() -> None:
    kernel = held_fragment(256)
    made = assemble(ptx_of(kernel))
    assert made is not None
    assert made.resources.spill_store_bytes > 0
    check(kernel, made, allow_spills=True)
    with pytest.raises(CompileError):
        check(kernel, made)


def test_accumulators_that_are_written() -> None:
    """Zeros carried into the loop serialize its MMAs."""
    text = gemm().replace(
        "%acc0: acc<f32[64x128]> = empty_accumulator()",
        "%nil: f32 = constant(value=0.0)\n%zeros: frag<f32[64x128]> = full(value=%nil)\n"
        "%yes: bool = constant(value=True)\n%acc0: acc<f32[64x128]> = as_accumulator(x=%zeros)",
    )
    found = finding(parse_kernel(text.replace("accumulate=%more", "accumulate=%yes")))
    assert "C7515" in found.message
    assert "function" not in found.message
    assert "wgmma_mma_async(" in found.loc.text


def test_accumulators_that_are_read() -> None:
    text = gemm().replace(
        "        wgmma_commit()\n        wgmma_wait(pending=1)\n",
        "%mid: frag<f32[64x128]> = wgmma_wait(pending=1, accumulators=(%acc2,))\n"
        "%factor: f32 = cast(x=%k_1)\n"
        '%scaled: frag<f32[64x128]> = map(fn="mul", args=(%mid, %factor))\n'
        "wgmma_commit()\n%acc9: acc<f32[64x128]> = as_accumulator(x=%scaled)\n",
    )
    found = finding(parse_kernel(text.replace("yield(values=(%acc2,", "yield(values=(%acc9,")))
    assert "C7514" in found.message
    assert "wgmma_mma_async(" in found.loc.text


def test_product_that_does_not_fit() -> None:
    """Four warpgroups have 128 registers per thread at entry, 64 x 256 needs 154."""
    text = gemm_128x256().replace('"compute", num_warps=8', '"compute", num_warps=12')
    found = finding(parse_kernel(text))
    assert "C7602" in found.message
    assert "wgmma_mma_async(" in found.loc.text
    assert "smaller tile" in found.hint


def test_limit_that_is_ignored() -> None:
    found = finding(parse_kernel(gemm_128x256().replace("count=232", "count=144")))
    assert "C7507" in found.message
    assert "setmaxnreg(count=144" in found.loc.text


def test_rejected_ptx_shows_the_log() -> None:
    with pytest.raises(CompileError, match="ptxas rejects the PTX"):
        assemble(".version 8.3\n.target sm_90a\n.address_size 64\nnonsense\n")


def test_find() -> None:
    path = find_ptxas()
    assert path is not None
    assert find_ptxas(path) == path
    assert ptxas_version(path)[0].isdigit()
    with pytest.raises(CompileError, match="no ptxas at /nowhere"):
        find_ptxas("/nowhere")
