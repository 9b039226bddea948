"""What is tried: whole schedules that lower, of several ways, with neighbours of the best."""

from tests.decoded_kernels import DECODED
from tests.records.recorded import make_gemm
from wsdsl import Schedule
from wsdsl.records.entry import agrees
from wsdsl.tune.candidates import candidates

REGISTERS = Schedule(operand_transform="registers")
SIZES = dict(M=1024, N=4096, K=4096)


def test_candidates_are_whole_and_differ() -> None:
    gemm = make_gemm()
    found = candidates(gemm.tile_ir, None, SIZES)
    assert found[0] == gemm.schedule(**SIZES)
    assert 40 <= len(found) == len(set(found)) <= 48
    assert {s.mode for s in found} == {"cooperative", "pingpong"}
    assert len({s.tile for s in found}) > 12
    first = found[0]
    depths = {s.stages for s in found if s.tile == first.tile and s.mode == first.mode}
    assert len(depths) >= 3
    assert all(gemm.schedule(s, **SIZES) == s for s in found)


def test_cut_tiles_are_among_them() -> None:
    found = candidates(make_gemm().tile_ir, None, dict(M=256, N=256, K=65536))
    assert {"split_k", "stream_k", "persistent"} <= {s.scheduler for s in found}


def test_operands_are_decoded_in_both_places() -> None:
    scaled = DECODED["scaled"].kernel
    found = candidates(scaled.tile_ir, None, SIZES)
    assert {s.operand_transform for s in found} == {None, "smem"}
    assert all(
        s.operand_transform == "registers" for s in candidates(scaled.tile_ir, REGISTERS, SIZES, 8)
    )


def test_what_is_given_stays() -> None:
    given = Schedule(tile=dict(n=192), stages=4)
    found = candidates(make_gemm().tile_ir, given, SIZES, 12)
    assert len(found) > 3 and all(agrees(given, s) for s in found)
