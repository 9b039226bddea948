"""Run agents, the one with the earliest clock first, so that units serve in the order of time."""

import dataclasses
import heapq
from collections.abc import Iterator, Sequence
from random import Random
from typing import cast

from wsdsl.diagnostics import Finding, ScheduleError
from wsdsl.ir.op import Kernel
from wsdsl.report.timed.op_costs import perform
from wsdsl.report.timed.sm import Agent, Facts, Sm, Steps
from wsdsl.report.timed.units import Channel
from wsdsl.simulator.cta import Residents
from wsdsl.simulator.launch_state import Launch, start_cluster
from wsdsl.simulator.reference.bound_arrays import Arguments
from wsdsl.simulator.state.gmem_races import GlobalAccesses

MOST_STEPS = 3_000_000
"""Of ops that may wait: some 10 seconds."""


class Run:
    """The run of some clusters; others run as far as these wait for their results in GMEM."""

    def __init__(self, kernel: Kernel, facts: Facts, launch: Launch, arguments: Arguments) -> None:
        self.kernel, self.facts, self.launch = kernel, facts, launch
        self.arguments = arguments
        self.heap: list[tuple[float, int, Agent]] = []
        self.steps: dict[Agent, Steps] = {}
        self.order = 0
        self.started: set[int] = set()

    def wake(self, channel: Channel) -> None:
        for agent in channel.woken():
            self._push(cast(Agent, agent))

    def _push(self, agent: Agent) -> None:
        self.order += 1
        heapq.heappush(self.heap, (agent.now, self.order, agent))

    def run(self, indices: Sequence[int], now: float, resident: int) -> list[tuple[int, list[Sm]]]:
        """Run the clusters with these indices from `now` on, `resident` of them at the same time.

        Returns the place (0 to resident - 1) and the CTAs of each, in the order in which they end.
        """
        waiting, left = [*indices][::-1], MOST_STEPS * len(indices)
        first = self._start(waiting.pop(), now)
        slots, done = {0: first}, list[tuple[int, list[Sm]]]()
        for slot in range(1, min(resident, len(indices))):
            slots[slot] = self._start(waiting.pop(), now, first)
        others = self._others(indices[0])
        while slots:
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
                slot = next((n for n, ctas in slots.items() if agent.sm in ctas), None)
                if slot is not None and not any(
                    a in self.steps for c in slots[slot] for a in c.agents
                ):
                    done.append((slot, slots.pop(slot)))
                    if waiting:
                        end = max(cta.end for cta in done[-1][1])
                        slots[slot] = self._start(waiting.pop(), end, first)
            if left < 0:
                hint = "use smaller sizes"
                told = f"WS1044 the timeline of one SM has more than {MOST_STEPS} steps per CTA"
                raise ScheduleError([Finding(told, self.kernel.loc, hint)])
        return done

    def _start(self, index: int, now: float, beside: Sequence[Sm] = ()) -> list[Sm]:
        """Start a cluster, on the SMs of the CTAs `beside` it."""
        size = self.launch.cluster
        self.started.add(index)
        counts = size, self.launch.num_warpgroups, self.launch.num_barriers
        accesses = GlobalAccesses(dataclasses.replace(self.kernel, body=()), {})
        residents = Residents(self.arguments, accesses, counts, Random(0), 0, {})
        cluster: list[Sm] = []
        for wg in start_cluster(self.launch, index, residents):
            rank = wg.cta.rank
            if rank == len(cluster):
                Sm(self.wake, self.facts, cluster, beside[rank] if beside else None)
            agent = Agent(wg, cluster[rank], now, perform)
            wg.values.update(self.arguments.scalars)
            agent.sm.agents.append(agent)
            self.steps[agent] = agent.run(self.kernel.body)
            self._push(agent)
        return cluster

    def _others(self, index: int) -> Iterator[int]:
        """Clusters by distance of index, lower ones first: they share its split tiles."""
        num = self.launch.grid_clusters
        for apart in range(1, num):
            for other in (index - apart, index + apart):
                if 0 <= other < num and other not in self.started:
                    yield other

    def _next(self, others: Iterator[int]) -> int:
        found = next(others, None)
        if found is None:
            told = "WS1045 CTAs of the kernel deadlock"
            raise ScheduleError([Finding(told, self.kernel.loc, "use `wsdsl prove` for the trace")])
        return found
