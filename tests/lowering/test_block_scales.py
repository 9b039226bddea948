"""Products with scales of blocks, which threads write to tensor memory."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from tests.case_data import check, expected, inputs, right_and_proved, simulated
from tests.scaled_kernels import ATOMS, SCALED
from tests.tensor_memory import columns_of, lowered
from wsdsl import Kernel, Schedule, ScheduleError
from wsdsl.dispatch.packed_kernel import pack_scales
from wsdsl.ir import ops
from wsdsl.lowering.pipeline import scheduled_tile
from wsdsl.report.tensor_moves import scale_moves
from wsdsl.schedule import Arch, ScalePath
from wsdsl.simulator.state import tmem_cells, tmem_scale_factors
from wsdsl.simulator.state.tmem_cells import TensorMemory

BLACKWELL = Schedule(arch="sm_100a")


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", SCALED)
def test_values_are_right_and_the_kernel_is_proved(name: str) -> None:
    right_and_proved(SCALED[name], Schedule(arch="sm_100a"))


@pytest.mark.parametrize(
    ("name", "tile", "sizes"),
    [
        ("mx", dict(n=40), dict(M=128, N=40, K=48)),
        ("mx", dict(n=8, k=256), dict(M=300, N=8, K=528)),
        ("mx", dict(n=208, k=256), dict(M=5, N=300, K=1104)),
        ("mx", dict(n=256, k=128), dict(M=129, N=256, K=256)),
        ("mx", dict(n=8), dict(M=0, N=8, K=0)),
        # Of few rows, which are columns of the product, up to 32 scales are a column.
        ("mx", dict(n=128, m=8), dict(M=5, N=300, K=528)),
        ("mx", dict(n=128, m=24), dict(M=40, N=128, K=256)),
        ("mx_gated", dict(n=128, m=16), dict(M=16, N=200, K=272)),
        ("nvf4", dict(n=128, m=8), dict(M=8, N=130, K=352)),
    ],
    ids=str,
)
def test_sizes_and_tiles(name: str, tile: dict[str, int], sizes: dict[str, int]) -> None:
    case = SCALED[name]
    asked = dict[str, Any](tile=tile, mma_m="n" if "m" in tile else None)
    blocks = -(-sizes["K"] // (16 if name == "nvf4" else 32))
    simulated(case, Schedule(arch="sm_100a", **asked), **sizes, KB=blocks)
    stores = lowered(case, **asked).of(ops.StoreScaleFactors)
    assert {op.rows for op in stores} == {128, tile.get("m", tile["n"])}


@pytest.mark.parametrize(("rows", "path"), [(8, "st"), (64, "st"), (65, "cp"), (192, "cp")])
def test_atoms_are_copied_if_most_of_their_rows_are_of_use(rows: int, path: str) -> None:
    asked = SCALED["mx_atoms"].with_schedule(BLACKWELL)
    chosen = scheduled_tile(asked, dict(M=rows, N=4096, K=4096)).schedule
    assert chosen is not None and chosen.sf_load == path
    assert rows > 8 or (chosen.mma_m == "n" and chosen.tile is not None and chosen.tile["m"] <= 16)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("name", "n"), [("mx", 64), ("mx_atoms", 128)])
def test_pairs_of_ctas_have_all_scales_of_their_columns(name: str, n: int) -> None:
    right_and_proved(SCALED[name], Schedule(arch="sm_100a", cta_group=2, tile=dict(n=n)))


def test_scales_behind_the_last_block_count_for_nothing() -> None:
    case = SCALED["mx"]
    arrays = inputs(case, K=208, KB=14)
    for name in ("a_scale", "b_scale"):
        arrays[name].view(np.uint8)[:, 7:] = 0xFF
    case.kernel.simulate(*arrays.values(), schedule=Schedule(arch="sm_100a"))
    check(case, arrays, expected(case, arrays))


def test_a_sign_of_a_scale_that_has_none_is_seen() -> None:
    """Tensor cores read scales of f8e4m3 without it."""
    case = SCALED["nvf4"]
    arrays = inputs(case)
    arrays["a_scale"].view(np.uint8)[5, 3] |= 0x80
    case.kernel.simulate(*arrays.values(), schedule=Schedule(arch="sm_100a"))
    assert np.isnan(arrays["C"][5]).all() and np.isfinite(arrays["C"][6]).all()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ["mx", "mxf4", "nvf4"])
def test_hopper_computes_the_same_text(name: str) -> None:
    """In sums, or where blocks are smaller than an instruction's in bf16, which has all bits."""
    simulated(SCALED[name], Schedule(arch="sm_90a"))


