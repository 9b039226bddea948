"""Cluster launch control: a cluster cancels one that has not started and takes its work unit."""

from dataclasses import dataclass, field

import numpy as np

from wsdsl.ir.ops import ANSWER_BYTES, NOTHING_LEFT, ClcQueryCancel, ClcTryCancel
from wsdsl.simulator.cta import Residents
from wsdsl.simulator.ops.smem import read_by_warps, read_shared
from wsdsl.simulator.reference.arithmetic import Array
from wsdsl.simulator.state.smem_bytes import span
from wsdsl.simulator.state.transfers import Transfer
from wsdsl.simulator.warpgroup import END_TOGETHER, Warpgroup, ended

REFUSED = 0.2
"""How often a response reports no cluster though some have not started: a kernel of higher priority
may have come.
"""


@dataclass(eq=False)
class Answer:
    """The same for all CTAs of the cluster, and found when the first of them gets it."""

    residents: Residents
    words: list[int] = field(default_factory=list[int])

    def found(self, ctas: int) -> list[int]:
        """The index of a cluster's first CTA, and whether there is one."""
        left, rng = self.residents.unstarted, self.residents.rng
        if not self.words and self.residents.in_order:
            self.words = [left.pop(0) * ctas, 1] if left else [0, 0]
        elif not self.words:
            given = left and rng.random() >= REFUSED
            self.words = [left.pop(rng.randrange(len(left))) * ctas, 1] if given else [0, 0]
        return [*self.words, 0, 0]


@dataclass(eq=False)
class AnswerInFlight(Transfer):
    """To one CTA."""

    answer: Answer

    def data(self) -> Array:
        return np.array(self.answer.found(self.op.ctas), np.int32).view(np.uint8)


def clc_try_cancel(wg: Warpgroup, op: ClcTryCancel) -> None:
    cluster = wg.cta.cluster
    if cluster.refused:
        wg.fail(op, "an earlier CLC response reported that no cluster is left")
    start, item = wg.place(op, ANSWER_BYTES)
    if start % ANSWER_BYTES:
        wg.fail(op, f"SMEM address {start} is not a multiple of {ANSWER_BYTES}")
    answer = Answer(wg.cta.residents)
    for cta in cluster.ctas if op.ctas > 1 else [wg.cta]:
        if cta.done:
            wg.fail(op, ended(cta), hint=END_TOGETHER)
        barrier = wg.barrier(op, op.barriers, wg.values[op.state.name], cta)
        phases, region = wg.cta.clocks.phases_seen(wg.one), span(start, ANSWER_BYTES)
        sent = AnswerInFlight(wg, op, cta, region, barrier, wg.one, phases, answer)
        sent.start(item)


def clc_query_cancel(wg: Warpgroup, op: ClcQueryCancel) -> None:
    start, item = wg.place(op, ANSWER_BYTES)
    what, region = f"it reads {item}", span(start, ANSWER_BYTES)
    if wg.elected:
        held = read_shared(wg, op, region, wg.one, what, (wg.index, "one"))
    else:
        held = read_by_warps(wg, op, what, region)[0]
    first, given = held.view(np.int32)[:2]
    wg.cta.cluster.refused |= not given
    wg.values[op.result.name] = int(first) // op.ctas if given else NOTHING_LEFT
