"""Exported kernels as functions of TVM-FFI, with the driver of a GPU that is not there."""

import re
import subprocess
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

import wsdsl
from tests.export.calls import install_gpu, prepared_call
from tests.export.cases import CASES
from wsdsl.ir.types import DTYPES
from wsdsl.runtime.arrays.dlpack import _Tensor, types_of
from wsdsl.runtime.arrays.views import ArrayView

HERE, SHARED = Path(__file__).parent, ("-shared", "-fPIC", "-O1")
STREAM, OBJECT_BYTES = 0x77, 24
CALLERS = "python", "c++"


@cache
def cpp_call(tvm_ffi: Any) -> Any:
    """`call` of call.cc."""
    include, library = tvm_ffi.libinfo.find_include_path(), tvm_ffi.libinfo.find_libtvm_ffi()
    command = ["g++", "-std=c++17", *SHARED, f"-I{include}", HERE / "call.cc", library, "-o"]
    with TemporaryDirectory() as to:
        subprocess.run([*command, f"{to}/call.so"], check=True)
        tvm_ffi.load_module(f"{to}/call.so")
    return tvm_ffi.get_global_func("tests.call")


@cache
def built(tvm_ffi: Any, folder: Path, caller: str, driver: str = "libcuda.so.1") -> Any:
    """Compile an exported kernel: in its folder for Python, next to that for C++."""
    (launcher,) = folder.glob("*.c")
    source, name = launcher.read_text().replace("libcuda.so.1", driver), launcher.stem
    command = ["gcc", "-std=gnu99", "-x", "c", "-", f"-I{folder}", *SHARED, "-ldl"]
    if caller == "c++":
        command.append(f'-DWSDSL_FOLDER="{folder.name}"')
    library = folder.with_suffix(".so") if caller == "c++" else folder / f"{name}.so"
    subprocess.run([*command, "-o", library], input=source, text=True, check=True)
    if caller == "python":
        return getattr(tvm_ffi.load_module(library), name)
    return lambda *args: cpp_call(tvm_ffi)(str(library), name, *args)


def tensor_of(tvm_ffi: Any, x: Any) -> Any:
    """A tensor with type, strides, device and address of a view; a number as it is."""
    if not isinstance(x, ArrayView):
        return x
    pairs, one = 2 if x.dtype.bits == 4 else 1, np.zeros(1, np.uint8)
    shape = *x.shape[:-1], x.shape[-1] // pairs
    strides = *(n // pairs for n in x.strides[:-1]), x.strides[-1]
    made = tvm_ffi.from_dlpack(np.lib.stride_tricks.as_strided(one, shape, strides))
    tensor = _Tensor.from_address(made.__chandle__() + OBJECT_BYTES)
    code, bits, *_ = types_of(x.dtype)[0].to_bytes(4, "little")
    tensor.data, tensor.dtype = x.pointer, (code, bits, 1)
    tensor.device = (2, x.device_index) if x.on_gpu else (1, 0)
    return made


@pytest.fixture(scope="module")
def tvm_ffi(import_optional) -> Any:
    return import_optional("tvm_ffi")


@pytest.fixture(scope="module")
def function(tvm_ffi, folders, tmp_path_factory) -> Any:
    """The function of a case's library."""
    driver = tmp_path_factory.mktemp("driver") / "cuda.so"
    subprocess.run(["gcc", *SHARED, HERE / "fake_cuda.c", "-o", driver], check=True)
    return lambda case, caller: built(tvm_ffi, folders[case], caller, str(driver))


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize("name", ["gemm", "weights", "scale"])
def test_library_launches_as_kernel(tvm_ffi, name, caller, folders, function, monkeypatch, capfd):
    install_gpu(monkeypatch.setattr)
    case = CASES[name]._replace(scalars=dict(s=0.5 if caller == "python" else 2))
    call = case.calls[0]
    arguments = [tensor_of(tvm_ffi, x) for x in case.arguments(call).values()]
    with tvm_ffi.use_raw_stream(tvm_ffi.device("cuda:0"), STREAM):
        function(name, caller)(*arguments)
    grid, threads, packed = prepared_call(wsdsl.load_exported(folders[name]), case, call)
    *launched, data = capfd.readouterr().out.split()
    assert launched == [str(grid), str(threads), hex(STREAM)] and data.startswith(packed)


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize(
    ("param", "given", "words"),
    [
        ("C", None, "gemm has 3 parameters; 2 arguments were given"),
        ("B", 0.5, "B: the TVM-FFI type is 3, expected a bf16 tensor"),
        ("s", "0.5", "s: the TVM-FFI type is 11, expected a f32 number"),
        ("s", 1e39, "s: 1e+39 does not fit f32"),
        ("B", dict(dtype=DTYPES["f32"]), "B: the DLPack type is {2, 32, 1}, expected bf16"),
        ("A", dict(device="cpu"), "A: the DLPack device is {1, 0}, expected CUDA's {2, 0}"),
        ("B", dict(device="cuda:1"), "B: the DLPack device is {2, 1}, expected CUDA's {2, 0}"),
        ("A", dict(shape=(256,), strides=(1,)), "A: the tensor has 1 axes, expected 2"),
        ("B", dict(shape=(512, 100)), "B: axis 1 has size 100, expected 512"),
    ],
)
def test_library_names_wrong_argument(tvm_ffi, param, given, words, caller, function) -> None:
    name = "scale" if param == "s" else "gemm"
    arguments = CASES[name].arguments(CASES[name].calls[0])
    arguments[param] = replace(arguments[param], **given) if isinstance(given, dict) else given
    found = [tensor_of(tvm_ffi, x) for x in arguments.values() if x is not None]
    with pytest.raises(ValueError, match=f"^{re.escape(words)}$"):
        function(name, caller)(*found)


def test_global_function_launches_as_kernel(tvm_ffi, folders, monkeypatch) -> None:
    fake, kernel = install_gpu(monkeypatch.setattr), wsdsl.load_exported(folders["gemm"])
    case, call = CASES["gemm"], CASES["gemm"].calls[0]
    packed = bytes.fromhex(prepared_call(kernel, case, call)[2])
    fake.args_bytes = len(packed)
    tvm_ffi.register_global_func("tests.gemm", kernel, override=True)
    arguments = [tensor_of(tvm_ffi, x) for x in case.arguments(call).values()]
    with tvm_ffi.use_raw_stream(tvm_ffi.device("cuda:0"), STREAM):
        cpp_call(tvm_ffi)("", "tests.gemm", *arguments)
    assert fake.launched == [(STREAM, packed)]
