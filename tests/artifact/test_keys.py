"""A kernel is found by all that decides what it becomes, and by nothing else."""

import importlib.util
import itertools
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from wsdsl.artifact import versions
from wsdsl.artifact.artifact import Names
from wsdsl.artifact.cache import get_or_compute
from wsdsl.artifact.versions import digest

FILE = """
from wsdsl import dims, kernel, function, tiles, zeros, f32, f16, bf16, exp, log
import math
M, N = dims("M N")
SCALE = 2.0
T = f32
OTHER = 7
apply = exp

@function
def inner(x):
    return x * SCALE

@function
def scaled(x):
    return inner(x) + 1.0

def around(D):
    @kernel
    def made(A: bf16[D, N], B: bf16[D, N]):
        for m, n in tiles(D, N):
            B[m, n] = scaled(A[m, n])
    return made

@kernel
def f(A: bf16[M, N], B: bf16[M, N]):
    for m, n in tiles(M, N):
        B[m, n] = cast(scaled(apply(A[m, n])) * SCALE, bf16)

first = around(M)
"""
CHANGES = {
    "its text": ("* SCALE, bf16)", "* SCALE * 1.0, bf16)"),
    "a number": ("SCALE = 2.0", "SCALE = 2.5"),
    "the type of a number": ("SCALE = 2.0", "SCALE = 2"),
    "the sign of zero": ("SCALE = 2.0", "SCALE = -0.0"),
    "a dimension": ('dims("M N")', 'dims("M K")'),
    "a function": ("+ 1.0", "+ 2.0"),
    "a function in a function": ("return x * SCALE", "return x * SCALE * x"),
    "which function of the language": ("apply = exp", "apply = log"),
    "an element type": ("A: bf16[M, N], B", "A: f16[M, N], B"),
    "what a type's name stands for": ("\nT = f32", "\nT = f32; bf16 = f16"),
    "its name": ("def f(", "def g("),
}
LIKE = {
    "what it does not name": ("OTHER = 7", "OTHER = 8"),
    "where it stands": ("import math\n", "import math\n\n\n# more lines\n"),
    "other kernels": ("made(A: bf16[D, N]", "made(A: f16[D, N]"),
    "a module": ("import math\n", "import math as sqrt\n"),
}
number = itertools.count()


def loaded(folder: Path, text: str) -> ModuleType:
    name = f"keyed_{next(number)}"
    path = folder / f"{name}.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def key_of(kernel: Any) -> str:
    found = kernel._find_key()
    assert isinstance(found, str)
    return found


@pytest.mark.parametrize("what", CHANGES)
def test_it_depends_on(what: str, tmp_path: Path) -> None:
    before, after = loaded(tmp_path, FILE), loaded(tmp_path, FILE.replace(*CHANGES[what]))
    assert key_of(before.f) != key_of(getattr(after, "f", None) or after.g)


@pytest.mark.parametrize("what", LIKE)
def test_it_does_not_depend_on(what: str, tmp_path: Path) -> None:
    before, after = loaded(tmp_path, FILE), loaded(tmp_path, FILE.replace(*LIKE[what]))
    assert key_of(before.f) == key_of(after.f)


def test_dimensions_around_a_function_count(tmp_path: Path) -> None:
    module = loaded(tmp_path, FILE)
    assert key_of(module.first) == key_of(module.around(module.M))
    assert key_of(module.first) != key_of(module.around(module.N))


def test_names_are_read_once(tmp_path: Path) -> None:
    """What was compiled by the one number must not be simulated by the other."""
    module = loaded(tmp_path, FILE)
    key_of(module.f)
    module.SCALE = 3.0
    assert "2.0" in str(module.f.tile_ir) and "3.0" not in str(module.f.tile_ir)
    assert key_of(module.f) == key_of(loaded(tmp_path, FILE).f)


def test_without_a_text_there_is_no_key() -> None:
    space: dict[str, Any] = {}
    exec(FILE, space)
    assert space["f"]._find_key() is None


def test_parts_are_kept_apart() -> None:
    keys = [digest("a", "bc"), digest("ab", "c"), digest("a", "b", "c"), digest("a", ("b", "c"))]
    assert len({*keys, digest("a", 1), digest("a", "1"), digest("a", None)}) == 7


def test_another_version_finds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WSDSL_CACHE_DIR", str(tmp_path))
    assert get_or_compute(digest("a"), Names, lambda: Names(("old",))) == Names(("old",))
    monkeypatch.setattr(versions, "emitter", lambda: "another")
    assert get_or_compute(digest("a"), Names, lambda: Names(("new",))) == Names(("new",))


def emitter_of(root: Path, monkeypatch: pytest.MonkeyPatch, *, later: float = 60.0) -> str | None:
    monkeypatch.setattr(versions, "ROOT", root)
    monkeypatch.setattr(versions, "IMPORTED", (root / "ir" / "op.py").stat().st_ctime + later)
    return versions.emitter.__wrapped__()


def test_the_sources_are_the_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ir/op.py", "frontend/wsdsl.lark", "runtime/launcher.py", "compiler.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x = 1")
    seen = {emitter_of(tmp_path, monkeypatch)}
    (tmp_path / "runtime/launcher.py").write_text("x = 2")
    assert emitter_of(tmp_path, monkeypatch) in seen
    for name in ("ir/op.py", "frontend/wsdsl.lark", "compiler.py", "ir/more.py"):
        (tmp_path / name).write_text("x = 2")
        assert emitter_of(tmp_path, monkeypatch) not in seen
        seen.add(emitter_of(tmp_path, monkeypatch))
    assert None not in seen


def test_sources_that_change_under_a_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have loaded some before and some after."""
    (tmp_path / "ir").mkdir()
    (tmp_path / "ir" / "op.py").write_text("x = 1")
    assert emitter_of(tmp_path, monkeypatch, later=-1.0) is None


def test_another_ptxas_is_another_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "ptxas"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    monkeypatch.setenv("WSDSL_PTXAS", "off")
    found = [versions.artifact_key("code")]
    monkeypatch.setenv("WSDSL_PTXAS", str(tool))
    found.append(versions.artifact_key("code"))
    tool.write_text("#!/bin/sh\necho 2\n")
    found.append(versions.artifact_key("code"))
    monkeypatch.setenv("WSDSL_ALLOW_SPILLS", "1")
    found.append(versions.artifact_key("code"))
    assert len({*found}) == 4 and None not in found
