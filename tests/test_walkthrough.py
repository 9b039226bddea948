"""The files by which CONTRIBUTING.md adds an op are all that an op needs."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

ROOT = Path(__file__).parents[1]
FILE = re.compile(r"   ```python\n   # (wsdsl/\S+)\n(.*?)   ```\n", re.DOTALL)
PROGRAM = """
import sys, ml_dtypes, numpy as np, wsdsl
compiled = wsdsl.compile_ir(sys.stdin.read())
a, c = np.ones((128, 64), ml_dtypes.bfloat16), np.zeros((128, 128), ml_dtypes.bfloat16)
compiled.simulate(a, a, c)
assert (c == 64).all() and compiled.prove().proved
print(wsdsl.__file__, compiled.ptx.count("nanosleep.u32 20;"))
"""


def test_op_is_added_by_one_file_per_package(tmp_path: Path) -> None:
    files = dict(FILE.findall((ROOT / "CONTRIBUTING.md").read_text()))
    assert [Path(name).parts[1] for name in files] == ["ir", "codegen", "simulator", "prover"]
    shutil.copytree(ROOT / "wsdsl", tmp_path / "wsdsl", ignore=shutil.ignore_patterns("*.pyc"))
    for name, text in files.items():
        (tmp_path / name).write_text(dedent(text))
    kernel = (ROOT / "tests" / "samples" / "gemm.scheduled.ir").read_text()
    changed = kernel.replace("  sync_cta()\n", "  sync_cta()\n  nanosleep(duration=20)\n")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], input=changed, capture_output=True, text=True,
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(tmp_path)}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    package, count = done.stdout.split()
    assert Path(package).is_relative_to(tmp_path) and int(count) == 1
