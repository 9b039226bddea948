"""`wsdsl calibrate` measures every rate of the card, near what is shipped."""

import json
import subprocess
import sys

import pytest

from wsdsl.rates.rates import FITTED, NAMES

pytestmark = pytest.mark.gpu


def test_every_rate_is_measured_and_can_be_right(tmp_path):
    out = tmp_path / "rates.json"
    command = [sys.executable, "-m", "wsdsl", "calibrate", "--seconds", "10", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads(out.read_text())["rates"]
    for name in set(NAMES) - set(FITTED):
        assert rows[name]["source"].startswith("measured by wsdsl calibrate"), name
    for name, low, high in (
        ("tensor_16_cycles", 0.49, 0.55), ("tensor_smem_bytes", 110, 130), ("fma_lanes", 110, 135),
        ("exp_lanes", 14, 16.5), ("smem_read_bytes", 110, 129), ("l2_own_bytes", 25, 60),
        ("num_sms", 60, 140),
    ):  # fmt: skip
        assert low < rows[name]["value"] < high, name
