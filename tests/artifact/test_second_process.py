"""A second process launches what the first one compiled, without the compiler."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
COMPILER = ("frontend", "lowering", "codegen", "prover", "simulator")


def launched(folder: Path | str) -> dict[str, Any]:
    environment = os.environ | {"WSDSL_CACHE_DIR": str(folder), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.artifact.launched"]
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, cwd=ROOT, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, Any], Path]:
    folder = tmp_path_factory.mktemp("kept")
    return launched(folder), launched(folder), folder


def test_it_loads_no_compiler(both: Any) -> None:
    first, second, _ = both
    assert second["launched"] == first["launched"] == 4
    assert {f"wsdsl.{part}" for part in COMPILER} <= {*first["modules"]}
    heavy = {"llvmlite", "lark", "numpy", "pickle", *(f"wsdsl.{part}" for part in COMPILER)}
    assert not heavy & {*second["modules"]}


def test_nothing_is_left_behind_but_entries(both: Any) -> None:
    assert {path.suffix for path in both[2].iterdir()} == {".entry"}
