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
