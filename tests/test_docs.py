"""What the documents claim is so: docs/ir.md is up to date, and links lead somewhere."""

import json
import re
import runpy
import shlex
from html import unescape
from pathlib import Path

import pytest

import wsdsl
from wsdsl.cli import main
from wsdsl.knobs import KNOBS

ROOT = Path(__file__).parents[1]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("examples/*.md")]


def test_ir_page_is_made_from_the_docstrings():
    page = runpy.run_path(str(ROOT / "tools" / "ir_docs.py"))["page"]()
    assert (ROOT / "docs" / "ir.md").read_text() == page, "run `make docs`"


def test_rates_page_is_made_from_the_rates():
    page = runpy.run_path(str(ROOT / "tools" / "rates_docs.py"))["page"]()
    assert (ROOT / "docs" / "rates.md").read_text() == page, "run `make docs`"


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(path):
    text = path.read_text()
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in headings}
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        file, _, anchor = target.partition("#")
        if re.match(r"https?:", target):
            continue
        assert not file or (path.parent / file).exists(), target
        assert file or anchor in anchors, target


def test_readme_begins_with_the_two_commands():
    lines = (ROOT / "README.md").read_text().splitlines()[:6]
    assert any("make demo" in line for line in lines)
    assert any("make test" in line for line in lines)


def test_readme_shows_the_errors_that_there_are():
    text = (ROOT / "tests" / "samples" / "wrong.ws").read_text()
    with pytest.raises(wsdsl.TypeCheckError) as caught:
        wsdsl.parse(text, "linear.ws")
    assert f"TypeCheckError: {caught.value}\n" in (ROOT / "README.md").read_text()


def test_readme_draws_the_picture_that_it_shows(tmp_path, monkeypatch, capsys):
    """Schedules are compared: times change with the model."""
    text = (ROOT / "README.md").read_text().replace("\\\n", " ")
    (command,) = re.findall(r"^wsdsl schedule .* -o t.svg$", text, re.MULTILINE)
    monkeypatch.chdir(ROOT)
    assert main([*shlex.split(command)[1:-1], str(tmp_path / "t.svg"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["tiles_cut"] > 0
    shown = unescape((ROOT / "docs" / "timeline.svg").read_text())
    assert f">{told['schedule']}<" in shown, f"draw it: {command}"


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
