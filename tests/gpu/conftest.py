"""Tests name sizes: kernels are chosen for these, but where the test is about classes of sizes.

What one test took of the card's memory is given back where it was much: a dozen processes run them.
"""

from collections.abc import Iterator

import pytest

from wsdsl import Kernel

KEPT = 2**28  # bytes a process may keep to itself for its next test


@pytest.fixture(autouse=True)
def exact(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.path.stem != "test_size_classes":
        monkeypatch.setattr(Kernel, "exact", True)


@pytest.fixture(autouse=True)
def memory_given_back() -> Iterator[None]:
    yield
    torch = pytest.importorskip("torch")
    if torch.cuda.memory_reserved() > KEPT:
        torch.cuda.empty_cache()
