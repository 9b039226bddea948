"""Tests of `pytest --frameworks`."""

import os
import subprocess
import sys
from pathlib import Path


def test_frameworks_option_fails_when_a_package_is_missing(tmp_path):
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError('no torch')")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    test = "tests/rows/test_of_torch.py::test_what_is_recorded"
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--frameworks", test],
        cwd=Path(__file__).parents[1],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 1
    assert "could not import 'torch': no torch" in run.stdout
