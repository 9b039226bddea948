"""Whether two checkouts compile the corpus (tests/corpus) to the same PTX, kernel by kernel.

python -m tools.compare_ptx BASE [HEAD]

BASE and HEAD are folders of checkouts or git revisions; HEAD is this checkout, as it lies there, if
it is left out. `previous` as BASE is the commit before HEAD on main; a clone may have none, which
skips the comparison. HEAD's corpus is compiled by both, in processes of their own. Kernels that
differ are named and grouped by what differs; a kernel may be refused, and then its message is
compared. "Identical up to names": registers and labels are numbered otherwise, all else is the
same.

Exit status: 0 if all is identical (up to names), or allowed to differ by `--allow FILE`: patterns
of names, one a line, and after `#` why; a kernel that crashes the compiler is never allowed.
HEAD's tests/corpus/allowed.txt is such a file. Only the lines that BASE's file lacks count, so that
a line allows the difference to the commits before it.
"""

from __future__ import annotations

import argparse
import fnmatch
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import zlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.ptx_diff import difference, normalised, summary

ROOT = Path(__file__).parents[1]
WORKER = ROOT / "tests" / "corpus" / "worker.py"
COMPILE_TEXT = Path("tests") / "corpus" / "compile_text.py"
ALLOWED = Path("tests") / "corpus" / "allowed.txt"
SAMPLE = 1000
"""Entries of a run without `--all`."""
ALIKE = ("identical", "identical up to names", "refused alike")


@dataclass(frozen=True)
class Outcome:
    """kind: "ptx", "refused", "crashed", or "missing" where the compiler's process died."""

    kind: str
    text: str
    seconds: float = 0.0


Outcomes = Mapping[str, Outcome]


def checkout(side: str, folder: Path) -> Path:
    """The folder of a side; a revision is unpacked into `folder`."""
    if Path(side).is_dir():
        return Path(side).resolve()
    packed = subprocess.run(
        ["git", "archive", "--format=tar", side], cwd=ROOT, capture_output=True, check=False
    )
    if packed.returncode:
        raise SystemExit(f"{side} is no folder, and no revision: {packed.stderr.decode().strip()}")
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as files:
        files.extractall(folder, filter="data")
    return folder


def previous(root: Path = ROOT) -> str:
    """Return the commit before HEAD on main; "" if the clone has none."""

    def git(*arguments: str) -> str:
        command = ["git", *arguments]
        found = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
        return "" if found.returncode else found.stdout.strip()

    head = git("rev-parse", "HEAD")
    forks = [git("merge-base", "HEAD", branch) for branch in ("origin/main", "main")]
    before = [fork for fork in forks if fork not in ("", head)]
    return before[0] if before else git("rev-parse", "--verify", "HEAD~1")


def _environment(root: Path) -> dict[str, str]:
    # None of these must change what is compiled. WSDSL_RECORDS is for a BASE before 0.2.
    kept = {name: held for name, held in os.environ.items() if not name.startswith("WSDSL_")}
    return dict(kept, PYTHONPATH=str(root), WSDSL_TUNING_CACHE="off", WSDSL_RECORDS="off")


def entries_of(root: Path, pattern: str = "*", count: int | None = None) -> list[dict[str, Any]]:
    """The corpus of a checkout: those that are named so, and `count` of them, spread over all."""
    command = [sys.executable, "-m", "tests.corpus"]
    done = subprocess.run(
        command, cwd=root, env=_environment(root), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"there is no corpus in {root}:\n{done.stderr}")
    entries = [json.loads(line) for line in done.stdout.splitlines()]
    entries = [e for e in entries if fnmatch.fnmatch(e["name"], pattern)]
    if not entries:
        raise SystemExit(f"no kernel is named {pattern}")
    return sample(entries, count)


def sample(entries: Iterable[dict[str, Any]], count: int | None) -> list[dict[str, Any]]:
    """Take `count` entries, but at least the named ones of the passes; None takes all."""
    # By a hash: the same ones are taken again where some are added.
    ordered = sorted(entries, key=lambda e: hashlib.sha1(e["name"].encode()).digest())
    named = [e for e in ordered if e.get("named")]
    others = [e for e in ordered if not e.get("named")]
    return named + (others if count is None else others[: max(0, count - len(named))])


