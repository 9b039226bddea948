"""Wheel and sdist: their files, their requirements on each platform, and fresh installations.

These tests need a package registry: `make test-packages` runs them.
"""

import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from shutil import copy
from typing import Any, NamedTuple

import pytest

from tests.export.calls import install_gpu, prepared_call
from tests.export.cases import CASES
from tools.size import files

pytestmark = pytest.mark.registry
ROOT = Path(__file__).parents[2]
PIP = """
import json, sys
from pip._vendor.packaging import markers
own, given = markers.default_environment, json.loads(sys.argv.pop(1))
markers.default_environment = lambda: own() | given
from pip._internal.cli.main import main
sys.exit(main())
"""
"""`pip --platform` chooses wheels; without this it evaluates markers for the machine it runs on."""
DARWIN = dict(sys_platform="darwin", platform_system="Darwin", platform_machine="arm64")
WINDOWS = dict(sys_platform="win32", platform_system="Windows", os_name="nt")
LINUX = [f"manylinux_2_{minor}" for minor in range(28, 4, -1)] + ["manylinux2014"]
PLATFORMS: dict[str, tuple[list[str], dict[str, str]]] = {
    "x86_64": ([f"{tag}_x86_64" for tag in LINUX], dict(platform_machine="x86_64")),
    "aarch64": ([f"{tag}_aarch64" for tag in LINUX], dict(platform_machine="aarch64")),
    "macos": (["macosx_12_0_arm64"], DARWIN),
    "windows": (["win_amd64"], WINDOWS | dict(platform_machine="AMD64")),
}
"""Tags of wheels, and markers that differ from Linux."""


def run(*command: str | Path, cwd: Path | None = None) -> str:
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=env, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def environment(folder: Path, *packages: str | Path) -> Path:
    """The Python of a new virtual environment."""
    python = folder / "bin" / "python"
    run(sys.executable, ROOT / "tools" / "make_venv.py", folder)
    run(python, "-m", "pip", "install", "-q", *packages)
    return python


class Built(NamedTuple):
    python: Path
    tree: Path
    sdist: Path
    wheel: Path
    wheel_of_sdist: Path


@pytest.fixture(scope="session")
def built(tmp_path_factory) -> Built:
    """Distributions of a copy of the files that git has or would add, and the Python with pip."""
    folder = tmp_path_factory.mktemp("distributions")
    try:
        python = environment(folder / "venv", "pip>=26", "build")
    except AssertionError as error:
        pytest.skip(f"no package registry: {error}")
    for path in files(ROOT):
        (folder / "tree" / path).parent.mkdir(parents=True, exist_ok=True)
        copy(ROOT / path, folder / "tree" / path)
    run(python, "-m", "build", "-o", folder / "both", folder / "tree")
    run(python, "-m", "build", "-o", folder / "wheel", "--wheel", folder / "tree")
    (sdist,), (wheel,) = (folder / "both").glob("*.gz"), (folder / "wheel").glob("*")
    return Built(python, folder / "tree", sdist, wheel, folder / "both" / wheel.name)


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as file:
        return {name: file.read(name) for name in file.namelist()}


def test_wheel_has_all_files_and_is_pure(built) -> None:
    held = contents(built.wheel)
    assert built.wheel.name.endswith("-py3-none-any.whl")
    package = {p for p in files(ROOT) if p.startswith("wsdsl/")}
    assert {name for name in held if ".dist-info/" not in name} == package
    assert {".lark", ".c", ".h", ".json", ".csv"} < {Path(name).suffix for name in held}
    assert "wsdsl/py.typed" in held


def test_sdist_builds_the_same_wheel(built) -> None:
    assert contents(built.wheel_of_sdist) == contents(built.wheel)
    with tarfile.open(built.sdist) as file:
        names = {name.partition("/")[2] for name in file.getnames()}
    assert {"Makefile", "pyproject.toml", "tests/conftest.py", "docs/export.md"} < names


