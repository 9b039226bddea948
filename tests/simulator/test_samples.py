"""Sample kernels are right at any size, on any number of SMs."""

import pytest

from tests.simulator.kernels import inputs, run, sample, sample_text
from wsdsl.ir.parser import parse_kernel
from wsdsl.ir.verify.verifier import verify
from wsdsl.simulator.simulation import simulate
from wsdsl.simulator.simulation_error import SimulationError

NAMES = ("gemm", "gemm_cluster", "gemm_pingpong", "gemm_registers", "stream_k")
SIZES = [
    (256, 256, 320),
    (383, 129, 200),
    (130, 300, 64),
    (64, 1, 577),
    (1, 1, 1),
    (70, 130, 0),
    (0, 5, 7),
]
"""The second of a pair of tiles may be past the end; halves of K differ, or one is empty."""


@pytest.mark.parametrize("name", NAMES)
def test_round_trip(name: str) -> None:
    kernel = sample(name)
    verify(kernel)
    assert parse_kernel(str(kernel)) == kernel


@pytest.mark.sampled(12)
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("size", SIZES, ids=repr)
@pytest.mark.parametrize("name", NAMES)
def test_right(name: str, size: tuple[int, int, int], seed: int) -> None:
    kernel = sample(name)
    for num_sms in (1, 2, 5):
        run(kernel, *size, seed, num_sms)


def test_fragments_begin_where_blocks_begin() -> None:
    text = sample_text("stream_k")
    index = "%n_piece_index: frag<i32[1x64]> = iota(start=%c0)"
    assert index in text
    kernel = parse_kernel(text.replace(index, index.replace("%c0", "%c2")))
    with pytest.raises(SimulationError, match="partials can only be accessed in whole"):
        simulate(kernel, inputs(256, 256, 640), num_sms=3)
