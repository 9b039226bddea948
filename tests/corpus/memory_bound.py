"""Kernels without an MMA: rows, columns, top-k, scatter and gather, transposes."""

from collections.abc import Iterator

from benchmarks import column_cases
from tests.corpus.entries import Entry, launched
from tests.lowering import turned_kernels
from tests.odd_patterns import ODD_PATTERNS
from tests.pattern_kernels import PATTERNS
from tests.word_kernels import WORD_KERNELS
from wsdsl import parse

TOP_K = (("largest", 256, 8), ("largest", 4096, 3), ("router", 130, 1), ("router", 64, 4))
SIZES = dict(B=4, M=4096, N=1000, S=1024, H=16, D=64, K=32)
"""Sizes of the kernels whose tables have none; K is N / 32."""


def entries() -> Iterator[Entry]:
    for name, pattern in (PATTERNS | ODD_PATTERNS).items():
        title = "_".join(name.replace(",", "").replace("'", "").split())
        yield launched(f"patterns/{title}", f"@kernel{pattern.text}", pattern.sizes)
    for name, case in WORD_KERNELS.items():
        yield launched(f"operations/{name}", case.text, {**case.sizes, "M": 8192})
    for name, n, k in TOP_K:
        yield launched(f"top_k/{name}/{n}/{k}", WORD_KERNELS[name].text, dict(M=16384, N=n, K=k))
    turned = turned_kernels.TEXT.format(x="f32", y="bf16", of="cast(X[m, n], bf16)")
    tables = {"columns": column_cases.TEXT, "transposes": turned}
    for table, text in tables.items():
        for each in text.split("@kernel")[1:]:
            (kernel,) = vars(parse(f"@kernel{each}")).values()
            known = {dim: SIZES[dim] for dim in kernel.dims}
            yield launched(f"{table}/{kernel.name}", f"@kernel{each}", known)
