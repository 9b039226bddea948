"""`thread_load` and `thread_store`, and kernels whose operands threads copy: the registers for it
are there."""

import itertools
import re

import pytest

from tests.codegen.support import assembled, kernel_of, needs_ptxas, ptx_of
from tests.kernels import CASES
from wsdsl import Schedule

ALL = ("A", "B", "C")
SMEM = '%smem: shared<131072 x 1> = allocate_shared(label="smem", offset=0)\n'


@pytest.mark.sampled
@needs_ptxas
@pytest.mark.parametrize("dtype", ["f16", "f32", "u8"])
@pytest.mark.parametrize("swizzle", ["128B", "64B", "32B", "none"])
def test_thread_load(dtype: str, swizzle: str) -> None:
    body = f"""
%st: state = initial_state(parity=0)
thread_load(tensor=%X, coordinates=(%i, %i, %i), row_dim=1, rows=40, columns=128,
  swizzle="{swizzle}", shared=%smem, offset=1024, state=%st)
thread_load(tensor=%V, coordinates=(%i,), row_dim=-1, rows=1, columns=128,
  swizzle="{swizzle}", shared=%smem, state=%st)
fence_async_proxy()
"""
    params = f"%X: tensor<{dtype}[B, M, N]>, %V: tensor<{dtype}[N]>, %i: i32"
    assert assembled(kernel_of(body, params, SMEM)).resources.registers <= 64


def loaded(rows: int, columns: int, registers: int) -> str:
    body = f"""
setmaxnreg(count={registers}, increase=False)
%st: state = initial_state(parity=0)
thread_load(tensor=%X, coordinates=(%i, %i), row_dim=0, rows={rows}, columns={columns},
  swizzle="128B", shared=%smem, state=%st)
fence_async_proxy()
"""
    return ptx_of(kernel_of(body, "%X: tensor<bf16[M, N]>, %i: i32", SMEM))


@pytest.mark.parametrize(("registers", "at_once"), [(24, 1), (32, 2), (40, 4), (56, 8)])
def test_threads_load_many_chunks_before_stores(registers: int, at_once: int) -> None:
    """Of 128 lines of 128 bytes, by words of eight and of four bytes and by elements."""
    ptx = loaded(128, 64, registers)
    runs = re.findall(r"(?:ld\.global\S* |st\.shared\.v4)", ptx)
    found = [(name, len([*group])) for name, group in itertools.groupby(runs)]
    assert sorted(zip(found[::2], found[1::2])) == [
        (("ld.global.nc.b16 ", 8 * max(1, at_once // 2)), ("st.shared.v4", max(1, at_once // 2))),
        (("ld.global.nc.b32 ", 4 * at_once), ("st.shared.v4", at_once)),
        (("ld.global.nc.v2.b32 ", 2 * at_once), ("st.shared.v4", at_once)),
    ]


@pytest.mark.parametrize(
    ("rows", "columns", "at_once"), [(64, 128, 8), (16, 256, 4), (64, 64, 4), (128, 128, 8)]
)
def test_chunks_of_several_panels(rows: int, columns: int, at_once: int) -> None:
    """Where a panel has fewer lines than chunks can be in flight."""
    assert loaded(rows, columns, 56).count("ld.global.nc.v2.b32") == 2 * at_once


def test_a_tile_is_prefetched_by_lines() -> None:
    body = """
prefetch_tile(tensor=%X, coordinates=(%i, %i), row_dim=0, rows=96, columns=128)
"""
    ptx = ptx_of(kernel_of(body, "%X: tensor<bf16[M, N]>, %i: i32", SMEM))
    assert len(re.findall(r"@%p\d+ prefetch.global.L2", ptx)) == 2


def stored(dtype: str, box: tuple[int, int], swizzle: str, more: str = "") -> str:
    body = f"""
%zero: i32 = constant(value=0)
thread_store(tensor=%X, coordinates=(%i, %i), box={box}, swizzle="{swizzle}",
  row_dim=0, shared=%smem, item=%zero{more})
"""
    return ptx_of(kernel_of(body, f"%X: tensor<{dtype}[M, N]>, %i: i32", SMEM))


@pytest.mark.parametrize(
    ("dtype", "box", "swizzle", "words"),
    [
        ("bf16", (16, 64), "128B", {"b16": 16, "b32": 8}),
        ("bf16", (16, 16), "32B", {"b16": 4, "b32": 4}),
        ("bf16", (16, 40), "none", {"b16": 16, "b32": 8}),
        ("f8e4m3", (16, 64), "64B", {"b8": 16, "b32": 4}),
        ("f32", (16, 24), "none", {"b32": 8}),
    ],
)
def test_lanes_store_adjacent_words(
    dtype: str, box: tuple[int, int], swizzle: str, words: dict[str, int]
) -> None:
    """Stores of a warp, each of 32 words, in one iteration (of 8 lines or more), by alignment; a
    word has been read before it is stored.
    """
    ptx = stored(dtype, box, swizzle)
    widths = re.findall(r"st\.global\.((?:v2\.)?b\d+)", ptx)
    assert {width: widths.count(width) for width in widths} == words
    held = 0
    for access in re.findall(r"(ld\.shared|st\.global)", ptx):
        held += 1 if access == "ld.shared" else -1
        assert 0 <= held <= 6
    assert held == 0


def test_lanes_add_elements() -> None:
    ptx = stored("bf16", (16, 64), "128B", ", accumulate=True")
    assert len(re.findall(r"red\.global\.add\.noftz\.bf16 ", ptx)) == 16
    assert "st.global" not in ptx


@pytest.mark.sampled(6)
@needs_ptxas
@pytest.mark.parametrize(
    ("name", "sizes", "schedule"),
    [
        ("gemm", (1501, 501, 501), None),
        ("mn_major", (501, 1501, 333), None),
        ("mn_major", (65, 999, 2501), None),
        ("product_f8e4m3", (900, 2500, 2500), None),
        ("gemm", (), Schedule(tile=dict(m=256, n=96), consumers=1, scheduler="stream_k")),
        ("gemm", (), Schedule(tile=dict(m=128, n=256))),
        ("gemm", (), Schedule(tile=dict(m=128, n=192), mode="pingpong")),
        ("gemm", (), Schedule(tile=dict(m=192, n=96), consumers=3)),
        ("mn_major", (), Schedule(tile=dict(m=128, n=64), consumers=1)),
        ("mn_major", (), Schedule(tile=dict(m=64, n=72), consumers=1)),
        ("product_tf32", (), Schedule(tile=dict(m=64, n=144), consumers=1, scheduler="stream_k")),
        ("product_f8e4m3", (), Schedule(tile=dict(m=192, n=96), consumers=3)),
    ],
)
def test_nothing_spills(name: str, sizes: tuple[int, ...], schedule: Schedule | None) -> None:
    made = CASES[name].kernel._compile(schedule, dict(zip("MNK", sizes)), ALL)
    assert made.resources.spill_store_bytes == 0


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["gemm", "epilogue", "mn_major", "column_major_b"])
@pytest.mark.parametrize("sizes", [(1024, 50257, 768), (4095, 4095, 4095)])
def test_copying_warpgroup_keeps_registers(name: str, sizes: tuple[int, int, int]) -> None:
    made = CASES[name].kernel._compile(None, dict(zip("MNK", sizes)), ALL)
    assert (made.schedule.registers or {})["load"] >= 56
