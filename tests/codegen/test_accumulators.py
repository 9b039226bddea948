"""Which accumulators have names of their own in PTX."""

import pytest

from tests.codegen.support import gemm, ptx_of
from wsdsl.codegen.llvm_module import named_accumulators
from wsdsl.ir.op import Kernel
from wsdsl.ir.parser import parse_kernel

ACC = "acc<f32[64x128]>"
EMPTY = f"%acc0: {ACC} = empty_accumulator()"
WAIT = "%sum: frag<f32[64x128]> = wgmma_wait(pending=0, accumulators=(%acc3,))"
ZEROS = "%product: frag<f32[64x128]> = zero_unless(x=%sum, cond=%any)"


def changed(*pairs: tuple[str, str]) -> Kernel:
    text = gemm()
    for old, new in pairs:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return parse_kernel(text)


def test_named() -> None:
    kernel = parse_kernel(gemm())
    named, zeroed = named_accumulators(kernel)
    assert {value.name for value in named} == {"acc0", "acc1", "acc2", "acc3"}
    assert {value.name for value in named.values()} == {"acc0"}
    assert [value.name for value in zeroed] == ["sum"]
    ptx = ptx_of(kernel)
    assert ".reg .b32 %acc0_<64>;" in ptx
    assert "mov.b32 %acc0_63, 0;" in ptx  # `zero_unless`
    assert ptx.count(", %acc0_63;") == 1  # read once, after that


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param(
            EMPTY,
            "%nil: f32 = constant(value=0.0)\n%z: frag<f32[64x128]> = full(value=%nil)\n"
            f"%acc0: {ACC} = as_accumulator(x=%z)",
            id="written",
        ),
        pytest.param(WAIT, f"{WAIT}\n{WAIT.replace('sum', 'again')}", id="taken twice"),
        pytest.param(
            ZEROS,
            f"{ZEROS}\n%either: frag<f32[64x128]> = if(cond=%any) {{\nyield(values=(%product,))\n"
            "} {\nyield(values=(%product,))\n}",
            id="yielded",
        ),
        pytest.param(
            ZEROS,
            f"if(cond=%any) {{\nyield()\n}} {{\nyield()\n}}\n{ZEROS}",
            id="perhaps written again before zeros are",
        ),
        pytest.param(ZEROS, f"{ZEROS}\n{ZEROS.replace('product', 'again')}", id="zeros twice"),
    ],
)
def test_left_to_llvm(old: str, new: str) -> None:
    kernel = changed((old, new))
    assert named_accumulators(kernel) == ({}, {})
    assert "%acc0_" not in ptx_of(kernel)


@pytest.mark.parametrize(("yields", "count"), [("%acc2, %b1", 2), ("%b1, %acc2", 0)])
def test_two_in_a_loop(yields: str, count: int) -> None:
    """Not where they change places."""
    named, _ = named_accumulators(
        changed(
            (EMPTY, f"{EMPTY}\n%b0: {ACC} = empty_accumulator()"),
            ("init=(%acc0,", "init=(%acc0, %b0,"),
            (f"args=(%acc1: {ACC},", f"args=(%acc1: {ACC}, %b1: {ACC},"),
            (f"%acc3: {ACC},", f"%acc3: {ACC}, %b3: {ACC},"),
            ("yield(values=(%acc2,", f"yield(values=({yields},"),
        )
    )
    assert len({*named.values()}) == count
