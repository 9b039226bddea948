"""What the documents claim is so: pages are up to date, links lead somewhere, kernels are right."""

import json
import re
import runpy
import shlex
from dataclasses import fields
from html import unescape
from pathlib import Path

import pytest

import wsdsl
from benchmarks import speed_chart
from wsdsl.cli import main
from wsdsl.config import OPTIONS, override
from wsdsl.runtime.device import gpu_available

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
FOLDERS = (".", "docs", "examples", "docs/design/experiments", "benchmarks", "benchmarks/results")
PAGES = [page for folder in FOLDERS for page in ROOT.glob(f"{folder}/*.md")]


@pytest.mark.parametrize("name", ["ir", "rates"])
def test_page_is_what_its_tool_writes(name):
    page = runpy.run_path(str(ROOT / "tools" / f"{name}_docs.py"))["page"]()
    assert (DOCS / f"{name}.md").read_text() == page, "run `make docs`"


def anchors_of(path: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in headings}


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(path):
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", path.read_text()):
        file, _, anchor = target.partition("#")
        there = path.parent / file if file else path
        assert there.exists(), target
        assert not anchor or anchor in anchors_of(there), target


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.name)
def test_whole_kernels_of_the_pages_are_right(path):
    for shown in re.findall(r"^```python\n(.*?)^```", path.read_text(), re.MULTILINE | re.DOTALL):
        for text in re.findall(r"^@kernel\n.*?\n(?=\S|\Z)(?!\))", shown, re.MULTILINE | re.DOTALL):
            wsdsl.parse(text, path.name)


def test_readme_blocks_print_the_output_shown(tmp_path, monkeypatch, capsys):
    text = (ROOT / "README.md").read_text()
    blocks = re.findall(r"(?ms)^```(\w*)\n(.*?)^```$", text)
    wrong = next(block for language, block in blocks if language == "python")
    for mistake, right in re.findall(r"`([^`]+)` in place of `([^`]+)`", text):
        wrong = wrong.replace(right, mistake)
    monkeypatch.chdir(tmp_path)
    Path("linear.py").write_text(wrong)
    Path("examples").symlink_to(ROOT / "examples")
    output, names, gpu = "", {}, gpu_available()
    for i, (language, block) in enumerate(blocks):
        if language == "text":
            assert block == output
        elif language == "python":
            Path(f"{i}.py").write_text(block)
            with override(backend="simulator"):
                exec(compile(block, f"{i}.py", "exec"), names)
        else:
            assert language == "sh"
            for line in block.splitlines():
                program, command, *options = shlex.split(line, comments=True)
                if program == "make":
                    assert f"\n{command}:" in (ROOT / "Makefile").read_text()
                elif line != "pip install ." and not (gpu and command == "tune"):
                    fails = options == ["linear.py"] or (command in ("doctor", "tune") and not gpu)
                    assert program == "wsdsl" and bool(main([command, *options])) == fails, line
        output = "".join(capsys.readouterr()).replace(f"{tmp_path}/", "")


def test_readme_chart_shows_figures_of_results(tmp_path, import_optional):
    import_optional("matplotlib")
    ratios = speed_chart.families(speed_chart.FIGURES.read_text())
    speed_chart.draw(ratios, tmp_path / "speed.svg")
    drawn, shown = (re.findall(r">(.+)<", (p / "speed.svg").read_text()) for p in (tmp_path, DOCS))
    assert drawn == shown and len(ratios) == len(speed_chart.NAMES)


def test_schedules_page_has_every_field():
    text = (DOCS / "schedules.md").read_text()
    for field in fields(wsdsl.Schedule):
        assert f"`{field.name}`" in text, field.name


def test_schedules_page_draws_figure_that_it_shows(tmp_path, monkeypatch, capsys, import_optional):
    """Compare schedules: times change with the cost model."""
    import_optional("matplotlib")
    text = (DOCS / "schedules.md").read_text().replace("\\\n", " ")
    (command,) = re.findall(r"^wsdsl .* -o t.svg$", text, re.MULTILINE)
    monkeypatch.chdir(ROOT)
    assert main([*shlex.split(command)[1:-1], str(tmp_path / "t.svg"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["tiles_cut"] > 0
    shown = unescape((DOCS / "timeline.svg").read_text())
    assert told["schedule"] in shown, f"draw it: {command}"


def test_performance_page_shows_predicted_timeline(tmp_path, monkeypatch, capsys):
    text = (DOCS / "performance.md").read_text()
    (command,) = re.findall(r"^wsdsl timeline .* -o trace.json$", text, re.MULTILINE)
    (shown,) = re.findall(r"^  bottleneck of the kernel: [^`]*", text, re.MULTILINE)
    monkeypatch.chdir(ROOT)
    assert main([*shlex.split(command)[1:-1], str(tmp_path / "trace.json")]) == 0
    assert shown in capsys.readouterr().out


def test_language_page_lists_the_options():
    text = (DOCS / "language.md").read_text()
    rows = [f"| `{option.variable}` | {option.expected} | {option.doc} |" for option in OPTIONS]
    assert re.findall(r"^\| `WSDSL_.*$", text, re.MULTILINE) == rows


def test_contributing_names_the_make_targets():
    targets = re.findall(r"(?m)^([\w-]+):", (ROOT / "Makefile").read_text())
    commands = re.findall(r"`make ([\w-]+)`", (ROOT / "CONTRIBUTING.md").read_text())
    assert commands and {*commands} <= {*targets}
