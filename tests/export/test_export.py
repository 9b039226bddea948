"""Exported folders: their launches, damaged files, and processes without the compiler."""

import copy
import json
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import wsdsl
from tests.export.calls import install_gpu, prepared_call
from tests.export.cases import CASES, KERNELS
from wsdsl.export.manifest import _digest
from wsdsl.runtime.arrays.views import ArrayView

ROOT = Path(__file__).parents[2]
WITHOUT_COMPILER = """
import json, sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("lark", "llvmlite"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Blocked())
import wsdsl
kernel = wsdsl.load_exported(sys.argv[1])
"""


def run_without_compiler(code: str, *args: str) -> Any:
    command = [sys.executable, "-c", WITHOUT_COMPILER + code, *args]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", CASES)
def test_exported_launch_equals_compiled_launch(name, folders, monkeypatch) -> None:
    install_gpu(monkeypatch.setattr)
    case, kernel = CASES[name], wsdsl.load_exported(folders[name])
    for call in case.calls:
        own = prepared_call(case.kernel, case, call, schedule=case.schedule)
        assert prepared_call(kernel, case, call) == own
        assert prepared_call(pickle.loads(pickle.dumps(kernel)), case, call) == own
    arguments = case.arguments(case.calls[0])
    compiled = case.kernel.compiled_for(case.kernel.resolve(tuple(arguments.values())))
    if not case.schedule and not kernel.declaration.forms:
        found = kernel.compiled_for(kernel.resolve(tuple(arguments.values())))
        assert found.cubin == compiled.cubin


def test_call_without_exported_variant_is_rejected(folders, monkeypatch) -> None:
    install_gpu(monkeypatch.setattr)
    kernel, case = wsdsl.load_exported(folders["gemm"]), CASES["gemm"]
    with pytest.raises(wsdsl.LaunchError, match="not exported for M = 1000, K = 512, N = 512"):
        prepared_call(kernel, case, dict(M=1000, N=512, K=512))
    given = case.arguments(case.calls[0])
    view = given["A"]
    given["A"] = ArrayView(view.pointer + 2, view.dtype, view.shape, view.strides, view.device)
    with pytest.raises(wsdsl.LaunchError, match="TMA-incompatible A"):
        kernel.prepare(**given)
    monkeypatch.setattr("wsdsl.export.manifest.MIN_DRIVER", (99, 1))
    newer = wsdsl.load_exported(case.kernel.export(folders["gemm"].parent / "new", case.sizes))
    with pytest.raises(wsdsl.LaunchError, match=r"for CUDA 12.9; gemm was exported for 99.1"):
        prepared_call(newer, case, case.calls[0])
    for use in (kernel.compile, kernel.tune, kernel.explain, lambda **_: kernel.tile_ir):
        with pytest.raises(wsdsl.WsdslError, match=r"WS1157|missing"):
            use(**case.calls[0]) if use != kernel.tune else use(*given.values())


def test_import_and_launch_need_no_compiler(folders, monkeypatch) -> None:
    code = """
loaded = [n for n in sys.modules if n.startswith("wsdsl.")]
loaded = [n for n in loaded if n not in ("wsdsl.frontend", "wsdsl.frontend.kernel_source")]
try:
    wsdsl.parse("@kernel\\ndef k(X: f32[M], Y: f32[M]):\\n  for m in tiles(M):\\n    Y[m] = X[m]")
except wsdsl.CompileError as error:
    message = str(error)
from tests.export.calls import prepared_call, install_gpu, Case
install_gpu()
call = json.loads(sys.argv[2])
prepared = prepared_call(kernel, Case(kernel, {}, ()), call)
print(json.dumps([loaded, message, prepared, "wsdsl.ir.op" in sys.modules]))
"""
    call = CASES["gemm"].calls[0]
    loaded, message, prepared, has_ops = run_without_compiler(
        code, str(folders["gemm"]), json.dumps(call)
    )
    packages = {name.split(".")[1] for name in loaded}
    assert not packages & {"frontend", "lowering", "codegen", "prover", "simulator"}
    assert not has_ops
    assert "not installed: lark, llvmlite" in message and "pip install lark llvmlite" in message
    install_gpu(monkeypatch.setattr)
    assert tuple(prepared) == prepared_call(CASES["gemm"].kernel, CASES["gemm"], call)


