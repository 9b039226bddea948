"""A second process launches what the first one compiled, without the compiler."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
COMPILER = ("frontend.parse", "lowering", "codegen", "prover", "simulator")


def launched(folder: Path | str) -> dict[str, Any]:
    environment = os.environ | {"WSDSL_CACHE_DIR": str(folder), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.artifact.launched"]
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, cwd=ROOT, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_it_loads_no_compiler(tmp_path: Path) -> None:
    first, second = launched(tmp_path), launched(tmp_path)
    assert second["launched"] == first["launched"] == 4
    # Only a trial of tile sizes needs the simulator, and NumPy.
    assert {f"wsdsl.{part}" for part in COMPILER[:-1]} <= {*first["modules"]}
    heavy = {"llvmlite", "lark", "numpy", "pickle", *(f"wsdsl.{part}" for part in COMPILER)}
    assert not heavy & {*second["modules"]}
    assert {path.suffix for path in tmp_path.iterdir()} == {".entry"}
