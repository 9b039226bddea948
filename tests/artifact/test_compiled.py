"""A kernel that was found offers what one that was compiled does."""

import pickle
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import wsdsl
from tests.case_table import matmul_text
from wsdsl import Compiled, CompileError, Schedule
from wsdsl.artifact import cache
from wsdsl.diagnostics import ScheduleError
from wsdsl.dispatch.variants import Variants

TEXT = matmul_text(
    "scaled(A: bf16[M, K], B: bf16[N, K], C: bf16[M, N], alpha: f32)",
    "A[m, k] @ B[n, k]",
    "C[m, n] = acc * alpha",
)
SMALL = Schedule(tile=dict(m=64, n=64, k=64), consumers=1)
FORMS = ("schedule", "params", "sizes", "signature", "access", "certificate", "cubin", "resources")
BF16 = ml_dtypes.bfloat16


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WSDSL_CACHE_DIR", str(tmp_path))
    return tmp_path


def refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is compiled from now on."""

    def compiles(*_: Any, **__: Any) -> Any:
        pytest.fail("compiled again")

    for name in ("wsdsl.lowering.pipeline.lower", "wsdsl.frontend.from_source.from_text"):
        monkeypatch.setattr(name, compiles)
    monkeypatch.setattr("wsdsl.prover.prove.prove", compiles)
    monkeypatch.setattr(Compiled, "_make_artifact", compiles)


def in_another_process(text: str = TEXT) -> Any:
    """As far as it is one: nothing is known but what is on disk."""
    cache.forget()
    return wsdsl.parse(text).scaled


def test_all_forms(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = wsdsl.parse(TEXT).scaled.compile(SMALL, M=512, N=256, K=128)
    with monkeypatch.context() as patch:
        refuse(patch)
        found = in_another_process().compile(SMALL, M=512, N=256, K=128)
        assert found is not first and found.is_built
        for name in FORMS:
            assert getattr(found, name) == getattr(first, name), name
        assert found.ptx == first.ptx and found.prove() == first.prove()
        assert found.assembled == first.assembled
        assert repr(found) == repr(first)
    # What is not kept is made when it is asked for.
    for level in ("tile", "partitioned", "scheduled"):
        assert found.ir(level) == first.ir(level)
    assert found.llvm == first.llvm and found.explain() == first.explain()
    assert str(found.source) == str(first.source)
    assert first.launcher
    for copied in (pickle.loads(pickle.dumps(x)) for x in (first, found)):
        copied = pickle.loads(pickle.dumps(copied))
        assert copied.cubin == first.cubin and copied.ir() == first.ir()
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-2, 3, (n, 64)).astype(BF16) for n in (64, 40))
    assert np.array_equal(found.simulate(a, b, 2.0), first.simulate(a, b, 2.0))


def test_kernels_of_one_text_are_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where nothing is on disk."""
    first = wsdsl.parse(TEXT).scaled.compile(SMALL)
    refuse(monkeypatch)
    second = wsdsl.parse(TEXT).scaled.compile(SMALL)
    assert second.artifact is first.artifact
    assert second.launcher is first.launcher


def test_other_sizes_have_the_same_code(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is chosen anew, for them, and not compiled."""
    wsdsl.parse(TEXT).scaled.compile(SMALL, M=512, N=512, K=512)
    kernel = in_another_process()
    monkeypatch.setattr(Compiled, "_make_artifact", lambda *_: pytest.fail("compiled again"))
    assert kernel.compile(SMALL, M=511, N=512, K=512).is_built


def test_what_is_chosen_is_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where wider tiles spill."""

    def fit(self: Variants, asked: Any) -> Compiled:
        made = self.lowered(self.request(SMALL, dict(asked.sizes)))
        made.notes = ("wider ones spill",)
        return made

    with monkeypatch.context() as patch:
        patch.setattr(Variants, "_build_within_registers", fit)
        wsdsl.parse(TEXT).scaled.compile(M=512, N=512, K=512)
    kernel = in_another_process()
    monkeypatch.setattr("wsdsl.lowering.pipeline.scheduled_tile", lambda *_: pytest.fail("chosen"))
    found = kernel.compile(M=512, N=512, K=512)
    assert found.schedule.tile == SMALL.tile
    assert found.explain().endswith("wider ones spill")
    assert kernel.schedule(M=512, N=512, K=512) == found.schedule


@pytest.mark.parametrize("gone", ["scaled", ""])
def test_an_entry_that_is_gone_is_made_anew(folder: Path, gone: str) -> None:
    """The code alone, or all but it."""
    first = wsdsl.parse(TEXT).scaled.compile(SMALL)
    for path in folder.iterdir():
        if (b"Artifact" in path.read_bytes()) == (gone == "scaled"):
            path.unlink()
    found = in_another_process().compile(SMALL)
    assert found.cubin == first.cubin
    assert sum(b"Artifact" in path.read_bytes() for path in folder.iterdir()) == 1


def test_without_ptxas_the_ptx_is_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WSDSL_PTXAS", "off")
    first = wsdsl.parse(TEXT).scaled.compile(SMALL)
    with monkeypatch.context() as patch:
        refuse(patch)
        found = in_another_process().compile(SMALL)
        assert found.assembled is None and found.artifact.image == first.ptx
        with pytest.raises(CompileError, match="ptxas is not installed"):
            _ = found.cubin
        with pytest.warns(UserWarning, match="without ptxas") as told:
            _ = found.launcher
        assert told[0].filename == __file__
    monkeypatch.delenv("WSDSL_PTXAS")
    assert in_another_process().compile(SMALL).assembled is not None


def test_what_is_refused_is_not_kept(folder: Path) -> None:
    for _ in range(2):
        with pytest.raises(ScheduleError):
            in_another_process().compile(Schedule(tile=dict(x=64)))
    assert not any(b"Choice" in path.read_bytes() for path in folder.iterdir())


def test_texts_with_mistakes_are_told_each_time(folder: Path) -> None:
    told = []
    for _ in range(2):
        with pytest.raises(wsdsl.TypeCheckError) as error:
            in_another_process(TEXT.replace("alpha\n", "beta\n"))
        told.append(str(error.value))
    assert told[0] == told[1] and "`beta` is not defined" in told[0]
    assert not folder.exists() or not list(folder.glob("*.entry"))


def test_dumped_ir_is_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = wsdsl.parse(TEXT).scaled._compile(SMALL, {}, ()).ir()
    first = wsdsl.compile_ir(text).artifact
    cache.forget()
    monkeypatch.setattr(Compiled, "_make_artifact", lambda *_: pytest.fail("compiled again"))
    assert wsdsl.compile_ir(text).cubin == first.cubin