def test_scales_lie_as_tensor_cores_take_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scale j of row i: byte j % 4 in lane i % 32 of each quarter, column i / 32 of word j / 4."""
    made = list[TensorMemory]()

    class Kept(TensorMemory):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            made.append(self)

    monkeypatch.setattr(tmem_cells, "TensorMemory", Kept)
    case, tile = SCALED["mx"], dict(m=128, n=136, k=256)
    arrays = inputs(case, M=128, N=136, K=432, KB=14)
    kernel = lowered(case, tile=tile)
    case.kernel.simulate(*arrays.values(), schedule=kernel.schedule)
    (columns,) = (op for op in kernel.of(ops.TmemColumns) if op.label == "scales")
    item = columns_of(kernel)["scales"].columns
    cells = made[0].cells.view(np.uint8).reshape(128, -1, 4)
    fields = {op.column: op.rows for op in kernel.of(ops.StoreScaleFactors)}
    assert fields == {0: 128, 8: 136} and item == 24
    for (field, rows), name in zip(fields.items(), ("a_scale", "b_scale"), strict=True):
        scales = arrays[name].view(np.uint8)
        for i in range(0, rows, 5):
            for j in range(14):
                tile_of, within = divmod(j, 8)
                apart = within // 4 * 4 * -(-rows // 128)
                at = columns.first + item * tile_of + field + apart + i // 32
                assert (cells[i % 32 :: 32, at, within % 4] == scales[i, j]).all(), (name, i, j)
            # Of blocks that are not there.
            assert not cells[i % 32 :: 32, at, 2:].any()


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("mx", dict(M=100, N=70, K=336)),
        ("mx", dict(M=3, N=128, K=640)),
        ("mx", dict(M=128, N=9, K=32)),
        ("mxf4", dict(M=100, N=128, K=416)),
        ("mxf4_16", dict(M=7, N=70, K=288)),
        ("nvf4", dict(M=100, N=70, K=352)),
    ],
    ids=str,
)
def test_copies_and_stores_bring_the_same_bytes(
    name: str, sizes: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    case, found, read = SCALED[name], list[list[bytes]](), tmem_scale_factors.words_read
    block = 16 if name in ("mxf4_16", "nvf4") else 32
    arrays = inputs(case, **sizes, KB=-(-sizes["K"] // block))
    scales = {name: arrays[name] for name in ("a_scale", "b_scale")}
    packed = case.kernel.pack(**scales)
    ways: list[tuple[Kernel, Any, ScalePath]] = [
        (case.kernel, tuple(scales.values()), "st"),
        (case.kernel.packed(*scales), packed, "cp"),
        (case.kernel.packed(*scales), packed, "st"),
    ]
    for kernel, own, path in ways:
        made = list[bytes]()

        def kept(*given: Any, made: list[bytes] = made) -> Any:
            words = read(*given)
            made.append(words.tobytes())
            return words

        monkeypatch.setattr(tmem_scale_factors, "words_read", kept)
        asked = Schedule(arch="sm_100a", mma_m="m", tile=dict(m=128, n=128), sf_load=path)
        kernel.simulate(arrays["A"], arrays["B"], *own, arrays["C"], schedule=asked)
        check(case, arrays, expected(case, arrays))
        found.append(sorted(made))
    assert found[0] == found[1] == found[2] and len(found[0]) >= 2


def test_atoms_are_as_others_store_them() -> None:
    """cuBLAS: the offset of (row, block) is in its documentation; Triton has the same bytes as
    [row atoms, block atoms, 32, 4, 4].
    """
    scales = np.arange(256 * 12, dtype=np.uint8).reshape(256, 12)
    atoms = pack_scales(scales)
    by_triton = scales.reshape(2, 4, 32, 3, 4).transpose(0, 3, 2, 1, 4)
    assert atoms.tobytes() == np.ascontiguousarray(by_triton).tobytes()
    flat = atoms.reshape(-1)
    for i, j in ((0, 0), (33, 5), (127, 3), (200, 11)):
        offset = (i % 32) * 16 + (i % 128 // 32) * 4 + j % 4
        assert flat[(i // 128 * 3 + j // 4) * 512 + offset] == scales[i, j]
    assert pack_scales(scales[:5, :2]).shape == (1, 1, 2, 256)


@pytest.mark.parametrize(
    ("old", "new"),
    [("i % 32 // 16", "i % 64 // 16"), ("b // 4", "b // 8"), ("// 32 % 4 * 4", "// 64 % 4 * 4")],
)
def test_indices_that_say_something_else_are_no_atoms(old: str, new: str) -> None:
    """They are factors of sums in a loop, as scales are that no instruction takes."""
    kernel = lowered(dataclasses.replace(SCALED["mx_atoms"], text=ATOMS.replace(old, new)))
    assert not any(op.scales for op in kernel.of(ops.Tcgen05Mma))


@pytest.mark.parametrize(
    ("name", "asked", "told"),
    [
        ("mx", dict(n=128), "a_scale: 2048 bytes to SMEM per k-tile, 512 of them useful"),
        ("mx", dict(n=8), "b_scale: 128 bytes to SMEM per k-tile, 32 of them useful"),
        ("mx_atoms", dict(n=256), "b_scale: 1024 bytes of atoms per k-tile"),
        ("mx_atoms", dict(n=8), "b_scale: 512 bytes to SMEM per k-tile, 32 of them useful"),
    ],
)
def test_explain_tells_bytes_copied_and_useful(name: str, asked: dict[str, int], told: str) -> None:
    assert told in "\n".join(scale_moves(lowered(SCALED[name], tile=asked)))


def test_products_wait_for_no_scales_but_the_first() -> None:
    asked = Schedule(arch="sm_100a", cta_group=1, mma_m="m", tile=dict(m=128, n=128), stages=5)
    sizes = dict(M=2048, N=2048, K=4096, KB=128)
    lanes = SCALED["mx"].kernel.timeline(asked, **sizes).worker.lanes
    (multiplying,) = (lane for lane in lanes if lane.name == "mma")
    assert sum("pipeline of scale factors (full)" in span.edge for span in multiplying.spans) == 1


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        (dict(tile=dict(m=64)), "must be 128: operands"),
        (dict(tile=dict(n=20)), "a multiple of 8"),
        (dict(tile=dict(k=64)), "a multiple of 128"),
        (dict(mma_m="n", tile=dict(n=64)), "must be 128: operands"),
        (dict(sf_load="cp"), "`a_scale` packed in atoms"),
    ],
    ids=str,
)
def test_a_schedule_that_does_not_fit_is_refused(schedule: dict, words: str) -> None:
    with pytest.raises(ScheduleError, match=words):
        lowered(SCALED["mx"], **schedule)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("sizes", "asked", "path"),
    [
        (dict(M=24, MA=1), dict(mma_m="n", tile=dict(m=24, n=128)), "st"),
        (dict(M=140), dict(tile=dict(m=128, n=80)), "st"),
        (dict(K=256), dict(sf_load="st", cta_group=2, tile=dict(m=128, n=64)), "st"),
        (dict(M=140), dict(cta_group=1), "cp"),
    ],
    ids=str,
)
def test_threads_store_scales_of_atoms_that_tiles_begin_within(
    sizes: dict[str, int], asked: dict[str, Any], path: str
) -> None:
    case = SCALED["mx_atoms"]
    arrays = inputs(case, **sizes)
    call = case.kernel.resolve(tuple(arrays.values()))
    compiled = case.kernel.compiled_for(call, Schedule(arch="sm_100a", **asked))
    compiled.simulate_call(call)
    check(case, arrays, expected(case, arrays))
    assert compiled.certificate is not None and compiled.schedule.sf_load == path


@pytest.mark.parametrize("rows", [24, 140])
def test_rows_of_experts_are_padded_to_atoms_or_not(rows: int) -> None:
    """Each expert's begin an atom, of which as many rows as it has are of use."""
    case = SCALED["mx_experts"]
    arrays = inputs(case, M=rows, N=72, K=160)
    scales = {name: arrays[name] for name in ("a_scale", "b_scale")}
    packed = case.kernel.pack(**scales)
    kernel = case.kernel.packed(*scales)
    kernel.simulate(arrays["A"], arrays["B"], *packed, arrays["C"], schedule=BLACKWELL)
    check(case, arrays, expected(case, arrays))