def compiled(root: Path, entries: Sequence[Mapping[str, Any]]) -> dict[str, Outcome]:
    """What one process makes of entries under a checkout."""
    own = root / COMPILE_TEXT
    if not own.exists() or "packed" not in own.read_text():  # older than packed entries
        own = ROOT / COMPILE_TEXT
    command = [sys.executable, str(WORKER), str(own)]
    given = "".join(json.dumps(entry) + "\n" for entry in entries)
    done = subprocess.run(
        command, cwd=root, env=_environment(root), input=given,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    if not rows or not Path(rows[0]["package"]).is_relative_to(root):
        raise SystemExit(f"wsdsl of {root} can not be imported:\n{done.stdout}{done.stderr}")
    found = {row.pop("name"): Outcome(**row) for row in rows[1:]}
    died = Outcome("missing", f"the compiler's process died: {done.stderr[-300:].strip()}")
    return {entry["name"]: found.get(entry["name"], died) for entry in entries}


def compile_all(
    roots: Iterable[Path], entries: Sequence[Mapping[str, Any]], jobs: int
) -> list[dict[str, Outcome]]:
    """By checkout, what all entries become; `jobs` processes at a time."""
    # A process parses a text once, for all entries that have it.
    parts = defaultdict[int, list[Mapping[str, Any]]](list)
    for entry in entries:
        parts[zlib.crc32(entry["text"].encode()) % jobs].append(entry)
    with ThreadPoolExecutor(jobs) as pool:
        running = [[pool.submit(compiled, root, part) for part in parts.values()] for root in roots]
        return [{n: o for part in side for n, o in part.result().items()} for side in running]


def verdict(base: Outcome, head: Outcome) -> str:
    """How two outcomes compare: one of ALIKE, or a difference."""
    if "crashed" in (base.kind, head.kind) or "missing" in (base.kind, head.kind):
        fails = head.kind in ("crashed", "missing")
        return "crashes" if fails else "crashed before"
    if base.kind != head.kind:
        return "refused now" if head.kind == "refused" else "refused before"
    if base.kind == "refused":
        return "refused alike" if base.text == head.text else "refused otherwise"
    if base.text == head.text:
        return "identical"
    same = normalised(base.text) == normalised(head.text)
    return "identical up to names" if same else "differs"


def told(what: str, base: Outcome, head: Outcome) -> str:
    """A difference in a line; equal ones are grouped."""
    if what == "differs":
        return summary(base.text, head.text)
    if what == "refused otherwise":
        return f"{_first_line(base)}  →  {_first_line(head)}"
    return _first_line(head if what in ("refused now", "crashes") else base)


def _first_line(found: Outcome) -> str:
    return found.text.partition("\n")[0]


def read_allowed(path: Path | None, base: Path | None = None) -> list[str]:
    """Return the patterns of a file, without the lines that the base's file has."""
    lines, known = (p.read_text().splitlines() if p and p.exists() else [] for p in (path, base))
    new = (line.partition("#")[0].strip() for line in lines if line not in known)
    return [pattern for pattern in new if pattern]


def report(
    base: Outcomes,
    head: Outcomes,
    allowed: Sequence[str] = (),
    accepted: Collection[str] = ("crashed before",),
) -> bool:
    """Prints how they compare. Whether all is alike, allowed to differ, or an accepted verdict."""
    groups: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    counts: dict[str, int] = defaultdict(int)
    unexpected = 0
    for name in head:
        what = verdict(base[name], head[name])
        counts[what] += 1
        if what not in ALIKE:
            is_allowed = what != "crashes" and any(fnmatch.fnmatch(name, p) for p in allowed)
            is_allowed |= what in accepted
            unexpected += not is_allowed
            shown = f"{name} (allowed)" if is_allowed else name
            groups[what][told(what, base[name], head[name])].append(shown)
    for what, by_difference in groups.items():
        for line, names in sorted(by_difference.items(), key=lambda held: -len(held[1])):
            print(f"{what}, {len(names)}: {line}")
            print("".join(f"    {name}\n" for name in names), end="")
    print(f"{len(head)} kernels: {', '.join(f'{n} {what}' for what, n in sorted(counts.items()))}")
    seconds = [sum(outcome.seconds for outcome in side.values()) for side in (base, head)]
    ratio = seconds[1] / max(seconds[0], 1e-9)
    print(f"to PTX: base {seconds[0]:.1f} s, head {seconds[1]:.1f} s of CPU ({ratio:.2f} of base)")
    if unexpected:
        print(f"{unexpected} not expected; `--show NAME` prints one")
    return not unexpected


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("base", help="folder, git revision, or previous")
    parser.add_argument("head", nargs="?", default=str(ROOT), help="the same (this checkout)")
    parser.add_argument("-j", type=int, default=os.cpu_count() or 1, help="processes at a time")
    parser.add_argument(
        "--sample", type=int, metavar="K", default=SAMPLE, help=f"only K kernels ({SAMPLE})"
    )
    parser.add_argument("--all", action="store_const", const=None, dest="sample", help="no sample")
    parser.add_argument("--only", metavar="PATTERN", help='only kernels named so, "cases/*"')
    parser.add_argument("--show", metavar="NAME", help="print the difference of one kernel")
    parser.add_argument("--allow", type=Path, metavar="FILE", help="names that may differ")
    parser.add_argument(
        "--allow-messages", action="store_true", help="rejections may have other messages"
    )
    options = parser.parse_args()
    if options.base == "previous":
        options.base = previous()
    if not options.base:
        print("SKIPPED: this clone has no previous commit on main to compare with")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        roots = [
            checkout(side, Path(folder, name))
            for name, side in (("base", options.base), ("head", options.head))
        ]
        entries = entries_of(roots[1], options.show or options.only or "*", options.sample)
        base, head = compile_all(roots, entries, options.j)
        allowed = read_allowed(roots[1] / ALLOWED, roots[0] / ALLOWED)
    accepted = ["crashed before"] + ["refused otherwise"] * options.allow_messages
    if options.show:
        for name in head:
            print(difference(name, base[name].text, head[name].text))
    allowed += read_allowed(options.allow)
    return 0 if report(base, head, allowed, accepted) else 1


if __name__ == "__main__":
    raise SystemExit(main())
