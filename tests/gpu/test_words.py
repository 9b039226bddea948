"""Words for kernels without products on the GPU: the reference's bits, but for those of NaN."""

from typing import Any

import numpy as np
import pytest

from tests.gpu.arrays import to_device, to_host
from tests.word_kernels import WORD_KERNELS
from wsdsl import Schedule, parse
from wsdsl.simulator.reference.arithmetic import numpy_dtype

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu
CASES = [(name, tile) for name, made in WORD_KERNELS.items() for tile in made.tiles]


ULPS = 2
"""What a division of f32 may be off (docs/language.md), in units of the last place."""


def _is_quotient(name: str, arrays: Any, found: Any, scales: Any) -> Any:
    """Which scales are within ULPS, and which codes are of a quotient by the scales stored."""
    if name == "S":
        return np.abs(found.view("i4") - arrays["S"].view("i4")) <= ULPS
    if name != "Y":
        return False
    x = arrays["X"].astype(np.float64)
    exact = x / np.repeat(scales, 128, axis=1)[:, : x.shape[1]].astype(np.float64)
    slack = (ULPS + 0.5) * 2.0**-23  # half a unit more: the quotient is itself an f32
    ends = ((exact * f).astype(np.float32).astype(found.dtype) for f in (1 - slack, 1 + slack))
    return np.logical_or(*(found.view("u1") == end.view("u1") for end in ends))


@pytest.mark.parametrize(("name", "tile"), CASES)
def test_as_the_reference_has_it(name: str, tile: Any) -> None:
    made = WORD_KERNELS[name]
    kernel, arrays = getattr(parse(made.text), name), made.inputs(made.sizes)
    for p in kernel.tile_ir.params:
        if p.name not in arrays:
            shape = [d if isinstance(d, int) else made.sizes[d] for d in p.type.dims]
            arrays[p.name] = np.zeros(shape, numpy_dtype(p.type.dtype))
    given = [to_device(arrays[p.name], p.type.dtype.name)[0] for p in kernel.tile_ir.params]
    kernel(*given, schedule=tile and Schedule(tile=dict(tile)))
    torch.cuda.synchronize()
    kernel.reference(*(arrays[p.name] for p in kernel.tile_ir.params))
    for p, held in zip(kernel.tile_ir.params, given, strict=True):
        wanted = arrays[p.name]
        found = to_host(held, wanted)
        bits = f"u{wanted.dtype.itemsize}"
        same = found.view(bits) == wanted.view(bits)
        if wanted.dtype.kind not in "iub":
            same |= np.isnan(found.astype(np.float32)) & np.isnan(wanted.astype(np.float32))
        if name == "fp8":
            same |= _is_quotient(p.name, arrays, found, to_host(given[-1], arrays["S"]))
        at = np.argwhere(~same)[:4]
        shown = [(tuple(map(int, i)), found[tuple(i)], wanted[tuple(i)]) for i in at]
        assert same.all(), (p.name, int((~same).sum()), shown)
