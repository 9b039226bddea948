"""`tune` on a card: nothing fails, times are plausible, and calls run what won."""

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from tests.records.recorded import make_gemm
from wsdsl import config

pytestmark = pytest.mark.gpu


def test_a_product_is_tuned(tmp_path: Path) -> None:
    gemm = make_gemm()
    a, b = (np.ones((1024, 1000), ml_dtypes.bfloat16) for _ in range(2))
    c = np.zeros((1024, 1024), ml_dtypes.bfloat16)
    with config.override(cache_dir=tmp_path, tuning_cache=True):
        tuned = gemm.tune(a, b, c, seconds=12, candidates=8, progress=False)
        assert not tuned.failed, str(tuned)
        assert len(tuned.measured) >= 4
        assert all(0.3 < t.ratio < 5 and 1 < t.bursts < 1000 for t in tuned.measured)
        assert not c.any()
        call = gemm.resolve((a, b, c))
        assert gemm.compiled_for(call).schedule == tuned.schedule
        again = gemm.tune(a, b, c, seconds=8, candidates=8, progress=False)
        assert again.seconds < 12
