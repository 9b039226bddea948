"""Exports that the tests of this folder share."""

from pathlib import Path

import pytest

from tests.export.cases import CASES


@pytest.fixture(scope="session")
def folders(tmp_path_factory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("exports")
    cases = CASES.items()
    return {n: c.kernel.export(root / n, c.sizes, schedule=c.schedule) for n, c in cases}
