"""Lets agents get on, who is furthest behind first: so units serve in the order of time."""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Iterator, Sequence
from random import Random
from typing import cast

from wsdsl.diagnostics import Finding, ScheduleError
from wsdsl.ir.op import Kernel
from wsdsl.report.timed.agent import Agent, Steps
from wsdsl.report.timed.effects import EFFECTS
from wsdsl.report.timed.sm import Facts, Sm
from wsdsl.report.timed.units import Channel, Flag
from wsdsl.simulator.arrays import Arguments
from wsdsl.simulator.cta import Residents
from wsdsl.simulator.global_races import GlobalAccesses
from wsdsl.simulator.launch import Launch, start_cluster

MOST_STEPS = 3_000_000
"""Of ops that may wait: some 10 seconds."""


class Run:
    """Of one cluster; others run as far as it waits for what they leave in global memory."""

    def __init__(
        self,
        kernel: Kernel,
        facts: Facts,
        launch: Launch,
        arguments: Arguments,
        claimed: Sequence[int] = (),
    ) -> None:
        self.kernel, self.facts, self.launch = kernel, facts, launch
        self.claimed = claimed
        """What the cluster's answers say, in order."""
        self.arguments = arguments
        self.flags: dict[tuple[str, tuple[int, ...]], Flag] = {}
        self.heap: list[tuple[float, int, Agent]] = []
        self.steps: dict[Agent, Steps] = {}
        self.order = 0
        self.started: set[int] = set()

    def flag(self, tensor: str, at: tuple[int, ...]) -> Flag:
        return self.flags.setdefault((tensor, at), Flag())

    def wake(self, channel: Channel) -> None:
        for agent in channel.woken():
            self._push(cast(Agent, agent))

    def _push(self, agent: Agent) -> None:
        self.order += 1
        heapq.heappush(self.heap, (agent.now, self.order, agent))

    def run(self, index: int, now: float) -> list[Sm]:
        """The cluster of that index, from `now` on."""
        self.heap.clear()
        self.steps.clear()
        self.started.clear()
        shown = self._start(index, now)
        agents = [agent for sm in shown for agent in sm.agents]
        others = self._others(index)
        left = MOST_STEPS
        while any(agent in self.steps for agent in agents):
            if not self.heap:
                self._start(self._next(others), self.facts.speeds.start)
                continue
            _, _, agent = heapq.heappop(self.heap)
            for waits in self.steps[agent]:
                left -= 1
                if waits is not None:
                    waits.waiting.append(agent)
                    break
                if self.heap and self.heap[0][0] < agent.now:
                    self._push(agent)
                    break
            else:
                del self.steps[agent]
            if left < 0:
                hint = "smaller sizes show the same"
                told = "the run of one CTA is too long to show"
                raise ScheduleError([Finding(told, self.kernel.loc, hint)])
        return shown

    def _start(self, index: int, now: float) -> list[Sm]:
        size = self.launch.cluster
        self.started.add(index)
        counts = size, self.launch.num_warpgroups, self.launch.num_barriers
        accesses = GlobalAccesses(dataclasses.replace(self.kernel, body=()), {})
        residents = Residents(self.arguments, accesses, counts, Random(0), 0)
        cluster: list[Sm] = []
        for cta in start_cluster(self.launch, index, residents).ctas:
            sm = Sm(self, self.facts, cluster)
            for wg in cta.warpgroups:
                agent = Agent(wg, sm, now)
                wg.values.update(self.arguments.scalars)
                sm.agents.append(agent)
                self.steps[agent] = agent.run(self.kernel.body, EFFECTS)
                self._push(agent)
        return cluster

    def _others(self, index: int) -> Iterator[int]:
        """Clusters by how near they are, those in front first: they have pieces of its tiles."""
        num = self.launch.num_clusters
        for apart in range(1, num):
            for other in (index - apart, index + apart):
                if 0 <= other < num and other not in self.started:
                    yield other

    def _next(self, others: Iterator[int]) -> int:
        found = next(others, None)
        if found is None:
            told = "its CTAs wait for each other for ever: `prove` says why"
            raise ScheduleError([Finding(told, self.kernel.loc)])
        return found
