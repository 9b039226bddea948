"""Programs that nobody wrote, each by a schedule of its own and by none."""

from collections.abc import Iterator
from itertools import islice
from random import Random

import wsdsl
from tests.corpus.entries import Entry, words
from tests.generated import draws
from tests.generated.programs import program
from tests.lowering import indexed_operands
from wsdsl.diagnostics import WsdslError

PROGRAMS = 60
INDEXED = 40


def entries() -> Iterator[Entry]:
    for seed in range(PROGRAMS):
        text = program(seed)
        try:
            kernel = wsdsl.parse(text).made
            _ = kernel.tile_ir
        except WsdslError:
            yield Entry(f"generated/{seed}", text)
            continue
        rng = Random(seed)
        sizes, schedule = draws.sizes(kernel, rng), words(draws.schedule(kernel, rng))
        yield Entry(f"generated/{seed}", text, sizes, threads="all" if seed % 3 == 0 else "none")
        if schedule:
            yield Entry(f"generated/{seed}/scheduled", text, sizes, schedule)
    schedules = indexed_operands.SCHEDULES
    for i, made in enumerate(islice(indexed_operands.programs(0), INDEXED)):
        sizes = indexed_operands.SIZES | {"K": made.depth}
        schedule = words(schedules[i % len(schedules)])
        name = f"indexed/{i}/{made.what.replace(' ', '_')}"
        yield Entry(name, made.text, sizes, schedule)