def test_launch_stub_of_export_is_used_without_llvmlite(folders) -> None:
    code = (
        "from wsdsl.runtime.native.launch_stub import _method; print(json.dumps(bool(_method())))"
    )
    assert run_without_compiler(code, str(folders["gemm"]))


def test_exported_folder_is_a_package(folders, monkeypatch, tmp_path) -> None:
    shutil.copytree(folders["scale"], tmp_path / "my_scale")
    monkeypatch.syspath_prepend(tmp_path)
    import my_scale  # pyright: ignore[reportMissingImports]

    assert my_scale.kernel is my_scale.kernel and my_scale.kernel.name == "scale"


def leaves(held: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths of all values."""
    if isinstance(held, dict | list) and held:
        items = held.items() if isinstance(held, dict) else enumerate(held)
        return [path, *(leaf for k, v in items for leaf in leaves(v, (*path, k)))]
    return [path]


def load_all(folder: Path) -> bool:
    kernel = wsdsl.load_exported(folder)
    return all(kernel._compiled(i) for i in range(len(kernel._manifest.kernels)))


@pytest.mark.parametrize("signed", [False, True], ids=["unsigned", "signed"])
def test_damaged_manifest_is_rejected(signed, folders, tmp_path) -> None:
    """Each value replaced, with the digest of the damaged content if `signed`."""
    shutil.copytree(folders["gemm"], tmp_path, dirs_exist_ok=True)
    path = tmp_path / "manifest.json"
    held = json.loads(path.read_text())
    where = [p for p in leaves(held) if p not in ((), ("sha256",))][:: 7 if signed else 3]
    assert len(where) > 50
    for at in where:
        damaged = copy.deepcopy(held)
        parent = damaged
        for key in at[:-1]:
            parent = parent[key]
        parent[at[-1]] = {"unexpected": [None]}
        if signed:
            damaged["sha256"] = _digest(damaged["content"])
        path.write_text(json.dumps(damaged))
        with pytest.raises(wsdsl.LaunchError, match=r"damaged|malformed|version|not a manifest"):
            assert load_all(tmp_path), at


@pytest.mark.parametrize(
    ("file", "data", "words"),
    [
        ("manifest.json", None, "WS1155 cannot read"),
        ("manifest.json", b"", "malformed"),
        ("manifest.json", b"\xff\xfe", "malformed"),
        ("manifest.json", b"[" * 100_000, "malformed"),
        ("manifest.json", b"[]", "not a manifest"),
        ("manifest.json", b'{"wsdsl_export": 2}', r"has version 2; wsdsl \S+ reads 1"),
        ("manifest.json", b'{"wsdsl_export": true}', "has version True"),
        ("kernel_0.cubin", None, "WS1155 cannot read"),
        ("kernel_0.cubin", b"\x7fELF", "damaged"),
        ("launch_stub.bin", b"", "damaged"),
    ],
)
def test_damaged_file_is_rejected(file, data, words, folders, tmp_path) -> None:
    shutil.copytree(folders["row_sum"], tmp_path, dirs_exist_ok=True)
    (tmp_path / file).unlink()
    if data is not None:
        (tmp_path / file).write_bytes(data)
    with pytest.raises(wsdsl.LaunchError, match=words):
        wsdsl.load_exported(tmp_path)


def test_export_needs_ptxas(tmp_path) -> None:
    with (
        wsdsl.config.override(ptxas="off"),
        pytest.raises(wsdsl.CompileError, match="ptxas is not installed"),
    ):
        KERNELS.scale.export(tmp_path, dict(M=32, N=64))
