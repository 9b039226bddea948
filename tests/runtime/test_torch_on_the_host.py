"""torch's tensors on the CPU: the simulator and the reference take them, of types that NumPy has
not, and write to their memory.
"""

from typing import Any

import pytest

import wsdsl
from tests.corpus.texts import TEXTS

TEXT = TEXTS["decoded_weights"][0].replace("i8", "f8e4m3")


@pytest.mark.parametrize("packed", [False, True])
def test_types_that_numpy_has_not(packed: bool, import_optional: Any) -> None:
    torch: Any = import_optional("torch")
    kernel = wsdsl.parse(TEXT).decoded_weights
    x = torch.randn(16, 72).to(torch.bfloat16)
    w = torch.randn(40, 72).to(torch.float8_e4m3fn)
    wanted = x.double() @ w.double().T
    given, out = kernel.pack(w) if packed else w, torch.empty(16, 40, dtype=torch.bfloat16)
    assert kernel.simulate(x, given, out) is out
    for got in out, kernel.reference(x, given, None):
        assert torch.allclose(got.double(), wanted, rtol=2**-7, atol=1e-2)