def resolved(built: Built, platform: str, python: str, *packages: str | Path) -> dict[str, str]:
    """Versions by name that pip would install; it reads the wheels' metadata alone."""
    tags, markers = PLATFORMS[platform]
    markers = markers | dict(python_version=python, python_full_version=f"{python}.0")
    options = ["install", "-q", "--dry-run", "--ignore-installed", "--only-binary=:all:"]
    options += ["--use-feature=fast-deps", "--python-version", python, "--report", "-"]
    options += ["--target", str(built.tree / "none"), *(f"--platform={tag}" for tag in tags)]
    told = run(built.python, "-c", PIP, json.dumps(markers), *options, *packages)
    found: Any = json.loads(told)["install"]
    return {x["metadata"]["name"].lower(): x["metadata"]["version"] for x in found}


@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13", "3.14"])
@pytest.mark.parametrize("platform", PLATFORMS)
def test_requirements_resolve(platform, python, built) -> None:
    found = resolved(built, platform, python, built.wheel)
    assert {"wsdsl", "lark", "llvmlite", "ml_dtypes", "numpy"} <= found.keys()
    of_cuda = {"cuda-bindings", "nvidia-cuda-nvcc", "nvidia-cuda-nvdisasm"} & found.keys()
    assert len(of_cuda) == (3 if platform in ("x86_64", "aarch64") else 0)


@pytest.mark.parametrize("platform", ["x86_64", "aarch64"])
def test_torch_installs_the_same_nvidia_wheels(platform, built) -> None:
    alone = resolved(built, platform, "3.12", "torch")
    both = resolved(built, platform, "3.12", built.wheel, "torch")
    assert alone.items() <= both.items()
    added = {name for name in both.keys() - alone.keys() if name.startswith(("nvidia", "cuda"))}
    assert added <= {f"nvidia-{x}" for x in ("cuda-nvcc", "cuda-nvdisasm", "cuda-crt", "nvvm")}
    assert {both[name].partition(".")[0] for name in (*added, "nvidia-cuda-runtime")} == {"13"}


def test_fresh_environment_compiles(built, tmp_path) -> None:
    python = environment(tmp_path, built.wheel)
    wsdsl, gemm = python.with_name("wsdsl"), str(ROOT / "examples" / "02_gemm.py")
    sizes = "--size", "M=64", "N=64", "K=64"
    assert "ptxas_version: 13" in run(wsdsl, "compile", gemm, *sizes, cwd=tmp_path)
    assert "relative error" in run(python, gemm, cwd=tmp_path)


def test_fresh_environment_without_compiler(built, folders, tmp_path, monkeypatch) -> None:
    """The runtime-only installation of docs/export.md."""
    python = environment(tmp_path, "numpy", "ml_dtypes", "cuda-bindings>=12.9,<14")
    run(python, "-m", "pip", "install", "-q", "--no-deps", built.wheel)
    code = """
import json, sys, wsdsl
assert wsdsl.__file__.startswith(sys.prefix)
kernel = wsdsl.load_exported(sys.argv[1])
sys.path.append(sys.argv[3])
from tests.export.calls import prepared_call, install_gpu, Case
install_gpu()
call = prepared_call(kernel, Case(kernel, {}, ()), json.loads(sys.argv[2]))
try:
    wsdsl.parse("@kernel\\ndef k(X: f32[M], Y: f32[M]):\\n  for m in tiles(M):\\n    Y[m] = X[m]")
except wsdsl.CompileError as error:
    print(json.dumps([call, str(error)]))
"""
    arguments = str(folders["gemm"]), json.dumps(CASES["gemm"].calls[0]), str(ROOT)
    prepared, message = json.loads(run(python, "-c", code, *arguments, cwd=tmp_path))
    install_gpu(monkeypatch.setattr)
    own = prepared_call(CASES["gemm"].kernel, CASES["gemm"], CASES["gemm"].calls[0])
    assert tuple(prepared) == own
    assert "WS0031" in message and "pip install lark llvmlite" in message
