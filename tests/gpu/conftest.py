"""Tests name sizes: kernels are chosen for these, but where the test is about classes of sizes."""

import pytest

from wsdsl import Kernel


@pytest.fixture(autouse=True)
def exact(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.path.stem != "test_size_classes":
        monkeypatch.setattr(Kernel, "exact", True)
