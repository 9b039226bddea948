"""The hand-written kernels of `tests/samples` are right at any size, on any number of SMs."""

from typing import Any

import numpy as np
import pytest

from tests.simulator.kernels import SAMPLE, check, inputs
from wsdsl.ir.op import Kernel
from wsdsl.ir.parser import parse_kernel
from wsdsl.ir.spec import verify
from wsdsl.simulator.errors import SimulationError
from wsdsl.simulator.machine import simulate

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


def sample(name: str) -> Kernel:
    return parse_kernel((SAMPLE.parent / f"{name}.scheduled.ir").read_text(), f"{name}.ir")


def arguments(kernel: Kernel, m: int, n: int, k: int, seed: int = 0) -> dict[str, Any]:
    made = inputs(m, n, k, seed)
    made["W"] = np.full((m, n), np.nan, np.float32)
    made["flags"] = np.zeros(-(-m // 128) * -(-n // 128), np.int32)
    return {p.name: made[p.name] for p in kernel.params}


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
        arrays = arguments(kernel, *size, seed)
        simulate(kernel, arrays, seed=seed, num_sms=num_sms)
        check(arrays)
        assert not np.any(arrays.get("flags", 0)), "a flag is left up"


def test_fragments_begin_where_blocks_begin() -> None:
    text = str(sample("stream_k"))
    index = "%n_piece_index: frag<i32[1x64]> = iota(start=%c0)"
    assert index in text
    kernel = parse_kernel(text.replace(index, index.replace("%c0", "%c2")))
    with pytest.raises(SimulationError, match="partials is accessed in whole blocks of 64 x 8"):
        simulate(kernel, arguments(kernel, 256, 256, 640), num_sms=3)
