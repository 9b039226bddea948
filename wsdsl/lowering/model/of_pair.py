"""What a pair of CTAs asks for: of the operand that both have in common each loads half, and holds
it, and the tensor cores of both read each half once.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Mapping

from wsdsl.lowering.cta_pairs import PAIR
from wsdsl.lowering.model.steps import Step, Workload
from wsdsl.lowering.model.terms import elements
from wsdsl.lowering.model.workload import Work


def of_pair(work: Work, asked: Workload, tile: Mapping[str, int]) -> Workload:
    """`asked`: of a CTA by itself."""
    less: dict[int, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    multiplied = {v for product in work.products for v in (product.op.a, product.op.b)}
    for product in work.products:
        asked_for = elements(product.axes, tile), tile
        own, read, rates = less[product.around], product.read_bytes, work.rates
        own["tensor"] += product.cycles(*asked_for, rates) - product.cycles(*asked_for, rates, PAIR)
        own["read"] += read(*asked_for) - read(*asked_for, PAIR)
    for load in work.load_terms:
        in_common = any(work.roles[axis] == "columns" for axis in load.axes)
        if in_common and load.op.result in multiplied:
            less[load.around]["loaded"] += work.moved(load, tile, {})[1] * (1 - 1 / PAIR)
    steps = tuple(_less(step, less[i]) for i, step in enumerate(asked.steps))
    return dataclasses.replace(
        asked,
        steps=steps,
        product_cycles=sum(step.times * step.tensor for step in steps),
        operand_bytes=sum(step.times * step.loaded for step in steps),
    )


def _less(step: Step, by: Mapping[str, float]) -> Step:
    return dataclasses.replace(step, **{what: getattr(step, what) - n for what, n in by.items()})
