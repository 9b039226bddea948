"""Run lookups by an index of 4 bits, whose table hold_tables keeps in registers."""

import numpy as np
import pytest

from wsdsl import parse

TEXT = """
@kernel
def found(W: u4[N, K], T: u8[{size}], Y: u8[N, K]):
    for n, k in tiles(N, K):
        Y[n, k] = lookup(T, {index})
"""


@pytest.mark.parametrize(
    ("size", "index"), [(8, "W[n, k] & 7"), (5, "7 & W[n, k]"), (8, "W[n, k]"), (9, "W[n, k] & 7")]
)
def test_lookup_reads_table_or_zero(size: int, index: str) -> None:
    (kernel,) = vars(parse(TEXT.format(size=size, index=index))).values()
    rng = np.random.default_rng(8)
    w, t = (rng.integers(0, 256, n).astype(np.uint8) for n in ((16, 16), size))
    code = np.stack([w & 15, w >> 4], axis=2).reshape(16, 32) & (7 if "7" in index else 15)
    wanted = np.concatenate([t, np.zeros(16 - size, np.uint8)])[code]
    assert np.array_equal(kernel.simulate(w, t, None), wanted)
