"""`import wsdsl` is quick, needs no GPU, and imports point down the layers."""

import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HEAVY = ["llvmlite", "lark", "numpy", "cuda", "torch", "cupy", "jax", "ml_dtypes"]


def python(code: str, *args: str, options: Iterable[str] = ()) -> str:
    command = [sys.executable, *options, "-c", code, *args]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_import_loads_no_driver_and_no_compiler():
    loaded = python("import sys, wsdsl; print(*sys.modules)").split()
    assert not set(HEAVY) & {name.split(".")[0] for name in loaded}


def test_import_is_quick():
    # Time of the processor, which other programs on the machine take no part in.
    code = "import time; t = time.process_time(); import wsdsl; print(time.process_time() - t)"
    assert min(float(python(code)) for _ in range(5)) < 0.25


def test_public_names_exist():
    assert python("import wsdsl; [getattr(wsdsl, n) for n in wsdsl.__all__]; print('ok')") == "ok"


@pytest.mark.parametrize("platform", ["win32", "darwin"])
def test_compile_and_simulate_on_other_platforms(platform, tmp_path):
    """Neither Linux' modules, functions and programs, nor UTF-8 as the default encoding."""
    code = """
import ctypes, importlib.metadata, llvmlite.binding, mmap, ml_dtypes, os, signal, subprocess, sys
import lark, numpy as np
sys.platform, tmp = sys.argv[1:]
os.environ |= dict(WSDSL_CACHE_DIR=tmp, WSDSL_PTXAS="off")
missing = {os: "register_at_fork fork sched_getaffinity killpg getuid uname waitpid O_CLOEXEC",
           mmap: "PROT_READ PROT_WRITE PROT_EXEC MAP_SHARED MAP_PRIVATE", signal: "alarm SIGALRM"}
for module, names in missing.items():
    for name in names.split():
        delattr(module, name)
def unavailable(*args, **options):
    raise FileNotFoundError
ctypes.CDLL = subprocess.Popen = subprocess.run = subprocess.check_output = unavailable
sys.modules |= dict.fromkeys(("fcntl", "resource", "pwd", "grp", "termios"))
import wsdsl
k, x = wsdsl.load(tmp + "/k.py").k, np.ones(9, np.float32)
assert all((way(x) == 2).all() for way in (k, k.simulate, k.reference))
assert wsdsl.background.num_cpus() and k.explain(M=9)
compiled = k.compile(M=9)
assert str(compiled.prove()).startswith("k: proved")
print(compiled.ptx.count(".entry"))
"""
    text = "@kernel\ndef k(X: f32[M], Y: f32[M]):  # 2 × X\n    for m in tiles(M):\n"
    (tmp_path / "k.py").write_text(f"{text}        Y[m] = X[m] + X[m]\n", encoding="utf-8")
    options = "-X", "warn_default_encoding", "-W", "error::EncodingWarning"
    assert python(code, platform, str(tmp_path), options=options) == "1"


def test_public_names_are_listed():
    """And nothing is imported for the list."""
    code = """import sys, wsdsl, wsdsl.kernels
for module in wsdsl, wsdsl.kernels:
    assert {*module.__all__} <= {*dir(module)}, module
print(*sys.modules)
assert all(hasattr(module, n) for module in (wsdsl, wsdsl.kernels) for n in dir(module))"""
    loaded = python(code).split()
    assert not set(HEAVY) & {name.split(".")[0] for name in loaded}
    assert not [name for name in loaded if name.startswith("wsdsl.kernels.rows")]


def test_layers():
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stdout


def test_imports_have_no_cycle():
    """Imports in functions and for TYPE_CHECKING count."""
    import grimp  # of import-linter

    graph = grimp.build_graph("wsdsl", cache_dir=None)
    imports = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    TopologicalSorter(imports).prepare()


def test_files_are_found_by_name():
    """Outside of lowering a name is used once, or by the files of a family; folders are small."""
    files = [p.relative_to(ROOT) for p in (ROOT / "wsdsl").rglob("*.py") if p.name != "__init__.py"]
    files = [path for path in files if path.parts[1] != "lowering"]
    names = Counter(path.name for path in files if path.parts[2:3] != ("ops",))
    assert [name for name, count in names.items() if count > 1] == []
    assert max(Counter(path.parent for path in files).values()) <= 25
