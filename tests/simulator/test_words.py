"""Functions of memory-bound kernels in the simulator: equal to the reference, bit by bit."""

from typing import Any

import numpy as np
import pytest

from tests.word_kernels import WORD_KERNELS
from wsdsl import Schedule, parse
from wsdsl.simulator.reference.arithmetic import numpy_dtype

CASES = [(name, tile) for name, made in WORD_KERNELS.items() for tile in made.tiles]


@pytest.mark.parametrize(("name", "tile"), CASES)
def test_as_the_reference_has_it(name: str, tile: Any) -> None:
    made = WORD_KERNELS[name]
    kernel, given = getattr(parse(made.text), name), made.inputs(made.sizes)
    found: list[list[Any]] = []
    for run in ("reference", "simulate"):
        arrays = []
        for p in kernel.tile_ir.params:
            shape = [d if isinstance(d, int) else made.sizes[d] for d in p.type.dims]
            arrays.append(given.get(p.name, np.zeros(shape, numpy_dtype(p.type.dtype))))
        schedule = tile and Schedule(tile=dict(tile))
        options = dict(schedule=schedule) if run == "simulate" else {}
        getattr(kernel, run)(*arrays, **options)
        found.append(arrays)
    for p, wanted, simulated in zip(kernel.tile_ir.params, *found, strict=True):
        bits = f"u{wanted.dtype.itemsize}"
        assert np.array_equal(simulated.view(bits), wanted.view(bits)), p.name
