"""What the documents claim is so: pages are up to date, links lead somewhere, kernels are right."""

import json
import re
import runpy
import shlex
from dataclasses import fields
from html import unescape
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import wsdsl
from wsdsl.cli import main
from wsdsl.config import KNOBS

ROOT = Path(__file__).parents[1]
PAGES = [
    p
    for folder in (
        ".",
        "docs",
        "examples",
        "docs/design/experiments",
        "benchmarks",
        "benchmarks/results",
    )
    for p in ROOT.glob(f"{folder}/*.md")
]


@pytest.mark.parametrize("name", ["ir", "rates"])
def test_page_is_what_its_tool_writes(name):
    page = runpy.run_path(str(ROOT / "tools" / f"{name}_docs.py"))["page"]()
    assert (ROOT / "docs" / f"{name}.md").read_text() == page, "run `make docs`"


def anchors_of(path: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in headings}


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(path):
    for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text()):
        if re.match(r"https?:", target):
            continue
        file, _, anchor = target.partition("#")
        there = path.parent / file if file else path
        assert there.exists(), target
        assert not anchor or anchor in anchors_of(there), target


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.name)
def test_whole_kernels_of_the_pages_are_right(path):
    for shown in re.findall(r"^```python\n(.*?)^```", path.read_text(), re.MULTILINE | re.DOTALL):
        for text in re.findall(r"^@kernel\n.*?\n(?=\S|\Z)(?!\))", shown, re.MULTILINE | re.DOTALL):
            wsdsl.parse(text, path.name)


def test_calls_that_the_readme_shows_run():
    """Of arrays with sizes that all differ."""
    bf16, f8 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn
    x, w, scale = np.ones((4, 64), bf16), np.ones((24, 64), bf16), np.ones(1, np.float32)
    given = {
        "wsdsl": wsdsl, "x": x, "w": w, "bias": x[0, :24], "residual": x[:, :24], "weight": x[0],
        "a_fp8": x.astype(f8), "b_fp8": w.astype(f8), "a_scale": scale, "b_scale": scale,
        "w4": wsdsl.kernels.quantized.quantize(w, "i4", group=32),
        "packed": wsdsl.kernels.lossless.pack(w),
    }  # fmt: skip
    shown = re.findall(r"^y = wsdsl\.kernels\..*$", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert len(shown) == 5
    for call in shown:
        exec(call, given)
        assert given["y"].shape == ((4, 64) if "rmsnorm" in call else (4, 24)), call


def test_schedules_page_has_every_field():
    text = (ROOT / "docs" / "schedules.md").read_text()
    for field in fields(wsdsl.Schedule):
        assert f"`{field.name}`" in text, field.name


def test_readme_shows_the_errors_that_there_are():
    text = (ROOT / "tests" / "samples" / "wrong.ws").read_text()
    with pytest.raises(wsdsl.TypeCheckError) as caught:
        wsdsl.parse(text, "linear.ws")
    assert f"TypeCheckError: {caught.value}\n" in (ROOT / "README.md").read_text()


def test_readme_draws_figure_that_it_shows(tmp_path, monkeypatch, capsys, import_optional):
    """Compare schedules: times change with the cost model."""
    import_optional("matplotlib")
    text = (ROOT / "README.md").read_text().replace("\\\n", " ")
    (command,) = re.findall(r"^wsdsl .* -o t.svg$", text, re.MULTILINE)
    monkeypatch.chdir(ROOT)
    assert main([*shlex.split(command)[1:-1], str(tmp_path / "t.svg"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["tiles_cut"] > 0
    shown = unescape((ROOT / "docs" / "timeline.svg").read_text())
    assert told["schedule"] in shown, f"draw it: {command}"


def test_readme_shows_the_timeline_that_there_is(tmp_path, monkeypatch, capsys):
    text = (ROOT / "README.md").read_text()
    (command,) = re.findall(r"^wsdsl timeline .* -o trace.json$", text, re.MULTILINE)
    (shown,) = re.findall(r"^  units busy: [^`]*", text, re.MULTILINE)
    monkeypatch.chdir(ROOT)
    assert main([*shlex.split(command)[1:-1], str(tmp_path / "trace.json")]) == 0
    assert shown in capsys.readouterr().out


def test_language_page_lists_the_knobs():
    text = (ROOT / "docs" / "language.md").read_text()
    rows = [f"| `{knob.variable}` | {knob.expected} | {knob.doc} |" for knob in KNOBS]
    assert re.findall(r"^\| `WSDSL_.*$", text, re.MULTILINE) == rows


def test_contributing_names_the_make_targets():
    makefile = (ROOT / "Makefile").read_text()
    commands = re.findall(r"`make (\w+)`", (ROOT / "CONTRIBUTING.md").read_text())
    assert commands
    for name in commands:
        assert re.search(rf"^{name}:", makefile, re.MULTILINE), name
