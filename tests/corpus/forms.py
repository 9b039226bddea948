"""Every kernel that the tests and examples have, as the compiler schedules it: of small sizes and
large ones, by TMA and by threads.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

import wsdsl
from tests.corpus.entries import Entry
from tests.corpus.texts import TEXTS
from tests.in_place_kernels import BODIES, in_place
from tests.kernels import CASES
from wsdsl.cli.source_argument import import_file

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("[0-9]*.py"))
LARGE = {"M": 4096, "N": 4096, "K": 4096, "L": 1024}
FEW_ROWS = {"M": 16}
PLAIN = {"B": 2, "D": 64, "H": 3, "M": 520, "N": 264, "K": 392, "S": 136, "T": 200, "V": 300}


def entries() -> Iterator[Entry]:
    for name, case in CASES.items():
        yield from sized(f"cases/{name}", case.text, case.sizes)
    for name, (text, sizes) in TEXTS.items():
        yield from sized(f"texts/{name}", text, sizes)
    for path in EXAMPLES:
        for held in vars(import_file(path)).values():
            if isinstance(held, wsdsl.Kernel):
                sizes = {dim: PLAIN[dim] for dim in held.dims}
                yield from sized(f"examples/{held.name}", held.source, sizes)
    sizes = dict(M=72, N=40, K=40, E=3, G=3)
    for body in BODIES:
        for dtype in ("f32", "bf16"):
            made = in_place(body, dtype)
            known = {dim: sizes[dim] for dim in made.dims}
            yield Entry(f"in_place/{body.replace(' ', '_')}/{dtype}", made.source, known)


def sized(name: str, text: str, small: Mapping[str, int]) -> Iterator[Entry]:
    """Without sizes, too: then the choice falls for all of them."""
    whole = {dim: size for dim, size in small.items() if dim in ("D", "E", "G", "H")}
    yield Entry(name, text, small)
    yield Entry(f"{name}/threads", text, small, threads="all")
    yield Entry(f"{name}/any_size", text, whole)
    for what, others in (("large", LARGE), ("few_rows", LARGE | FEW_ROWS)):
        larger = {dim: others.get(dim, size) for dim, size in small.items()}
        if larger != small:
            yield Entry(f"{name}/{what}", text, larger)
