"""The rates of a card: the few numbers from which the time of a kernel is told.

Each has a unit, a meaning, and the microbenchmark of `wsdsl calibrate` that measures it
(`wsdsl/calibrate`). docs/rates.md lists them with the values of both cards.

Cycles are those of an SM. What lies outside of it (L2, other SMs) has a clock of its own, which
does not fall when the tensor cores are busy: its cycles are `tensor_smem_clock` times nanoseconds,
so that a model can add them to those of products. Memory and the start of a kernel are told in
nanoseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

ROWS = 64
A_BYTES = 32 * ROWS
"""Of the rows of one wgmma."""
COLUMN_BYTES = 32
"""Of a column of it, whatever the type: 16 elements of 16 bits, 32 of 8, 8 of tf32."""

PRODUCTS = "products"
"""What no microbenchmark measures, but products that were measured tell."""


def rate(unit: str, meaning: str, bench: str, *, outside: bool = False) -> Any:
    """A field of `Rates`. `bench`: which microbenchmark measures it; `outside`: of the SM."""
    described = {"unit": unit, "meaning": meaning, "bench": bench, "outside": outside}
    return field(metadata=described)


def outside(unit: str, meaning: str, bench: str) -> Any:
    """A rate of what lies outside of the SM."""
    return rate(unit, meaning, bench, outside=True)


class Described(NamedTuple):
    """What is known of a rate beside its value."""

    name: str
    unit: str
    meaning: str
    bench: str
    outside: bool


@dataclass(frozen=True)
class Rates:
    """`origin`: where they come from; `notice`: what the user should do about it, if anything."""

    # Tensor cores. One wgmma multiplies 64 rows by N columns over 32 bytes of the contraction.
    tensor_16_cycles: float = rate(
        "cycles a column", "of a wgmma of bf16 or f16, where nothing else limits it", "tensor"
    )
    tensor_8_cycles: float = rate("cycles a column", "of a wgmma of fp8", "tensor")
    tensor_32_cycles: float = rate("cycles a column", "of a wgmma of tf32", "tensor")
    tensor_least_cycles: float = rate(
        "cycles", "of a wgmma with A in registers, however few its columns", "tensor"
    )
    tensor_smem_bytes: float = rate(
        "bytes a cycle and SM", "at which wgmma reads its operands in SMEM", "tensor"
    )
    tensor_latency_cycles: float = rate(
        "cycles",
        "from the issue of a wgmma to its sums in registers, beside those it is busy for",
        "tensor",
    )

    # SMEM.
    smem_read_bytes: float = rate("bytes a cycle and SM", "that threads read of SMEM", "smem")
    smem_fill_sharing: float = rate(
        "share",
        "of the shorter time that is added where wgmma reads SMEM while TMA fills it: 0 if each "
        "has ports, 1 if they share one",
        "smem_sharing",
    )

    # L2, lines that it holds.
    l2_bytes: float = outside(
        "bytes a cycle and SM",
        "that TMA brings to each of all SMs, aligned lines, each wanted by a row or column of CTAs "
        "as the operands of a product are",
        PRODUCTS,
    )
    l2_own_bytes: float = outside(
        "bytes a cycle and SM", "the same where no two CTAs want the same lines", "l2"
    )
    l2_one_bytes: float = outside("bytes a cycle", "that TMA brings to one SM alone", "l2")
    l2_cluster_2_bytes: float = outside(
        "bytes a cycle and SM",
        "as `l2_bytes` with CTAs in clusters of 2, without multicast",
        PRODUCTS,
    )
    l2_cluster_4_bytes: float = outside(
        "bytes a cycle and SM", "the same in clusters of 4", PRODUCTS
    )
    l2_multicast_2_bytes: float = outside(
        "bytes a cycle and SM",
        "that come to each SM by multicast in clusters of 2, of which each loads half",
        PRODUCTS,
    )
    l2_multicast_4_bytes: float = outside(
        "bytes a cycle and SM", "the same in clusters of 4", PRODUCTS
    )
    l2_crossing: float = rate(
        "times as long", "takes a row of 128 bytes that crosses from one line to the next", PRODUCTS
    )
    l2_split: float = rate(
        "times as long", "takes a row of 128 bytes that begins amid a sector of 32", PRODUCTS
    )
    l2_load_bytes: float = outside(
        "bytes a cycle and SM", "that threads load, 16 bytes each, 8 under way", "l2_threads"
    )
    l2_store_bytes: float = outside(
        "bytes a cycle and SM", "that threads store, 16 bytes each", "l2_threads"
    )
    l2_tma_store_bytes: float = outside("bytes a cycle and SM", "that TMA stores", "l2")

    # DRAM: of the whole card, in nanoseconds, since it has a clock of its own.
    dram_read_bytes: float = rate("bytes a nanosecond", "that TMA reads and nobody writes", "dram")
    dram_write_bytes: float = rate("bytes a nanosecond", "that are written and not read", "dram")
    dram_copy_bytes: float = rate("bytes a nanosecond", "read and written, half and half", "dram")
    dram_loaded_ns: float = rate(
        "nanoseconds",
        "from a load to its data while all SMs load: the bytes under way over this are the rate, "
        "as long as that is less than memory has",
        "dram",
    )

    # Instructions.
    fma_lanes: float = rate("threads a cycle and SM", "`fma.f32`", "issue")
    exp_lanes: float = rate("threads a cycle and SM", "`ex2`, `rcp`, `rsqrt`, `tanh`", "issue")

    # Latencies.
    tma_l2_cycles: float = outside(
        "cycles", "from the issue of a TMA load to the end of its wait, of what L2 holds", "latency"
    )
    tma_dram_cycles: float = outside("cycles", "the same of what memory holds", "latency")
    tma_issue_cycles: float = rate(
        "cycles", "of the thread that issues them, from one TMA load to the next", "latency"
    )
    mbarrier_cycles: float = rate(
        "cycles", "from an arrive to the end of another warp's wait", "barriers"
    )
    named_barrier_cycles: float = rate("cycles", "of a `bar.sync` of 256 threads", "barriers")
    cluster_exchange_cycles: float = outside(
        "cycles",
        "from a store to another CTA's SMEM and an arrive there to the end of its wait",
        "cluster",
    )
    cluster_barrier_cycles: float = outside(
        "cycles", "of a `barrier.cluster` of two CTAs", "cluster"
    )
    cluster_send_bytes: float = outside(
        "bytes a cycle and SM", "that threads store to the SMEM of a neighbour", "cluster"
    )
    hand_over_cycles: float = outside(
        "cycles",
        "from the last store of one CTA to the first load of another that waited for its flag in "
        "global memory",
        "hand_over",
    )
    atomic_cycles: float = outside("cycles", "of an `atom.add` whose result is used", "hand_over")
    kernel_ns: float = rate(
        "nanoseconds",
        "from kernel to kernel in a graph, of a CTA an SM with all its SMEM, which do nothing",
        "kernels",
    )
    dependent_kernel_ns: float = rate(
        "nanoseconds", "the same where each is let start before the one in front is over", "kernels"
    )

    # The clock, by what is busy. The card's power is limited: what moves more bytes runs slower.
    clock: float = rate("cycles a nanosecond", "of an SM that has little to do", "power")
    tensor_smem_clock: float = rate(
        "cycles a nanosecond",
        "while all tensor cores multiply random numbers, 64 x 256 a wgmma, operands in SMEM",
        "power",
    )
    tensor_l2_clock: float = rate(
        "cycles a nanosecond",
        "the same while L2 brings both operands of tiles of 128 x 256: 48 bytes a cycle and SM",
        "power",
    )

    # What there is.
    num_sms: float = rate("SMs", "of the card", "card")
    l2_capacity_bytes: float = rate("bytes", "of L2", "card")
    clusters_2: float = rate("clusters", "of 2 CTAs, each with an SM, that run together", "card")
    clusters_4: float = rate("clusters", "of 4", "card")
    clusters_8: float = rate("clusters", "of 8", "card")

    origin: str = field(default="", compare=False)
    notice: str = field(default="", compare=False)

    def tensor_cycles(
        self,
        columns: float,
        bits: int,
        *,
        a_in_registers: bool = False,
        rows: int = 0,
        cta_group: int = 1,
    ) -> float:
        """Of one wgmma, as one of many: the tensor cores, or the reads of its operands. With `rows`
        of one tcgen05.mma of so many, which takes as long for 64 as for 128; each CTA of a pair
        reads half of the columns.
        """
        each = {8: self.tensor_8_cycles, 32: self.tensor_32_cycles}.get(bits, self.tensor_16_cycles)
        read = 0 if a_in_registers else A_BYTES * max(1, rows / ROWS)
        read += columns * COLUMN_BYTES / cta_group
        each *= 2 if rows else 1
        least = max(columns * each, read / self.tensor_smem_bytes)
        return max(least, self.tensor_least_cycles)

    def dram_bytes(self, written: float) -> float:
        """Bytes a nanosecond where so much (0 to 1) of what moves is written: reads and writes get
        in each other's way, which the copy tells.
        """
        apart = written * self.dram_write_bytes + (1 - written) * self.dram_read_bytes
        lost = (self.dram_write_bytes + self.dram_read_bytes) / 2 - self.dram_copy_bytes
        return apart - 4 * written * (1 - written) * lost

    def clusters(self, size: int) -> int:
        """How many run at the same time."""
        known = {2: self.clusters_2, 4: self.clusters_4, 8: self.clusters_8}
        return int(known.get(size, self.num_sms // size))


DESCRIBED = tuple(Described(f.name, **f.metadata) for f in fields(Rates) if f.metadata)
"""Every rate, in order."""
OUTSIDE = {d.name: "bytes" not in d.unit for d in DESCRIBED if d.outside}
"""Rates of what has another clock than SMs, and whether they are times."""
FITTED = tuple(d.name for d in DESCRIBED if d.bench == PRODUCTS)
NAMES = tuple(described.name for described in DESCRIBED)


def with_values(values: Mapping[str, float], origin: str, notice: str = "") -> Rates:
    """ValueError unless there is a positive value for each rate, and for nothing else."""
    wrong = sorted(set(NAMES) ^ set(values))
    wrong += [
        n for n, v in values.items() if not 0 <= v < float("inf") or (not v and n not in ZERO)
    ]
    if wrong:
        raise ValueError(f"no value, or none that can be, for {', '.join(wrong)}")
    return Rates(**values, origin=origin, notice=notice)


ZERO = ("smem_fill_sharing",)
"""Rates that may be nothing."""
