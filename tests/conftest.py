"""Golden files, and GPU tests that are skipped where there is no GPU.

`golden(text)` compares with tests/golden/<test module>/<test name>.txt. A missing or different file
fails; `pytest --update-golden` writes it, to be looked at and committed.
"""

import difflib
import re
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser):
    parser.addoption("--update-golden", action="store_true", help="write the golden files anew")


def pytest_collection_modifyitems(items):
    on_gpu = [item for item in items if item.get_closest_marker("gpu")]
    if not on_gpu:
        return
    from wsdsl.runtime.device import gpu_available

    if not gpu_available():
        skip = pytest.mark.skip(reason="needs a GPU of compute capability 9.0")
        for item in on_gpu:
            item.add_marker(skip)


@pytest.fixture
def golden(request):
    def compare(text: str, suffix: str = ".txt") -> None:
        name = re.sub(r"[^\w.-]+", "_", request.node.name).strip("_") + suffix
        path = GOLDEN / request.node.path.stem / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        elif not path.exists():
            pytest.fail(f"{path} is missing; `pytest --update-golden` writes it")
        elif path.read_text() != text:
            old, new = path.read_text().splitlines(), text.splitlines()
            lines = difflib.unified_diff(old, new, str(path), "now", lineterm="")
            pytest.fail("\n".join([*lines, "if this is meant: pytest --update-golden"]))

    return compare
