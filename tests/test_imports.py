"""`import wsdsl` is quick, needs no GPU, and imports point down the layers."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
HEAVY = ["llvmlite", "lark", "numpy", "cuda", "torch", "cupy", "jax", "ml_dtypes"]


def python(code: str) -> str:
    command = [sys.executable, "-c", code]
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


def test_systems_without_forks_and_locks_of_files(tmp_path):
    code = """
import os, sys
for name in ("register_at_fork", "fork", "sched_getaffinity", "killpg", "getuid"):
    delattr(os, name)
sys.modules |= dict.fromkeys(("fcntl", "resource", "pwd", "grp", "termios"))
import numpy as np, wsdsl
text = "@kernel\\ndef k(X: f32[M], Y: f32[M]):\\n  for m in tiles(M):\\n    Y[m] = X[m] + X[m]"
k, x = wsdsl.parse(text).k, np.ones(9, np.float32)
assert all((way(x) == 2).all() for way in (k, k.simulate, k.reference))
assert wsdsl.background.num_cpus()
print(k.compile(M=9).ptx.count(".entry"))
"""
    assert python(f"import os; os.environ['WSDSL_CACHE_DIR'] = {str(tmp_path)!r}\n{code}") == "1"


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
