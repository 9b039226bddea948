"""The corpus covers what it says, and the tool that compares two checkouts sees what differs."""

import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, fields
from pathlib import Path
from typing import get_args

import pytest

from tests.corpus import Entry, corpus, forms
from tests.corpus.compile_text import lowered, ptx_of
from tests.corpus.entries import outcome_families
from tests.corpus.named import NAMED
from tests.corpus.worker import outcome, schedule_of
from tests.kernels import CASES
from tools import compare_ptx
from tools.compare_ptx import ROOT, Outcome, compile_all, report, verdict
from tools.ptx_diff import difference, summary
from wsdsl import CompileError, Schedule
from wsdsl.lowering.pipeline import PASSES
from wsdsl.schedule import Mode, Reduction, Scheduler

PRODUCT_TYPES = ("bf16", "f16", "tf32", "f8e4m3", "f8e5m2", "i8", "u8")


def written(pattern: str) -> Callable[[Entry], bool]:
    return lambda entry: re.search(pattern, entry.text) is not None


def scheduled(field: str, *values: object) -> Callable[[Entry], bool]:
    return lambda e: field in e.schedule and (not values or e.schedule[field] in values)


FEATURES: dict[str, Callable[[Entry], bool]] = {
    **{f"a product of {t}": written(rf": {t}\[[^@]*@") for t in PRODUCT_TYPES},
    "an operand whose rows are not along K": written(r"@ \w+\[k, n\]|\[k, m\] @"),
    "a batch": written(r"each\((G|B|H)"),
    "weights by expert": written(r"expert\[g\]"),
    "rows in groups": written(r"offset\[g \+ 1\]"),
    "scales": written(r"scale"),
    "scales of blocks": written(r"index\(k\) // 128"),
    "a bias": written(r"bias\["),
    "gelu": written(r"gelu\("),
    "a residual": written(r"residual\["),
    "a result that is added": written(r"\] \+="),
    "two products": written(r"@[\s\S]*@"),
    "no product": lambda e: "@" not in e.text.replace("@kernel", "").replace("@function", ""),
    "a choice": written(r"\n +if "),
    "rows that are scattered": written(r"C\[rows\[m\], n\]"),
    "rows that are gathered": written(r"which\[m\]"),
    "in place": lambda e: e.name.startswith("in_place/"),
    "attention": written(r"def attention"),
    "decoded weights": written(r"cast\(W\[n, k\], bf16\)"),
    "weights of 4 bits": written(r"W: u4\["),
    "small types that are stored": written(r"Y: f4e2m1\["),
    "copies by threads": lambda e: e.threads != "none",
    "copies in front of the launch": lambda e: bool(e.padded),
    "no sizes": lambda e: not e.sizes,
    "the compiler's own schedule": lambda e: not e.schedule,
    **{f"Schedule.{f.name}": scheduled(f.name) for f in fields(Schedule)},
    **{f"mode {x}": scheduled("mode", x) for x in get_args(Mode)},
    **{f"reduction {x}": scheduled("reduction", x) for x in get_args(Reduction)},
    **{f"scheduler {x}": scheduled("scheduler", x) for x in get_args(Scheduler) if x != "auto"},
    "a cluster along the contraction": lambda e: "k" in e.schedule.get("cluster", ()),
    "a cluster of eight": lambda e: sorted(e.schedule.get("cluster", {}).values()) == [2, 4],
}


def test_entries_are_many_and_have_every_feature() -> None:
    entries = corpus()
    assert len(entries) >= 400
    assert max(Counter(entry.name for entry in entries).values()) == 1
    assert len({entry.content for entry in entries}) == len(entries)
    assert [name for name, has in FEATURES.items() if sum(map(has, entries)) < 3] == []


def test_passes_change_their_named_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert sorted(NAMED) == sorted(step.__name__ for step, _ in PASSES)
    entries, unchanged = {entry.name: entry for entry in corpus()}, set(NAMED)
    for name in dict.fromkeys(NAMED.values()):
        e, folder = entries[name], tmp_path / name
        monkeypatch.setenv("WSDSL_DUMP", str(folder))
        given = e.text, schedule_of(e.schedule), e.sizes, e.threads, e.padded, e.packed
        if e.rejected:
            with pytest.raises(CompileError, match=re.escape(e.rejected)) as caught:
                lowered(*given)
            changed = {frame.name for frame in caught.traceback}
        else:
            plan = lowered(*given).plan
            changed = {path.name.split(".")[-2] for path in folder.glob("*.ir")}
            changed |= {"make_plan"} if plan else set()
        unchanged -= {step for step in changed if NAMED.get(step) == name}
    assert unchanged == set()


def test_entries_have_expected_outcome(each: Callable[[int], int]) -> None:
    entries = [entry for family in outcome_families() for entry in family.entries()]
    wrong: list[tuple[str, str]] = []
    for i, entry in enumerate(entries):
        if entry.rejected or i % each(8) == 0:
            found = outcome(asdict(entry), ptx_of)
            is_expected = found["kind"] == ("refused" if entry.rejected else "ptx")
            if not is_expected or entry.rejected not in found["text"]:
                wrong.append((entry.name, found["text"][:200]))
    assert wrong == []


