"""All four warps of a warpgroup have bytes of their own, of which the prover looks at each."""

import pytest

from tests.simulator.kernels import sample_text
from wsdsl.diagnostics import ProofError
from wsdsl.ir.parser import parse_kernel
from wsdsl.prover.prove import prove

TEXT = sample_text("gemm")
LOAD = "tma_load(map=%b_map, coordinates=(%n, %k), shared=%slots, offset=16384, state=%f1, "
LOAD += "barriers=%full)\n"
MAP = '%q_map: tensor_map = make_tensor_map(tensor=%A, box=(16, 64), swizzle="128B")\n'
SMALL, LARGE = "%staging: shared<8192 x 4>", "%staging: shared<16384 x 4>"


def loading(quarter: int) -> str:
    """Beside the operands, a box is brought to where a warp stages what it stores."""
    more = "tma_load(map=%q_map, coordinates=(%m, %k), shared=%staging, "
    more += f"offset={2048 * quarter}, state=%f1, barriers=%full)\n"
    made = TEXT.replace("  %slots: shared", f"  {MAP}  %slots: shared", 1)
    return made.replace(LOAD, LOAD + more).replace("tx_bytes=32768", "tx_bytes=34816")


def apart(by: int) -> str:
    """Quarters are twice as large as what the warps put there, and stored from `by` bytes on."""
    made = TEXT.replace(SMALL, LARGE).replace("offset=163840", "offset=196608")
    made = made.replace("offset=163872", "offset=196640")
    return "".join(
        line.replace(")\n", f", apart={by})\n") if "tma_store(" in line else line
        for line in made.splitlines(keepends=True)
    )


@pytest.mark.parametrize(
    ("text", "word"),
    [*((loading(quarter), "overwrite") for quarter in range(4)), (apart(2048), "no op")],
    ids=[*(f"load to quarter {quarter}" for quarter in range(4)), "apart"],
)
def test_each_warp_s_bytes_are_looked_at(text: str, word: str) -> None:
    with pytest.raises(ProofError, match=word):
        prove(parse_kernel(text))


def test_the_bytes_themselves_are_sound() -> None:
    assert prove(parse_kernel(apart(4096))).states == prove(parse_kernel(TEXT)).states
