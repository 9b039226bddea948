"""Products: every two options of `matmul` together, and what is raced, at its real sizes."""

from collections.abc import Iterator

from benchmarks.candidates import kernel_of
from benchmarks.suites import GROUPS, SUITES, Contest
from tests.corpus.entries import Entry
from tests.matmul_cases import Maker, every_pair
from wsdsl.kernels import matmul

RACED = (*GROUPS["bf16"], *GROUPS["layouts"], "small", "int8", "epilogue", "smoke")
BLOCK = 128


def entries() -> Iterator[Entry]:
    maker = Maker(0, lambda x: x)
    # Small arrays, since what they hold is not looked at; of sizes the strides alone are.
    maker.m, maker.n = 8, 16
    for i, options in enumerate(every_pair()):
        made = maker.call(options)
        product = matmul.plan(*made.args, **made.options)
        sizes = {dim: 33 * n if dim in ("M", "N") else n for dim, n in product.sizes.items()}
        blocked = tuple(sorted(product.call.tma_blocked()))
        # Every second time operands are copied to longer rows, whatever the model says of that.
        padded = tuple(name for name in blocked if name in ("A", "B") and i % 2)
        threads = tuple(name for name in blocked if name not in padded)
        told = "-".join(v.replace(" ", "_") for v in options.values() if v)
        yield Entry(f"matmul/{i}/{told}", product.source, sizes, {}, threads or "none", padded)
    for suite in RACED:
        yield from (_raced(contest) for contest in SUITES[suite])
    # Of the suites of fp8 the same sizes in each: of some, another one.
    for i, suite in enumerate(GROUPS["fp8"]):
        yield from (_raced(contest) for contest in SUITES[suite][i % 2 :: 2])


def _raced(contest: Contest) -> Entry:
    m, n, k = contest.shape
    kernel = kernel_of(contest.kind)
    sizes = {"M": m, "N": n, "K": k, "NB": -(-n // BLOCK), "KB": -(-k // BLOCK)}
    schedule = {"precise_every": 0} if contest.kind.fast else {}
    threads = tuple(_of_odd_rows(contest.kind.columns, m, n, k))
    known = {dim: sizes[dim] for dim in kernel.dims}
    name = f"raced/{contest.suite}/{contest.kind.name}/{contest.name}"
    return Entry(name, kernel.source, known, schedule, threads or "none")


def _of_odd_rows(columns: str, m: int, n: int, k: int) -> Iterator[str]:
    """Those whose rows are no multiple of 16 bytes, which TMA does not take. Of bf16 alone: other
    types are raced at round sizes.
    """
    rows = {"A": m if "a" in columns else k, "B": n if "b" in columns else k, "C": n}
    return (name for name, elements in rows.items() if elements * 2 % 16)
