"""Tests of tools/prose.py on a small repository, and of the history of its allow-list."""

import subprocess

import pytest

from tools import prose

BAD = "the odd word"
PLACES = {
    "docs/a.md": f"Text\nof {BAD}.\n",
    "examples/README.md": f"| a | b |\n|---|---|\n| {BAD} | c |\n",
    "README.md": "Wrapped: the\n  odd word.\n",
    "wsdsl/docstring.py": f'def f():\n    """Do.\n\n    Of {BAD}.\n    """\n',
    "wsdsl/field.py": f'x: int = 0\n"""{BAD}"""\n',
    "benchmarks/comment.py": "x = 0  # the\n       # odd word\n",
    "tools/string.py": f"x = ('{BAD}')\n",
    "tools/joined.py": "x = ('the ' 'odd word')\n",
    "examples/part.py": f"x = 0\ny = f'{{x}} of {BAD} {{x}}'\n",
    "tests/name.py": "def test_the_odd_word(): ...\n",
    "tests/start.py": "# Start.\n\n# Odd.\n",
}
CODE = {
    "docs/fenced.md": f"```\n{BAD}\n```\nand `{BAD}`, [link](the odd word)\n",
    "docs/indented.md": f"Code:\n\n    x\n\n    {BAD}\n\nText.\n",
    "wsdsl/name.py": "def the_odd_word(): ...\n",
    "wsdsl/data.py": f"x = '''\n{BAD}\n'''\ny = 'odd'\nz = f'{{x}}\\n{BAD}'\n",
    "wsdsl/docstring.py": f'"""Do `{BAD}`:\n\n    {BAD}\n"""\n',
    "wsdsl/hash.py": "x = '# odd'\n",
    "tests/data.md": BAD,
}


@pytest.fixture
def repository(tmp_path):
    def write(files, allowed=""):
        words = "# Head\nthe odd word\ta usual word\n^odd\\b\teven\n"
        tables = {prose.WORDS: words, prose.ALLOWED: allowed}
        for path, text in (files | tables).items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text)
        subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
        return tmp_path

    return write


@pytest.mark.parametrize("path", PLACES)
def test_prose_fails_in(repository, capsys, path):
    assert prose.main([], repository({path: PLACES[path]})) == 1
    finding, total = capsys.readouterr().out.splitlines()
    line = 1 + next(i for i, line in enumerate(PLACES[path].lower().split("\n")) if "odd" in line)
    assert finding.startswith(f"{path}:{line}: ") and " -> " in finding
    assert total == f"{path} has 1 findings; 0 are allowed"


@pytest.mark.parametrize("path", CODE)
def test_prose_ignores_code(repository, path):
    assert prose.main([], repository({path: CODE[path]})) == 0


def test_update_only_lowers_counts(repository, capsys):
    more, new = "tests/name.py", "docs/new.md"
    texts = {"docs/a.md": PLACES["docs/a.md"], more: PLACES[more] * 2, new: BAD}
    root = repository(texts, f"2 docs/a.md\n1 docs/old.md\n1 {more}\n")
    assert prose.main([], root) == 1
    assert "docs/a.md has 1 findings, not 2: run" in capsys.readouterr().out
    assert prose.main(["--moved", "docs/old.md", new], root) == 1
    assert (root / prose.ALLOWED).read_text() == f"1 docs/a.md\n1 {new}\n1 {more}\n"
    assert f"{more} has 2 findings; 1 are allowed" in capsys.readouterr().out
    (root / more).write_text("")
    assert prose.main(["--update"], root) == prose.main([], root) == 0


def test_counts_are_not_above_the_previous_commit():
    def git(*arguments):
        done = subprocess.run(
            ["git", *arguments], cwd=prose.ROOT, capture_output=True, text=True, check=False
        )
        return done.stdout if done.returncode == 0 else pytest.skip(done.stderr.strip())

    try:
        before = prose.read_allowed(git("show", f"HEAD~1:{prose.ALLOWED}"))
    except FileNotFoundError:
        pytest.skip("git is absent")
    moves = git("diff", "--name-status", "--find-renames", "--diff-filter=R", "HEAD~1")
    old = {new: old for _, old, new in (line.split("\t") for line in moves.splitlines())}
    after = prose.read_allowed((prose.ROOT / prose.ALLOWED).read_text())
    assert not {p: n for p, n in after.items() if n > before.get(old.get(p, p), 0)}


@pytest.mark.parametrize(
    ("subject", "error"),
    [
        ("docs, tests: add " + "x" * 55, ""),
        ("Merge branch 'the odd word'", ""),
        ("docs: add " + "x" * 63, "subject has 73 characters; 72 are allowed\n"),
        ("Add a word", "subject is not `area: change`\n"),
        ("docs: add the odd word", "subject:1: the odd word -> a usual word\n"),
    ],
)
def test_subject_of_a_commit(repository, capsys, subject, error):
    root = repository({"message": f"# {BAD}\n{subject}\n\n{BAD}\n"})
    assert prose.main(["--subject", str(root / "message")], root) == bool(error)
    assert capsys.readouterr().out == error
