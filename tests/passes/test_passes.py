"""Each pass of the pipeline on small kernels, as text (see pass_files.py)."""

import difflib
from pathlib import Path

import pytest

from tests.passes.pass_files import FOLDER, read, write
from wsdsl.lowering.pipeline import PASSES

STEPS = [step for step, _ in PASSES]
NAMES = [step.__name__ for step in STEPS]
FILES = sorted(FOLDER.glob("*/*.diff"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_pass_output(path: Path, request: pytest.FixtureRequest) -> None:
    file = read(path)
    output = file.run(STEPS[NAMES.index(path.parent.name)])
    if request.config.getoption("--update-golden"):
        write(path, file, output)
        return
    old, new = file.expected.splitlines(), output.splitlines()
    lines = difflib.unified_diff(old, new, "expected", "now", lineterm="")
    assert old == new, "\n".join(
        [*lines, "if this is intended: pytest tests/passes --update-golden"]
    )


@pytest.mark.parametrize("name", NAMES)
def test_pass_has_files(name: str) -> None:
    files = [read(path) for path in FILES if path.parent.name == name]
    assert len(files) > 1 and any(file.source != file.expected for file in files)
