"""`wsdsl.kernels.matmul` in the simulator, against float64."""

from typing import Any

import numpy as np
import pytest

from tests.matmul_cases import Maker, Options, check, every_pair
from wsdsl.kernels import matmul

PAIRS = list(every_pair())


@pytest.mark.parametrize("options", PAIRS, ids=lambda o: "-".join(v or "_" for v in o.values()))
def test_every_option_with_every_other(options: Options) -> None:
    made = Maker(0, lambda x: x).call(options)
    got: Any = matmul(*made.args, **made.options)
    if options["out"]:
        assert got is made.options["out"]
    check(made, np.asarray(got).astype(np.float64), options)