def test_a_seeded_difference_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In the other checkout the barriers of empty slots are told otherwise."""
    shutil.copytree(ROOT / "wsdsl", tmp_path / "wsdsl", ignore=shutil.ignore_patterns("*.pyc"))
    changed = 0
    for path in (tmp_path / "wsdsl" / "codegen").rglob("*.py"):
        text = path.read_text()
        other = text.replace("mbarrier.init", "mbarrier.changed")
        changed += text != other
        path.write_text(other)
    assert changed == 1
    names = ("cases/gemm", "cases/broadcast", "refused")
    entries = [*forms.entries(), Entry("refused", CASES["gemm"].text, schedule={"stages": 33})]
    chosen = [asdict(entry) for entry in entries if entry.name in names]
    base, head = compile_all([tmp_path, ROOT], chosen, 1)
    found = [verdict(base[name], head[name]) for name in names]
    assert found == ["differs", "identical", "refused alike"]
    assert not report(base, head)
    assert "mbarrier.changed" in capsys.readouterr().out
    assert report(base, head, ["cases/*"])


def test_sample_contains_named_entries() -> None:
    entries = [{"name": str(i), "named": i % 3 == 0} for i in range(9)]
    for count, expected in ((1, 3), (5, 5), (None, 9)):
        found = compare_ptx.sample(entries, count)
        assert sum(entry["named"] for entry in found) == 3 and len(found) == expected


def test_previous_is_commit_on_main_before_head(tmp_path: Path) -> None:
    def git(folder: str, *arguments: str) -> str:
        author = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always")
        command = ("git", *author, "-C", str(tmp_path / folder), *arguments)
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    git(".", "init", "-q", "-b", "main", "whole")
    commits: list[str] = []
    for branch in ("main", "main", "topic"):
        git("whole", "checkout", "-q", "-B", branch)
        git("whole", "commit", "-q", "--allow-empty", "-m", branch)
        commits.append(git("whole", "rev-parse", "HEAD"))
        expected = commits[-2] if len(commits) > 1 else ""
        assert compare_ptx.previous(tmp_path / "whole") == expected
    git("whole", "checkout", "-q", "--detach", "main")
    assert compare_ptx.previous(tmp_path / "whole") == commits[0]
    git(".", "clone", "-q", "--depth", "1", f"file://{tmp_path}/whole", "shallow")
    assert compare_ptx.previous(tmp_path / "shallow") == ""


def test_allowed_lines_of_the_base_do_not_count(tmp_path: Path) -> None:
    head, base = tmp_path / "head", tmp_path / "base"
    base.write_text("# comment\ncases/* # an earlier change\n")
    head.write_text(f"{base.read_text()}words/* # this change\n")
    assert compare_ptx.read_allowed(head, base) == ["words/*"]
    assert compare_ptx.read_allowed(head) == ["cases/*", "words/*"]


PTX = """
	.reg .b32 	%r<12>;
	add.s32 	%r3, %r1, %r1;
	@%p1 bra 	$L__BB0_2;
	mov.u32 	%r4, %tid.x;
$L__BB0_2:
	st.shared.b32 	[%r3+16], %r4;
"""
RENAMED = PTX.replace("%r3", "%r9").replace("BB0_2", "BB0_7").replace("<12>", "<13>")


@pytest.mark.parametrize(
    ("base", "head", "expected"),
    [
        (Outcome("ptx", PTX), Outcome("ptx", PTX), "identical"),
        (Outcome("ptx", PTX), Outcome("ptx", RENAMED), "identical up to names"),
        (Outcome("ptx", PTX), Outcome("ptx", PTX.replace("+16", "+32")), "differs"),
        (Outcome("ptx", PTX), Outcome("ptx", PTX.replace("%r1, %r1", "%r1, %r3")), "differs"),
        (Outcome("ptx", PTX), Outcome("ptx", PTX.replace("%tid.x", "%tid.y")), "differs"),
        (Outcome("ptx", PTX), Outcome("refused", "no"), "refused now"),
        (Outcome("refused", "no"), Outcome("ptx", PTX), "refused before"),
        (Outcome("refused", "no"), Outcome("refused", "no"), "refused alike"),
        (Outcome("refused", "no"), Outcome("refused", "never"), "refused otherwise"),
        (Outcome("crashed", "x"), Outcome("crashed", "x"), "crashes"),
        (Outcome("crashed", "x"), Outcome("ptx", PTX), "crashed before"),
    ],
)
def test_verdicts(base: Outcome, head: Outcome, expected: str) -> None:
    assert verdict(base, head) == expected


def test_a_crash_is_never_allowed() -> None:
    crashed = {"a": Outcome("crashed", "AssertionError: x")}
    assert not report(crashed, crashed, ["*"])


def test_report_accepts_verdicts() -> None:
    base, head = {"a": Outcome("refused", "no")}, {"a": Outcome("refused", "never")}
    assert not report(base, head)
    assert report(base, head, accepted=["refused otherwise"])


def test_a_difference_is_told_by_opcodes() -> None:
    assert summary(PTX, PTX.replace("add.s32", "sub.s32")) == "add.s32 -1, sub.s32 +1"
    assert "st.shared.b32" in summary(PTX, PTX.replace("+16", "+32"))
    assert "+\tst.shared.b32" in difference("a", PTX, PTX.replace("+16", "+32"))


def test_older_words_of_a_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a checkout sees them that does not know the words of today."""
    from tests.corpus import worker

    monkeypatch.setattr(worker, "OLD_FIELDS", {"depth": "stages"})
    monkeypatch.setattr(worker, "OLD_VALUES", {"mode": {"alternating": "pingpong"}})
    found = schedule_of({"depth": 3, "mode": "alternating"})
    assert found == Schedule(stages=3, mode="pingpong")
    assert schedule_of({}) is None
