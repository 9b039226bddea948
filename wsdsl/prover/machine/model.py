"""The kernel to prove: the code of each partition, the arrays in SMEM, and the CTAs to prove."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from wsdsl.ir import ops
from wsdsl.ir.analysis.tensor_accesses import written_tensors
from wsdsl.ir.effects import Access, Arrive
from wsdsl.ir.op import Kernel, Value, operands, results_of, walk
from wsdsl.ir.ops import Partition
from wsdsl.ir.types import Barriers, Columns, Shared, Sizes
from wsdsl.ir.verify.mma_operands import carried_operands
from wsdsl.ir.verify.synchronization import reaches_others
from wsdsl.lazy import cached_property
from wsdsl.prover.failure import Outside
from wsdsl.prover.machine.instructions import Code, effects_of, needed_values
from wsdsl.prover.machine.symbolic_terms import Term

FEW, MANY = 4, 512
"""Iterations that are counted at first, and where not counting them has led to a failure."""


@dataclass(frozen=True, slots=True)
class Array:
    """An array of barriers or of items in SMEM. `first` numbers its barriers within a CTA."""

    name: str
    label: str
    num: int
    bytes: int = 0
    arrivals: int = 0
    first: int = -1
    index: int = -1


@dataclass
class Family:
    """Arrays that are walked by the same pipeline states: rotating them all by one stage changes
    nothing. `turns` is False where something else picks an item of them. With `remote`, CTAs
    reach into each other's, and all rotate together.
    """

    arrays: list[Array] = field(default_factory=list[Array])
    turns: bool = True
    remote: bool = False
    num: int = 0


class Model:
    """A SCHEDULED kernel made ready; `sizes` (of dimensions) make everything concrete.

    CTAs that share nothing but their code behave alike, so one represents all, in a cluster too.
    Where those of a cluster reach each other, it is looked at whole, or one group of them after the
    other (`of`).

    `ranks`: of the CTAs that are looked at; None is any.
    """

    def __init__(self, kernel: Kernel, sizes: Sizes | None = None) -> None:
        self.kernel, self.sizes = kernel, sizes
        self.counted = FEW
        """Loops with constant bounds and no more iterations than this are followed exactly."""
        self.left_open = False
        """Was there one with more, so that it was taken to run any number of times?"""
        flat = list(walk(kernel.body))
        self.partitions = tuple(op for op in kernel.body if isinstance(op, Partition))
        launch = ops.grid_of(kernel)
        self.cluster = launch.cluster if launch else 1
        self.effects = effects_of(kernel)
        every = [effect for op in flat for effect in op.effects(kernel.definers)]
        accesses = [effect for effect in every if isinstance(effect, Access)]
        self.carried = {v.name: first.name for v, first in carried_operands(kernel).items()}
        """Operands in registers that loops carry: each name, and the one for all of them."""
        clusters = any(isinstance(e, Arrive) and e.on == "cluster" for e in every)
        self.joined = clusters or any(map(reaches_others, flat))
        """Do the CTAs of a cluster do anything with each other?"""
        self.ranks = self._ranks()
        self.reached: set[tuple[int, int]] = set()
        """Pairs of ranks: a CTA, and one that it was seen to reach."""
        self.meets = any(not op.relaxed for op in kernel.of(ops.SyncCluster))
        """Do the CTAs of a cluster see all of each other at some time?"""
        self.pairs = any(access.pair for access in accesses)
        """Do products read the SMEM of two CTAs?"""
        self.written = written_tensors(kernel)
        self.fixed = dict(kernel.sizes)
        halved = {x.of for x in accesses if any(s.half is not None for w in x.spans for s in w)}
        self.arrays = self._arrays(flat, halved)
        columns = (v for op in flat for v in results_of(op) if isinstance(v.type, Columns))
        self.columns = frozenset(v.name for v in columns)
        """Arrays in tensor memory; `bytes` of theirs are columns, of sums and operands those of one
        half of each warp's lanes, then those of the other."""
        using = (op for op in flat if not isinstance(op, ops.CompleteAccumulator))
        self.used = frozenset(v.name for op in using for v in operands(op))
        """Values that are used other than as the registers of a complete accumulator."""
        copies = (x for x in accesses if (x.kind, x.space) == ("write", "smem") and x.asynchronous)
        self.copied = frozenset(x.of.name for x in copies if x.of is not None)
        """Arrays that the async proxy writes."""
        self.needed = needed_values(kernel, self.effects)
        self.work: dict[int, tuple[int, int, int]] = {}
        """By partition that hands sums on: where its work loop begins and ends, and from where on
        the arrival has been made that comes before a wait for all."""
        self.borders: dict[tuple[str, int], set[int]] = {}
        """Where accesses to items of arrays begin or end, by the arrays' label and bytes."""
        self.touched: set[tuple[int, int]] = set()
        """Barriers that somebody was seen to use, by CTA and array."""
        self.ask_for_first: set[Any] = set()
        """The loops (signatures) whose first iteration a test was seen to ask for."""
        self.asked_at = defaultdict[Term, set[tuple[int, int]]](set)
        """Where tests were seen to be asked for (partition and place), of all iterations."""
        self.made_at = defaultdict[Term, set[tuple[int, int]]](set)
        """Where they were made, or asked for where they were made before all loops."""
        self.decided_anew = False
        """Whether a test was decided for one iteration that holds for all."""
        self.names_of_terms: dict[Any, Any] = {}
        self.codes: list[Code] = []
        self.num_warpgroups = sum(p.num_warpgroups for p in self.partitions) or 1
        self.num_agents = sum(p.num_agents for p in self.partitions) or 1
        self.entry_registers = ops.entry_registers(kernel, self.num_warpgroups)

    def at(self, sizes: Sizes) -> Model:
        """The same kernel at these sizes; the code is shared, what a proof has learnt is not."""
        made = self.counting(FEW)
        made.sizes = sizes
        return made.of(made._ranks())

    def counting(self, most: int) -> Model:
        """With loops of `most` iterations counted, and nothing learnt."""
        made = copy(self)
        made.counted, made.left_open = most, False
        made.borders, made.ask_for_first, made.names_of_terms = {}, set(), {}
        made.asked_at, made.made_at = defaultdict(set), defaultdict(set)
        return made

    def of(self, ranks: tuple[int | None, ...]) -> Model:
        """These CTAs of the cluster alone; all that was learnt is shared."""
        made = copy(self)
        made.ranks = ranks
        made.__dict__.pop("names", None)
        return made

    def _ranks(self) -> tuple[int | None, ...]:
        whole = self.cluster == 1 or self.joined or self.sizes is not None
        return tuple(range(self.cluster)) if whole else (None,)

    @property
    def ctas(self) -> range:
        """CTAs that are looked at."""
        return range(len(self.ranks))

    def reach(self, cta: int, rank: int) -> int:
        """The CTA of that rank, which `cta` reaches. Raises Outside if it is not looked at."""
        own = self.ranks[cta]
        if own is not None:
            self.reached.add((own, rank))
        if rank not in self.ranks:
            raise Outside(own, rank)
        return self.ranks.index(rank)

    def _arrays(self, flat: list[Any], halved: set[Value | None]) -> dict[str, Array]:
        made: dict[str, Array] = {}
        barriers = 0
        for op, value in ((x, v) for x in flat for v in results_of(x)):
            name, index = value.name, len(made)
            match value.type:
                case Barriers(num=num):
                    made[name] = Array(name, op.label, num, 0, op.arrivals, barriers, index)
                    barriers += num
                case Shared(num=num, bytes=bytes):
                    made[name] = Array(name, op.label, num, bytes, index=index)
                case Columns(num=num, columns=columns):
                    bytes = columns * (2 if value in halved else 1)
                    made[name] = Array(name, op.label, num, bytes, index=index)
                case _:
                    pass
        self.num_barriers = barriers
        return made

    @cached_property
    def names(self) -> list[str]:
        """Of the agents, by index."""
        told: list[str] = []
        roles = [p.role for p in self.partitions]
        for cta, number, p, rank in self.agents:
            where = f"CTA {self.ranks[cta]}, " if len(self.ctas) > 1 else ""
            role = p.role if roles.count(p.role) <= 1 else f"{p.role} partition {number}"
            which = f" {rank}" if p.num_warpgroups > 1 else ""
            told.append(f"{where}{role} warpgroup{which}")
        return told

    @property
    def agents(self) -> Iterator[tuple[int, int, Partition, int]]:
        """The CTA, the partition with its number, and the rank of each agent."""
        partitions = [*enumerate(self.partitions or (Partition(role="kernel"),))]
        for cta, (number, p) in product(self.ctas, partitions):
            yield from ((cta, number, p, rank) for rank in range(p.num_agents))

    def dim(self, name: str) -> Term:
        return {**(self.sizes or {}), **self.fixed}.get(name, ("dim", name))

    def rank(self, cta: int) -> Term:
        """The index of a CTA in its cluster."""
        rank = self.ranks[cta]
        return ("rank",) if rank is None else rank
