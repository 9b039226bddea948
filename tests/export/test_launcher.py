"""The C launcher plans and packs calls as Python does, in C and in C++."""

import shutil
import struct
import subprocess
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import wsdsl
from tests.export.calls import Case, call_lines, install_gpu
from tests.export.cases import CASES
from wsdsl.export.manifest import read
from wsdsl.export.tables import TYPES, launcher
from wsdsl.runtime import launcher as call_launcher
from wsdsl.runtime.arrays.views import ArrayView
from wsdsl.runtime.tensor_map_encoding import TiledMap

PROGRAM = Path(__file__).with_name("program.c")
SWIZZLES = ("NONE", "32B", "64B", "128B")


def build(folder: Path, name: str, to: Path, compiler: str = "gcc") -> Path:
    """Compile the program with the launcher of an export."""
    compile_as = ["-std=gnu99"] if compiler == "gcc" else ["-x", "c++"]
    flags = ["-Wall", "-Wextra", "-Werror", "-Wno-missing-field-initializers", "-O1", f"-I{folder}"]
    defined = [f"-DNAME={name}", f'-DHEADER="{name}.h"']
    objects = to / "launcher.o", to / "program.o"
    launcher = ["gcc", "-std=gnu99", *flags, "-c", folder / f"{name}.c", "-o", objects[0]]
    program = [compiler, *flags, *defined, "-c", *compile_as, PROGRAM, "-o", objects[1]]
    for command in (launcher, program, [compiler, *objects, "-ldl", "-o", to / "program"]):
        subprocess.run(command, check=True)
    return to / "program"


def encode(made: TiledMap) -> bytes:
    """The bytes that `encode` of the program writes."""
    dims, strides, box = (list(x) + [0] * 5 for x in (made.dims, made.strides, made.box))
    kinds = TYPES.index(made.data_type), len(made.dims), SWIZZLES.index(made.swizzle)
    promotion = {"NONE": 0, "L2_128B": 2}[made.promotion]
    words = made.address, *dims[:5], *strides[:4]
    return struct.pack("<10Q5I4B24x", *words, *box[:5], *kinds, promotion)


def planned(program: Path, case: Case, call: Any) -> list[str]:
    lines = call_lines(case.kernel, case.arguments(call))
    command = [program, "plan", "90", "132", "66"]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, check=False)
    return done.stdout.split() if done.returncode == 0 else [done.stdout]


