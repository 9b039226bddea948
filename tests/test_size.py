"""Tests of tools/size.py on a small repository."""

import re
import subprocess

import pytest

from tools import size

FILES = {
    "wsdsl/a.py": "1\n2\n3\n",
    "wsdsl/ir/b.lark": "1\n2\n",
    "wsdsl/ir/b.tables.json": "1\n",
    "wsdsl/ir/c.cu": "1\n",
    "wsdsl/rates/shipped/d.csv": "1\n",
    "tests/e.py": "# fmt: {}\n".format("skip"),
    "tests/f.ir": "1\n2\n",
    "tests/g.cubin": "1\n",
    "tools/budget.toml": """
lines = { wsdsl = 5, tools = 4, benchmarks = 0, tests = 1, extensions = 1 }
bytes = { tests = 16 }
format = { line-length = 100, exemptions = 1 }
""",
    "benchmarks/results/h.json": "1\n",
    "pyproject.toml": "[tool.ruff]\nline-length = 100\n",
    ".gitignore": "*.cubin\n",
}


@pytest.fixture
def repository(tmp_path):
    for path, text in FILES.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    return tmp_path


def test_size_passes_when_counts_equal_the_budget(repository, capsys):
    assert size.main(repository) == 0
    printed = [tuple(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert {("wsdsl", "5", "5"), ("tests", "16", "16"), ("(top", "level)", "3"), ("ir", "2")} <= {
        *printed
    }


@pytest.mark.parametrize(
    ("path", "text", "error"),
    [
        ("wsdsl/a.py", "1\n2\n3\n4\n5\n", "wsdsl exceeds its budget of lines by 2\n"),
        ("csrc/new.cpp", "1\n", "extensions exceeds its budget of lines by 1\n"),
        ("tests/f.ir", "1\n2\n3\n", "tests exceeds its budget of bytes by 2\n"),
        ("pyproject.toml", "[tool.ruff]\nline-length = 120\n", "line-length exceeds .* by 20\n"),
    ],
    ids=["lines", "extensions", "bytes", "line_length"],
)
def test_size_fails_when_a_count_exceeds_the_budget(repository, capsys, path, text, error):
    (repository / path).parent.mkdir(exist_ok=True)
    (repository / path).write_text(text)
    assert size.main(repository) == 1
    assert re.fullmatch(error, capsys.readouterr().err)