def test_atoms_are_copied_whole() -> None:
    with pytest.raises(ScheduleError, match="multiple of 128: `b_scale` is"):
        lowered(SCALED["mx_atoms"], sf_load="cp", tile=dict(n=64))
    with pytest.raises(ScheduleError, match='sf_load="st" needs'):
        lowered(SCALED["mx"], "sm_90a", sf_load="st")


@pytest.mark.parametrize("k", [336, 344])
def test_rows_that_tma_does_not_take(k: int) -> None:
    """Of scales, or of operands, too: sums are multiplied, as on Hopper."""
    case = SCALED["mx"]
    arrays = inputs(case, K=k, KB=11)
    arrays |= {name: np.ascontiguousarray(arrays[name]) for name in ("a_scale", "b_scale")}
    case.kernel.simulate(*arrays.values(), schedule=BLACKWELL)
    check(case, arrays, expected(case, arrays))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("// 32", "// 64"),
        ("b_scale: f8e8m0", "b_scale: f32"),
        ("b_scale[n, index(k) // 32]", "b_scale[n, index(k) // 64]"),
    ],
)
def test_scales_that_no_instruction_takes_multiply_sums(old: str, new: str) -> None:
    """A k-tile's, in f32."""
    case = SCALED["mx"]
    case = dataclasses.replace(case, text=case.text.replace(old, new))
    assert not any(op.scales for op in lowered(case).of(ops.Tcgen05Mma))
    arrays = inputs(case)
    wanted = {name: np.copy(array) for name, array in arrays.items()}
    case.kernel.reference(*wanted.values())
    case.kernel.simulate(*arrays.values(), schedule=Schedule(arch="sm_100a"))
    wide = (np.asarray(x["C"], np.float64) for x in (arrays, wanted))
    np.testing.assert_allclose(*wide, rtol=1e-2, atol=1e-2)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("name", "a", "b", "arch"),
    [
        ("mx", "f6e2m3", "f6e3m2", "sm_100a"),
        ("mx", "f4e2m1", "f8e5m2", "sm_103a"),
        ("mx", "f6e3m2", "f4e2m1", "sm_90a"),
        ("mx_atoms", "f8e4m3", "f6e2m3", "sm_100a"),
    ],
)
def test_operands_of_fewer_bits_are_multiplied_as_fp8(
    name: str, a: str, b: str, arch: Arch
) -> None:
    """A partition makes them in SMEM, and tensor cores that take scales multiply by them."""
    case = SCALED[name]
    text = case.text.replace("A: f8e4m3", f"A: {a}").replace("B: f8e4m3", f"B: {b}")
    case = dataclasses.replace(case, text=text, sizes={**case.sizes, "K": 352})
    compiled = right_and_proved(case, Schedule(arch=arch))
    assert ("mxf8f6f4.block_scale" in compiled.ptx) == (arch != "sm_90a")
