"""Lets warpgroups and agents get on one step at a time, in a seeded or a prescribed order."""

from bisect import bisect
from collections.abc import Iterable, Sequence
from itertools import accumulate
from random import Random

from wsdsl.diagnostics import Finding
from wsdsl.ir.op import Kernel
from wsdsl.ir.printer import print_head
from wsdsl.simulator.cta import SPEEDS, Agent, Cluster, Cta, Residents
from wsdsl.simulator.interleaving_script import Agents, Entry, Follower
from wsdsl.simulator.launch_state import Launch, start_cluster
from wsdsl.simulator.simulation_error import SimulationError
from wsdsl.simulator.state.smem_races import CopyIn
from wsdsl.simulator.warpgroup import END_TOGETHER, Steps, Warpgroup, trace
from wsdsl.simulator.warpgroup_steps import warpgroup_steps

TOLD = 24
"""The most warpgroups in the report of a deadlock."""


class Run:
    """The run of clusters that may wait for each other, `launch.together` of them at a time."""

    def __init__(
        self,
        kernel: Kernel,
        launch: Launch,
        clusters: range,
        residents: Residents,
        script: Sequence[Entry],
        agents: Agents,
    ) -> None:
        self.kernel, self.launch, self.residents = kernel, launch, residents
        self.waiting = list(reversed(clusters))
        self.running: list[Cluster] = []
        self.follower = Follower(script)
        self.mode = agents
        self.coroutines: dict[Warpgroup, Steps] = {}
        self.speed: dict[Warpgroup, float] = {}
        self.names: dict[str, Warpgroup] = {}
        self.steps = 0

    def run(self) -> None:
        self._start()
        while True:
            ready = [wg for wg in self.coroutines if wg.blocked is None or wg.blocked.ready()]
            if not ready and not self.residents.agents:
                if self.coroutines:
                    raise self._deadlock()
                return
            self.steps += 1
            chosen = self._scripted(ready) or self._any(ready)
            if isinstance(chosen, Warpgroup):
                self._step(chosen)
            elif not chosen.step():
                self.residents.agents.remove(chosen)

    def _start(self) -> None:
        """Start clusters, in the order of their indices, as far as there is room."""
        while self.waiting and len(self.running) < self.launch.together:
            started = start_cluster(self.launch, self.waiting.pop(), self.residents)
            self.running.append(started[0].cta.cluster)
            for wg in started:
                self.coroutines[wg] = warpgroup_steps(self.kernel, wg)
                self.speed[wg] = self.residents.rng.choice(SPEEDS)
                self.names[wg.key] = wg

    def _scripted(self, ready: list[Warpgroup]) -> Warpgroup | Agent | None:
        """The next warpgroup of the script, or an agent that may unblock it."""
        agents, rng = self.residents.agents, self.residents.rng
        while (wg := self.follower.current(self.names)) is not None:
            if agents and self.mode == "eager":
                return self._agent()
            if wg in ready:
                early = agents and self.mode == "random" and rng.random() < 0.5
                return self._agent() if early else wg
            if self.follower.satisfied(wg) and (self.mode == "lazy" or not agents):
                self.follower.skip()
            elif agents:
                return self._agent()
            else:
                self.follower.stop()
        return None

    def _any(self, ready: list[Warpgroup]) -> Warpgroup | Agent:
        agents = self.residents.agents
        if agents and (self.mode == "eager" or not ready):
            return self._agent()
        moving: list[Warpgroup | Agent] = [*ready]
        weights = [self.speed[wg] for wg in ready]
        if self.mode == "random":
            moving += agents
            weights += [agent.speed for agent in agents]
        return moving[_drawn(self.residents.rng, weights)]

    def _agent(self) -> Agent:
        agents = self.residents.agents
        return agents[_drawn(self.residents.rng, [agent.speed for agent in agents])]

    def _step(self, wg: Warpgroup) -> None:
        try:
            wg.blocked = next(self.coroutines[wg])
        except StopIteration:
            del self.coroutines[wg]
            wg.done = True
            wg.blocked = None
            cta = wg.cta
            if all(other.cta is not cta for other in self.coroutines):
                cta.done = True
                _check_end(cta, self.names.values())
                if cta.cluster.done:
                    self.running.remove(cta.cluster)
                    self._start()

    def _deadlock(self) -> SimulationError:
        ctas = [cta for cluster in self.running for cta in cluster.ctas]
        names = ", ".join(str(cta.index) for cta in ctas)
        where = f"CTA {names}" if len(ctas) == 1 else f"CTAs {names}"
        findings = [Finding(f"{where}: all warpgroups wait, and no async copy is outstanding")]
        shown = [wg for wg in self.names.values() if wg.cta in ctas]
        # Waiting warpgroups come first if the report cannot show all.
        if len(shown) > TOLD:
            shown.sort(key=lambda wg: wg.blocked is None)
        for wg in shown[:TOLD]:
            if wg.blocked is None:
                findings.append(Finding(f"{wg.told} has ended"))
                continue
            op = wg.blocked.op
            told = f"{wg.told}{wg.where()} waits for {wg.blocked.reason()}\n  in {print_head(op)}"
            findings.append(Finding(told, op.loc))
        if len(shown) > TOLD:
            findings.append(Finding(f"{len(shown) - TOLD} more warpgroups"))
        if self.waiting:
            first, several = self.waiting[-1] * self.launch.cluster, self.launch.together > 1
            units = ("cluster" if self.launch.cluster > 1 else "CTA") + "s" * several
            units += f" of {self.launch.cluster} CTAs" * (self.launch.cluster > 1)
            findings.append(
                Finding(
                    f"CTAs {first} to {self.launch.grid_size - 1} have not started: at most "
                    f"{self.launch.together} {units} at a time",
                    hint='wait only for CTAs of a lower index, or launch a "persistent" grid',
                )
            )
        return SimulationError("deadlock", findings, trace([c for c in ctas if not c.done][:8]))


def _drawn(rng: Random, weights: list[float]) -> int:
    """Draw an index by weight: `rng.choices` for one, without its overhead in every step."""
    sums = list(accumulate(weights))
    return bisect(sums, rng.random() * sums[-1], 0, len(sums) - 1)


def _check_end(cta: Cta, everybody: Iterable[Warpgroup]) -> None:
    """Nothing may reach the CTA's SMEM from now on, which is gone with its threads; and no arrival
    at a named barrier is left.
    """
    for number, left in cta.meetings.items():
        wg = next(w for w in everybody if w in left.names)
        wg.fail(left.opened_by, f"the kernel ends, but at named barrier {number} {left.state()}")
    clocks, everyone = cta.clocks, cta.everyone
    clocks.acquire(everyone, clocks.release(everyone))
    for span in cta.memory.accesses.spans:
        if isinstance(span.write, CopyIn):
            reason = span.write.open_to(clocks, everyone)
            if reason:
                wg = next(w for w in everybody if w.told == span.write.who)
                if wg.cta is cta:
                    wg.fail(span.write.op, f"the kernel ends, with this copy outstanding: {reason}")
                told = f"CTA {cta.index} has ended, with this copy to it outstanding: {reason}"
                wg.fail(span.write.op, told, hint=END_TOGETHER)
    for held in cta.barriers.values():
        for barrier in held:
            for arrival in barrier.remote.values():
                if int(clocks.seen[everyone.start, arrival.component]) < arrival.epoch:
                    wg = next(w for w in everybody if w.told == arrival.who)
                    told = f"CTA {cta.index} may have ended before this arrival on {barrier}"
                    wg.fail(arrival.op, told, hint=END_TOGETHER)
