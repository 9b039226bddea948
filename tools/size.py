"""Print lines by package and bytes of tests/ versus tools/budget.toml; fail above the budget.

The files are the ones that git tracks or would add. Markdown, results, generated lists and the
tables that the package ships have no lines here. CONTRIBUTING.md limits changes of the budget.
"""

import re
import subprocess
import sys
import tomllib
from collections import Counter
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("wsdsl", "tools", "benchmarks", "tests")
DATA = ("*.md", "*/shipped/*", "*.tables.json", "benchmarks/results/*", "tools/prose_allowed.txt")
EXTENSIONS = {".c", ".cc", ".cpp", ".cu", ".cuh", ".cxx", ".h", ".hpp"}
EXEMPTION = re.compile(rb"# fmt: (?:off|skip)")


def main(root: Path = ROOT) -> int:
    figures, folders = measure(root)
    budget = tomllib.loads((root / "tools" / "budget.toml").read_text())
    errors: list[str] = []
    for unit, counts in figures.items():
        print(f"{unit:20}{'count':>12}{'budget':>12}")
        for name, count in counts.items():
            limit = budget[unit][name]
            print(f"{name:20}{count:12,}{limit:12,}")
            if count > limit:
                errors.append(f"{name} exceeds its budget of {unit} by {count - limit:,}")
    print("", "lines in wsdsl/", sep="\n")
    for folder, count in sorted(folders.items()):
        print(f"{folder:20}{count:12,}")
    print(*errors, sep="\n", file=sys.stderr, end="\n" if errors else "")
    return bool(errors)


def measure(root: Path) -> tuple[dict[str, dict[str, int]], Counter[str]]:
    """Count what the budget limits, by unit, and the lines of each folder of wsdsl/."""
    lines, folders, size, exemptions = Counter[str](), Counter[str](), 0, 0
    for path in files(root):
        content = (root / path).read_bytes()
        size += len(content) * path.startswith("tests/")
        package = package_of(path)
        if package is None or b"\0" in content:
            continue
        count = content.count(b"\n")
        lines[package] += count
        exemptions += len(EXEMPTION.findall(content))
        if package == "wsdsl":
            folder, below, _ = path.removeprefix("wsdsl/").partition("/")
            folders[folder if below else "(top level)"] += count
    ruff = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["ruff"]
    figures = {
        "lines": {package: lines[package] for package in (*PACKAGES, "extensions")},
        "bytes": {"tests": size},
        "format": {"line-length": ruff["line-length"], "exemptions": exemptions},
    }
    return figures, folders


def files(root: Path) -> list[str]:
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout
    return [path for path in {*listed.split("\0")} if (root / path).is_file()]


def package_of(path: str) -> str | None:
    """Return the package that the lines of a file count for; in tests/, only Python has lines."""
    if any(fnmatch(path, pattern) for pattern in DATA):
        return None
    if Path(path).suffix in EXTENSIONS:
        return "extensions"
    package = path.partition("/")[0]
    if package not in PACKAGES or (package == "tests" and not path.endswith(".py")):
        return None
    return package


if __name__ == "__main__":
    sys.exit(main())