@pytest.mark.parametrize(
    ("name", "compiler"), [*((name, "gcc") for name in CASES), ("gemm", "g++")]
)
def test_launcher_packs_as_python(name, compiler, folders, tmp_path, monkeypatch) -> None:
    install_gpu(monkeypatch.setattr)
    monkeypatch.setattr(call_launcher, "encode", encode)
    case, kernel = CASES[name], wsdsl.load_exported(folders[name])
    program = build(folders[name], kernel.name, tmp_path, compiler)
    for call in case.calls:
        made = kernel.prepare(**case.arguments(call), stream=1)
        signature, packed, at = made._signature, made._packed, 256
        lent = sorted(signature.lent, key=lambda tensor: not tensor.zeroed)
        needs = {need.name: need.bytes for need in getattr(made._lending, "_needs", ())}
        addresses = {}
        for tensor in lent:
            addresses[tensor.name] = at
            at += -(-needs[tensor.name] // 256) * 256
        packed = packed.with_pointers(addresses, None)
        shape = [made.grid, signature.threads, signature.smem_bytes, int(signature.waits), at]
        found = planned(program, case, call)
        assert found[1:6] == [str(x) for x in shape]
        assert found[7] == bytes(packed).hex()


def test_launcher_rejects_other_calls(folders, tmp_path) -> None:
    case = CASES["gemm"]
    program = build(folders["gemm"], "gemm", tmp_path)
    assert "not exported for these sizes" in planned(program, case, dict(M=9, N=512, K=512))[0]
    views = case.arguments(case.calls[0]) | case.arguments(dict(M=256, N=512, K=100))
    lines = call_lines(case.kernel, views | {"A": case.arguments(case.calls[0])["A"]})
    command = [program, "plan", "90", "132", "66"]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, check=False)
    assert done.returncode and done.stdout == "B: axis 1 has size 100, expected 512\n"


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (1e39, "s: 1e+39 does not fit f32"),
        (-1.0, "s: -1 is not positive; results would depend on tile sizes"),
    ],
)
def test_launcher_rejects_numbers(number, words, folders, tmp_path) -> None:
    case, manifest = CASES["scale"], read(folders["scale"])
    declared = manifest.form.declaration
    access = replace(declared.access, positive=("s",))
    form = replace(manifest.form, declaration=replace(declared, access=access))
    cubins = [("kernel_0.cubin", (folders["scale"] / "kernel_0.cubin").read_bytes())]
    sources = launcher(form, [manifest.artifact(0)], cubins, "")
    for name, source in sources.items():
        (tmp_path / name).write_text(source)
    program = build(tmp_path, "scale", tmp_path)
    assert planned(program, case._replace(scalars={"s": number}), case.calls[0]) == [words + "\n"]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (b'"wsdsl_export": 1', b'"wsdsl_export": 7', "has version 7; this launcher reads 1"),
        (b"bf16", b"f16", "damaged"),
    ],
)
def test_launcher_rejects_damaged_manifest(old, new, words, folders, tmp_path) -> None:
    program = build(folders["gemm"], "gemm", tmp_path)
    assert subprocess.run([program, "check", folders["gemm"]], check=False).returncode == 0
    copied = shutil.copytree(folders["gemm"], tmp_path / "copied")
    held = (copied / "manifest.json").read_bytes()
    (copied / "manifest.json").write_bytes(held.replace(old, new))
    command = [program, "check", copied]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode and words in done.stdout
    (copied / "manifest.json").write_bytes(held)
    (copied / "kernel_0.cubin").write_bytes(b"")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode and "kernel_0.cubin is damaged" in done.stdout


def test_launcher_names_versions_of_old_driver(folders, tmp_path) -> None:
    program = build(folders["gemm"], "gemm", tmp_path)
    calls = "cuInit", "cuDevicePrimaryCtxRetain", "cuCtxSetCurrent"
    lines = [f"int {call}() {{ return 0; }}" for call in calls]
    text = "\n".join(["int cuDriverGetVersion(int *v) { *v = 11080; return 0; }", *lines])
    command = ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", tmp_path / "libcuda.so.1"]
    subprocess.run(command, input=text, text=True, check=True)
    command = ["env", f"LD_LIBRARY_PATH={tmp_path}", program, "run", folders["gemm"]]
    done = subprocess.run(command, input="", capture_output=True, text=True, check=False)
    assert done.stdout == "the driver is for CUDA 11.8; gemm was exported for 12.3 or newer\n"


@pytest.mark.gpu
@pytest.mark.parametrize("compiler", ["gcc", "g++"])
@pytest.mark.parametrize("name", ["gemm", "split_k", "stream_k", "scale", "row_sum", "attention"])
def test_launcher_and_exported_kernel_give_same_bits(name, compiler, folders, tmp_path) -> None:
    case, call, random = CASES[name], CASES[name].calls[0], np.random.default_rng(0)
    program = build(folders[name], case.kernel.name, tmp_path, compiler)
    views, args = case.arguments(call), dict[str, Any]()
    for i, (param, x) in enumerate(views.items()):
        args[param] = x
        if isinstance(x, ArrayView):
            dtype = ml_dtypes.bfloat16 if x.dtype.name == "bf16" else np.float32
            args[param] = random.standard_normal(x.shape, np.float32).astype(dtype)
            args[param].tofile(tmp_path / f"{i}.bin")
    lines = call_lines(case.kernel, views)
    subprocess.run(
        [program, "run", folders[name]], input=lines, text=True, cwd=tmp_path, check=True
    )
    (output,) = case.kernel.access.writes
    outputs = [np.fromfile(tmp_path / f"{[*views].index(output)}.bin", np.uint8)]
    for run in partial(case.kernel, schedule=case.schedule), wsdsl.load_exported(folders[name]):
        run(**args)
        outputs.append(args[output].reshape(-1).view(np.uint8).copy())
    assert all((outputs[0] == x).all() for x in outputs[1:])
