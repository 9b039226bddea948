"""Golden files, rejection lists, sampled parameters, and skips of GPU tests.

`golden(text)` compares with tests/golden/<test module>/<test name>.txt. A missing or different file
fails; `pytest --update-golden` writes it for review.

`with refusals():` skips a parametrized test if its schedule is rejected and <test name>.refused.txt
lists it, and fails if the file and the rejection disagree. `--update-golden` writes the lines of
the tests that run; delete the file first to drop lines of removed tests.

A test marked `sampled(n)` is expensive: a fixed one in n (default 3) of its parameters runs. All
run with `pytest --all` (as in `make soak`), with `--update-golden`, or when selected by -k or by
name. The fixture `each` samples a loop inside a test.

The fixture `import_optional` imports torch, JAX or another optional package, or skips the test.
`pytest --frameworks` (`make test-frameworks`) selects the tests that use it, with all parameters,
and reports a skipped one as failed.
"""

import difflib
import fcntl
import gc
import os
import re
import zlib
from collections import defaultdict
from contextlib import contextmanager
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parent / "golden"
os.environ["WSDSL_CACHE_DIR"] = "off"  # no test, and no process of one, touches the user's
os.environ["WSDSL_TUNING_CACHE"] = "off"  # choices that tests are about are the model's
# BLAS' own threads wait by spinning, which takes the cores from the other processes of pytest: a
# product of 72 x 272 x 88 took 50 ms instead of one half. Before NumPy is imported.
os.environ["OPENBLAS_NUM_THREADS"] = "1"
# Processes that tests start compile no source again, also where nobody else's leave bytecode.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
BYTECODE = Path(__file__).parents[1] / ".pytest_cache" / "bytecode"
os.environ.setdefault("PYTHONPYCACHEPREFIX", str(BYTECODE))


def pytest_addoption(parser):
    parser.addoption("--update-golden", action="store_true", help="write the golden files anew")
    parser.addoption("--all", action="store_true", help="all parameters of sampled tests, too")
    parser.addoption("--frameworks", action="store_true", help="only tests of optional packages")


def pytest_collection_modifyitems(config, items):
    skip_what_needs_a_gpu(items)
    if config.getoption("--frameworks"):
        left_out = {item for item in items if "import_optional" not in item.fixturenames}
    elif all_asked(config):
        return
    else:
        left_out = set(not_sampled(items))
    config.hook.pytest_deselected(items=[item for item in items if item in left_out])
    items[:] = [item for item in items if item not in left_out]


def all_asked(config):
    named = config.option.keyword or any("::" in arg for arg in config.args)
    return named or config.getoption("--all") or config.getoption("--update-golden")


@pytest.fixture(scope="session")
def import_optional():
    """Import a package, or skip the test if it is not installed."""
    return pytest.importorskip


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    """Under `--frameworks`, report a skipped test as failed."""
    report = yield
    if report.skipped and item.config.getoption("--frameworks"):
        report.outcome, report.longrepr = "failed", f"--frameworks: {report.longrepr[2]}"
    return report


@pytest.fixture(scope="session")
def each(request):
    """`things[:: each(n)]` is what a test that goes through many things looks at: one in n of them,
    all where all parameters of sampled tests are run.
    """
    return lambda n: 1 if all_asked(request.config) else n


def not_sampled(items):
    """Of each test that is marked so all but one in n of its items, by what its parameters are."""
    of_tests = defaultdict(list)
    for item in items:
        if (mark := item.get_closest_marker("sampled")) is not None:
            key = item.nodeid.partition("[")[0], mark.args[0] if mark.args else 3
            of_tests[key].append(item)
    for (_, every), found in of_tests.items():
        found.sort(key=lambda item: zlib.crc32(item.nodeid.encode()))
        yield from found[-(-len(found) // every) :]


def skip_what_needs_a_gpu(items):
    on_gpu = [item for item in items if item.get_closest_marker("gpu")]
    if not on_gpu:
        return
    from wsdsl.runtime.device import gpu_available

    if not gpu_available():
        skip = pytest.mark.skip(reason="needs a GPU of compute capability 9.0")
        for item in on_gpu:
            item.add_marker(skip)


def pytest_collection_finish():
    gc.set_threshold(50_000, 20, 50)  # compiling makes much, and little of it in circles
    forget_what_is_held()


def forget_what_is_held():
    """No collection of garbage looks again at what is there now: modules, tests, what is cached.
    Of a whole run's it would take a second.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module")
def quick_collections():
    """Of modules whose tests collect garbage."""
    forget_what_is_held()


@pytest.fixture
def golden(request):
    def compare(text: str, suffix: str = ".txt") -> None:
        name = re.sub(r"[^\w.-]+", "_", request.node.name).strip("_") + suffix
        path = GOLDEN / request.node.path.stem / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        elif not path.exists():
            pytest.fail(f"{path} is missing; `pytest --update-golden` writes it")
        elif path.read_text() != text:
            old, new = path.read_text().splitlines(), text.splitlines()
            lines = difflib.unified_diff(old, new, str(path), "now", lineterm="")
            pytest.fail("\n".join([*lines, "if this is meant: pytest --update-golden"]))

    return compare


@pytest.fixture
def refusals(request):
    node = request.node
    path = GOLDEN / node.path.stem / f"{node.originalname}.refused.txt"
    own = node.callspec.id

    def update(refused: bool) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # of the processes of pytest-xdist
            file.seek(0)
            listed = {*file.read().splitlines()} - {own} | ({own} if refused else set())
            file.truncate(0)
            file.write("".join(f"{line}\n" for line in sorted(listed)))

    @contextmanager
    def trying():
        from wsdsl import ScheduleError

        error = None
        try:
            yield
        except ScheduleError as raised:
            error = raised
        if request.config.getoption("--update-golden"):
            update(error is not None)
        elif (error is not None) != (path.exists() and own in path.read_text().splitlines()):
            hint = f"if this is meant, `pytest --update-golden` changes {path}"
            pytest.fail(f"refused: {error}\n{hint}" if error else f"not refused; {hint}")
        if error is not None:
            pytest.skip(str(error).splitlines()[0])

    return trying


@pytest.fixture(autouse=True)
def passes_verified(request, monkeypatch):
    """What each pass gives is looked at where lowering is what is tested, and in long runs."""
    lowering = "lowering" in request.node.path.parts
    if lowering or request.config.getoption("--all"):
        monkeypatch.setenv("WSDSL_VERIFY", "1")


@pytest.fixture(autouse=True)
def nothing_kept():
    """No test finds what another one has compiled."""
    from wsdsl.artifact import cache

    yield
    cache.forget()
