"""Functions of memory-bound kernels compile: they are proved, and ptxas accepts them."""

import pytest

from tests.codegen.support import needs_ptxas
from tests.word_kernels import WORD_KERNELS
from wsdsl import parse


@pytest.mark.sampled
@needs_ptxas
@pytest.mark.parametrize("name", WORD_KERNELS)
def test_compiles_without_spills(name: str) -> None:
    made = WORD_KERNELS[name]
    compiled = getattr(parse(made.text), name).compile(**made.sizes)
    assert compiled.resources and compiled.resources.spill_store_bytes == 0
