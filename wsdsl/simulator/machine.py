"""Runs a SCHEDULED kernel on the CPU, barrier by barrier, in a seeded random order.

Warpgroups are coroutines, TMA and the tensor cores agents that get on at any time. Each run takes
one order; races are found by who has seen what, so that the order hardly matters for finding them.
CTAs share nothing but global memory, and run one after another.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from wsdsl.diagnostics import Finding
from wsdsl.ir.barrier_ops import AllocateBarriers, LaunchGrid, SetMaxRegisters
from wsdsl.ir.memory_ops import AllocateShared
from wsdsl.ir.op import Kernel
from wsdsl.ir.pipeline_ops import Partition
from wsdsl.ir.target import SMEM_BYTES
from wsdsl.ir.types import Barriers, Shared
from wsdsl.ir.walk import walk
from wsdsl.simulator.arrays import Arguments, bind_arguments
from wsdsl.simulator.context import Agent, Cta, Steps, Warpgroup, one_line
from wsdsl.simulator.errors import SimulationError
from wsdsl.simulator.execute import warpgroup_steps
from wsdsl.simulator.races import CopyIn

REGISTER_FILE = 65536
SPEEDS = (0.02, 1.0, 1.0, 50.0)
"""How eagerly someone gets on, drawn for each: orders that even chances would hardly ever show."""


@dataclass(frozen=True)
class SimulationReport:
    """What ran: CTAs, scheduler steps, and how often each warpgroup role ran each op."""

    num_ctas: int
    steps: int
    op_counts: dict[str, Counter[str]]


@dataclass(frozen=True)
class _Launch:
    """What is the same for every CTA."""

    partitions: tuple[Partition, ...]
    smem_bytes: int
    num_barriers: int
    registers: int


def simulate(
    kernel: Kernel, arrays: Mapping[str, Any], *, seed: int = 0, num_sms: int = 4
) -> SimulationReport:
    """Outputs are written in place. Raises SimulationError for deadlocks, races and misuse."""
    if kernel.level != "scheduled":
        raise ValueError(f"the simulator runs the SCHEDULED level, not {kernel.level}")
    arguments = bind_arguments(kernel, arrays)
    launch = _read_launch(kernel)
    num_ctas = _grid(kernel, arguments, num_sms)
    rng = Random(seed)
    steps = 0
    counts: dict[str, Counter[str]] = {}
    for index in range(num_ctas):
        cta = _start_cta(kernel, arguments, launch, index, num_ctas, rng, seed)
        steps += _run_cta(kernel, cta)
        for wg in cta.warpgroups:
            counts.setdefault(wg.name, Counter()).update(wg.counts)
    arguments.write_back()
    return SimulationReport(num_ctas, steps, counts)


def _grid(kernel: Kernel, arguments: Arguments, num_sms: int) -> int:
    grid = next((op for op in kernel.body if isinstance(op, LaunchGrid)), None)
    if grid is None:
        return 1
    tiles = math.prod(-(-arguments.size(dim) // size) for dim, size in grid.tiles)
    return min(tiles, num_sms) if grid.scheduler == "persistent" else tiles


def _read_launch(kernel: Kernel) -> _Launch:
    partitions: list[Partition] = []
    smem_bytes, num_barriers, largest = 0, 0, 0
    placed: list[tuple[int, int, str]] = []
    for op in walk(kernel.body):
        match op:
            case Partition():
                partitions.append(op)
            case AllocateShared():
                assert isinstance(op.result.type, Shared)
                end = op.offset + op.result.type.bytes * op.result.type.num
                smem_bytes = max(smem_bytes, end)
            case AllocateBarriers():
                assert isinstance(op.result.type, Barriers)
                num_barriers += op.result.type.num
                placed.append((op.offset, op.offset + 8 * op.result.type.num, op.label))
            case SetMaxRegisters():
                largest = max(largest, op.count)
            case _:
                pass
    _check_placement(kernel, placed, smem_bytes)
    threads = 128 * max(1, sum(p.num_warpgroups for p in partitions))
    entry = REGISTER_FILE // threads // 8 * 8
    # ptxas gives a kernel no more at entry than its largest setmaxnreg asks for.
    return _Launch(tuple(partitions), smem_bytes, num_barriers, min(entry, largest or entry))


def _check_placement(kernel: Kernel, barriers: list[tuple[int, int, str]], smem_bytes: int) -> None:
    """Barriers lie apart from each other and from data, and all within what a CTA may have."""
    taken = [
        (op.offset, op.offset + op.result.type.bytes * op.result.type.num, op.label)
        for op in walk(kernel.body)
        if isinstance(op, AllocateShared) and isinstance(op.result.type, Shared)
    ]
    findings: list[Finding] = []
    for start, end, label in barriers:
        if start < 0 or start % 8:
            findings.append(Finding(f"barriers `{label}` at SMEM offset {start}"))
        for other_start, other_end, other in taken:
            if start < other_end and other_start < end:
                findings.append(Finding(f"barriers `{label}` overlap `{other}` in SMEM"))
        taken.append((start, end, label))
    used = max([smem_bytes, *(end for _, end, _ in barriers)])
    if used > SMEM_BYTES:
        findings.append(Finding(f"{used} bytes of SMEM; a CTA has {SMEM_BYTES}"))
    if findings:
        raise SimulationError("misuse", findings)


def _start_cta(
    kernel: Kernel,
    arguments: Arguments,
    launch: _Launch,
    index: int,
    num_ctas: int,
    rng: Random,
    seed: int,
) -> Cta:
    partitions = launch.partitions or (Partition(role="kernel"),)
    num_warpgroups = sum(p.num_warpgroups for p in partitions)
    cta = Cta(
        index,
        num_ctas,
        arguments,
        num_warpgroups,
        launch.smem_bytes,
        launch.num_barriers,
        launch.registers,
        rng,
        seed,
    )
    for partition in partitions:
        for rank in range(partition.num_warpgroups):
            cta.warpgroups.append(Warpgroup(cta, len(cta.warpgroups), partition, rank))
    return cta


def _run_cta(kernel: Kernel, cta: Cta) -> int:
    """Let one of those that can go on do a step, until all are done."""
    rng = cta.rng
    coroutines: dict[Warpgroup, Steps] = {wg: warpgroup_steps(kernel, wg) for wg in cta.warpgroups}
    speed: dict[Any, float] = {wg: rng.choice(SPEEDS) for wg in cta.warpgroups}
    for kind in ("tma_load", "tma_store", "wgmma"):
        speed[kind] = rng.choice(SPEEDS)
    steps = 0
    while True:
        ready: list[Warpgroup | Agent] = [
            wg for wg in coroutines if wg.blocked is None or wg.blocked.ready()
        ]
        ready += cta.agents
        if not ready:
            if coroutines:
                raise _deadlock(cta)
            _check_end(cta)
            return steps
        steps += 1
        weights = [speed[r if isinstance(r, Warpgroup) else r.kind] for r in ready]
        chosen = rng.choices(ready, weights)[0]
        if not isinstance(chosen, Warpgroup):
            if not chosen.step():
                cta.agents.remove(chosen)
            continue
        try:
            chosen.blocked = next(coroutines[chosen])
        except StopIteration:
            del coroutines[chosen]
            chosen.done = True
            chosen.blocked = None


def _deadlock(cta: Cta) -> SimulationError:
    findings = [Finding(f"deadlock in CTA {cta.index}: nobody can go on, no copy is under way")]
    for wg in cta.warpgroups:
        if wg.blocked is None:
            findings.append(Finding(f"{wg.name} has ended"))
            continue
        op = wg.blocked.op
        told = f"{wg.name}{wg.where()} waits for {wg.blocked.reason()}\n  in {one_line(op)}"
        findings.append(Finding(told, op.loc))
    return SimulationError("deadlock", findings, cta.trace())


def _check_end(cta: Cta) -> None:
    """No copy may be under way that nobody waits for: the CTA's SMEM is gone with its threads."""
    everyone = slice(0, len(cta.clocks.seen))
    cta.clocks.acquire(everyone, cta.clocks.release(everyone))
    for span in cta.accesses.spans:
        if isinstance(span.write, CopyIn):
            reason = span.write.open_to(cta.clocks, everyone)
            if reason:
                wg = next(w for w in cta.warpgroups if w.name == span.write.who)
                wg.fail(span.write.op, f"the kernel ends with this copy in flight: {reason}")
