"""PTX of products on tensor memory, and what ptxas makes of it."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.codegen.support import needs_ptxas, ptx_of
from tests.kernels import CASES
from tests.scaled_kernels import SCALED
from tests.tensor_memory import lowered, scheduled
from wsdsl.codegen.ptxas import assemble_checked, disassemble
from wsdsl.diagnostics import VerifyError
from wsdsl.ir.analysis.tcgen05_instructions import instructions
from wsdsl.ir.hardware.tcgen05_shapes import allocated, instruction_descriptor
from wsdsl.ir.op import Kernel
from wsdsl.ir.ops import Tcgen05Mma
from wsdsl.ir.types import DTYPES
from wsdsl.prover.ptx.check_ptx import check_skeleton
from wsdsl.schedule import Arch


def machine_code(kernel: Kernel, opcode: str = "", count: int = 4) -> str:
    """Without spills; `count` instructions follow each other, and no wait is between them."""
    assembled = assemble_checked(kernel, ptx_of(kernel))
    assert assembled is not None and not assembled.resources.spill_store_bytes
    sass = disassemble(assembled.cubin)
    assert "BRA.U.ANY" not in sass
    if opcode:
        issued = [m.start() for m in re.finditer(rf"({opcode})[^\n]*;", sass)]
        assert len(issued) == count
        assert not re.search(r"SYNCS|BRA|WARPSYNC|ELECT", sass[issued[0] : issued[-1]])
    return sass


@pytest.mark.parametrize(
    ("a", "b", "rows", "columns", "descriptor"),
    [
        ("bf16", "bf16", 128, 128, 0x08200490),
        ("f16", "f16", 128, 128, 0x08200010),
        ("f8e4m3", "f8e5m2", 64, 256, 0x04400410),
        ("u8", "i8", 128, 64, 0x08100420),
    ],
)
def test_instruction_descriptors(a: str, b: str, rows: int, columns: int, descriptor: int) -> None:
    assert instruction_descriptor(DTYPES[a], DTYPES[b], rows, columns) == descriptor


def test_columns_are_powers_of_two() -> None:
    assert [allocated(n) for n in (1, 32, 33, 384, 512)] == [32, 32, 64, 512, 512]


@pytest.mark.parametrize(
    ("name", "kind", "descriptors", "columns"),
    [
        (
            "mx",
            "mxf8f6f4.block_scale.block32",
            [0x08A00000 | i << 29 | i << 4 for i in range(4)],
            0,
        ),
        ("mxf4", "mxf4.block_scale.block32", [0x08A00480, 0x48A004A0] * 2, 4),
        ("mxf4_16", "mxf4nvf4.block_scale.block16", [0x08A00480] * 4, 12),
        ("nvf4", "mxf4nvf4.block_scale.block16", [0x08200480] * 4, 12),
    ],
)
def test_descriptors_of_scaled_products(
    name: str, kind: str, descriptors: list[int], columns: int
) -> None:
    """`columns`: from the scales of the first instruction to those of the last one."""
    (product,) = lowered(SCALED[name], tile=dict(n=128)).of(Tcgen05Mma)
    made = instructions(product)
    assert {one.kind for one in made} == {kind}
    assert [one.descriptor for one in made] == descriptors
    assert made[-1].a_scale - made[0].a_scale == made[-1].b_scale - made[0].b_scale == columns


def test_scales_of_a_deep_tile_are_words_further_on() -> None:
    (product,) = lowered(SCALED["mx"], tile=dict(n=192, k=256)).of(Tcgen05Mma)
    made = instructions(product)[6]
    assert (made.a_scale, made.b_scale, made.descriptor >> 29) == (4, 16, 2)


@pytest.mark.sampled(4)
@needs_ptxas
@pytest.mark.parametrize(
    ("name", "arch", "n", "opcode", "stores"),
    [
        ("gemm", "sm_100a", 128, "UTCHMMA", 0),
        ("gemm", "sm_103a", 128, "UTCHMMA", 0),
        ("product_tf32", "sm_100a", 128, "UTCHMMA", 0),
        ("product_f8e4m3", "sm_100a", 128, "UTCQMMA", 0),
        ("product_i8", "sm_100a", 128, "UTCIMMA", 0),
        ("mx", "sm_100a", 128, "UTCQMMA", 2),
        ("mx", "sm_103a", 136, "UTCQMMA", 3),
        ("mxf4", "sm_100a", 128, "UTCOMMA", 4),
        ("nvf4", "sm_100a", 128, "UTCOMMA.4X", 8),
        ("nvf4", "sm_103a", 128, "UTCOMMA.BLOCK16", 8),
    ],
)
def test_machine_code_issues_mmas_without_waiting(
    name: str, arch: Arch, n: int, opcode: str, stores: int
) -> None:
    """Threads store scales, if there are any."""
    case = SCALED.get(name) or CASES[name]
    sass = machine_code(lowered(case, arch, tile=dict(n=n)), opcode)
    assert "UTCBAR" in sass
    assert len(re.findall(r"\bSTTM", sass)) == stores
    assert sass.count("FENCE.VIEW.ASYNC.T") == (stores > 0)


@needs_ptxas
@pytest.mark.parametrize("arch", ["sm_100a", "sm_103a"])
def test_machine_code_that_copies_scales(arch: Arch) -> None:
    kernel = lowered(SCALED["mx_atoms"], arch, tile=dict(n=256))
    ptx = ptx_of(kernel)
    # Eight rows of 16 bytes, no swizzle, and the version; three atoms.
    assert f"mov.b32 ha, {0x00004008};" in ptx
    sass = machine_code(kernel, "UTCCP|UTCQMMA", 7)
    assert sass.count("UTCCP.T.S.4x32dp128bit") == 3
    assert "STTM" not in sass


@needs_ptxas
def test_commit_releases_stages_to_all_producers() -> None:
    kernel = lowered(CASES["gemm"], cluster=dict(m=2, n=2))
    ptx = ptx_of(kernel)
    many = ".multicast::cluster.b64"
    assert f"tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster{many}" in ptx
    check_skeleton(kernel, ptx)
    assert "UTCBAR.MULTICAST" in machine_code(kernel)


@needs_ptxas
@pytest.mark.parametrize(
    ("name", "arch", "opcode", "descriptors"),
    [
        ("gemm", "sm_100a", "UTCHMMA.2CTA", [0x10400490]),
        ("mx_atoms", "sm_103a", "UTCQMMA.2CTA", [0x10C00000 | i << 29 | i << 4 for i in range(4)]),
    ],
)
def test_machine_code_of_pairs(name: str, arch: Arch, opcode: str, descriptors: list[int]) -> None:
    """One of 256 rows and columns."""
    case = SCALED.get(name) or CASES[name]
    kernel = lowered(case, arch, cta_group=2, tile=dict(n=256))
    (product,) = kernel.of(Tcgen05Mma)
    assert sorted({one.descriptor for one in instructions(product)}) == sorted(descriptors)
    ptx = ptx_of(kernel)
    assert "cta_group::1" not in ptx
    check_skeleton(kernel, ptx)
    sass = machine_code(kernel, re.escape(opcode))
    told = ("UTCBAR.2CTA.MULTICAST", "UTMALDG.2D.2CTA", "UTCATOMSWS.2CTA.FIND_AND_SET")
    assert all(word in sass for word in told)


HOW = f"mov.b32 how, {0x08900000};"
CHANGES = {
    "alone": (
        ("tcgen05.wait::ld.sync.aligned;", ""),
        ("tcgen05.fence::after_thread_sync;", ""),
        ("tcgen05.dealloc", "// tcgen05.dealloc"),
        ("how, 1;", "how, 0;"),
    ),
    "pair": (
        (".multicast::cluster.b64", ".b64"),
        ("complete_tx::bytes.cta_group::2 ", "complete_tx::bytes "),
        ("mma.cta_group::2", "mma.cta_group::1"),
        ("mbarrier.arrive.shared::cluster", "mbarrier.arrive.shared::cta"),
        ("mbarrier.arrive.expect_tx.shared::cluster", "mbarrier.arrive.expect_tx.shared::cta"),
        ("dealloc.cta_group::2", "dealloc.cta_group::1"),
    ),
    "scales": (
        ("tcgen05.wait::st.sync.aligned;", ""),
        ("tcgen05.st.sync.aligned.32x32b.x4", "tcgen05.st.sync.aligned.32x32b.x8"),
        (HOW, HOW.replace("how, ", "how, 1")),
        ("block_scale.block32", "block_scale.block16"),
    ),
}


@pytest.mark.parametrize("form", CHANGES)
def test_different_ptx_is_rejected(form: str) -> None:
    scales = lowered(SCALED["mx"], tile=dict(n=64))
    kernel = scales if form == "scales" else scheduled("gemm", pair=1 + (form == "pair"))
    ptx = ptx_of(kernel)
    check_skeleton(kernel, ptx)
    for text, other in CHANGES[form]:
        assert text in ptx, text
        with pytest.raises(VerifyError, match="PTX"):
            check_skeleton(kernel, ptx.replace(text, other, 1))


FORMS: dict[str, Callable[[], Kernel]] = {
    "gemm": lambda: scheduled("gemm"),
    "pair": lambda: scheduled("gemm", pair=2),
    "stored scales": lambda: lowered(SCALED["mxf4"], tile=dict(n=64), stages=2),
    "copied scales": lambda: lowered(SCALED["mx_atoms"], tile=dict(n=256)),
    "operand": lambda: lowered(
        CASES["attention"],
        sizes=dict(D=64),
        tile=dict(m=128, n=64),
        stages=2,
        operand_transform="tmem",
    ),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("form", FORMS)
def test_other_addresses_are_rejected(form: str) -> None:
    """Each operand in tensor memory, by its column and by its lane, and where `alloc` writes to."""
    kernel = FORMS[form]()
    ptx = ptx_of(kernel)
    check_skeleton(kernel, ptx)
    lines, met = ptx.splitlines(), set[tuple[str, int]]()
    for i, line in enumerate(lines):
        kind = re.match(r"\s*tcgen05\.(?:alloc|mma|cp|st|ld)\b\S*", line)
        for n, found in enumerate(re.finditer(r"\[([%\w]+)(?:\+(\d+))?\]", line) if kind else ()):
            if kind and (kind[0], n) not in met:
                met.add((kind[0], n))
                for shift in (4, 1 << 20):
                    at = f"[{found[1]}+{int(found[2] or 0) + shift}]"
                    other = f"{line[: found.start()]}{at}{line[found.end() :]}"
                    with pytest.raises(VerifyError, match=r"TMEM at|SMEM at"):
                        check_skeleton(kernel, "\n".join([*lines[:i], other, *lines[i + 1 :]]))
    assert len(met) > 2
    freed = re.sub(r"(dealloc.*b32 )%r\d+,", r"\g<1>0,", ptx)
    with pytest.raises(VerifyError, match="dealloc"):
        check_skeleton(kernel, freed)


@needs_ptxas
@pytest.mark.parametrize("arch", ["sm_100a", "sm_103a"])
def test_machine_code_of_an_operand_in_tensor_memory(arch: Arch) -> None:
    """Threads store it, 32 registers at a time, and wait once; MMAs read it there. The same holds
    for an accumulator that they scale, or write first; all of it for tiles with masks, and without.
    """
    asked = dict[str, Any](tile=dict(m=128, n=64), stages=2, operand_transform="tmem")
    kernel = lowered(CASES["attention"], arch, sizes=dict(D=64), **asked)
    ptx = ptx_of(kernel)
    assert len(re.findall(r"tcgen05\.mma\S+ \[[%\w]+\], \[[%\w]+\],", ptx)) == 4
    check_skeleton(kernel, ptx)
    sass = machine_code(kernel)
    assert (sass.count("STTM"), sass.count("FENCE.VIEW.ASYNC.T")) == (12, 4)
