"""Hardware parameters of a GPU, from which the cost model predicts the time of a kernel.

Each has a unit, a meaning, and the microbenchmark of `wsdsl calibrate` that measures it
(`wsdsl/calibrate`). docs/rates.md lists them with the values of both GPUs.

Cycles are those of an SM. Units outside of it (L2, other SMs) have another clock, which does not
fall when the tensor cores are busy: their cycles are `tensor_smem_clock` times nanoseconds, so that
a model can add them to those of MMAs. DRAM and the start of a kernel have nanoseconds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any, NamedTuple

ROWS = 64
A_BYTES = 32 * ROWS
"""Of the rows of one wgmma."""
COLUMN_BYTES = 32
"""Of one of its columns, for all types: 16 elements of 16 bits, 32 of 8, 8 of tf32."""

PRODUCTS = "products"
"""The source of parameters that are fitted to measured matmuls, without a microbenchmark."""


def rate(unit: str, meaning: str, bench: str, *, outside: bool = False) -> Any:
    """A field of `Rates`. `bench`: which microbenchmark measures it; `outside`: of the SM."""
    described = {"unit": unit, "meaning": meaning, "bench": bench, "outside": outside}
    return field(metadata=described)


def outside(unit: str, meaning: str, bench: str) -> Any:
    """A rate of what lies outside of the SM."""
    return rate(unit, meaning, bench, outside=True)


cycles = partial(rate, "cycles")
nanoseconds = partial(rate, "nanoseconds")
frequency = partial(rate, "cycles per nanosecond")
outer_cycles = partial(outside, "cycles")
bandwidth = partial(outside, "bytes per cycle and SM")


class Described(NamedTuple):
    """Description of a hardware parameter."""

    name: str
    unit: str
    meaning: str
    bench: str
    outside: bool


@dataclass(frozen=True)
class Rates:
    """`origin`: where they come from; `notice`: a suggestion to the user, or empty."""

    # Tensor cores. One wgmma multiplies 64 rows by N columns over 32 bytes of the contraction.
    tensor_16_cycles: float = rate(
        "cycles per column", "of a wgmma of bf16 or f16, where nothing else limits it", "tensor"
    )
    tensor_8_cycles: float = rate("cycles per column", "of a wgmma of fp8", "tensor")
    tensor_32_cycles: float = rate("cycles per column", "of a wgmma of tf32", "tensor")
    tensor_least_cycles: float = cycles(
        "of a wgmma with A in registers, however few its columns", "tensor"
    )
    tensor_smem_bytes: float = rate(
        "bytes per cycle and SM", "at which wgmma reads its operands in SMEM", "tensor"
    )
    tensor_latency_cycles: float = cycles(
        "from the issue of a wgmma to its accumulator in registers, less its issue cycles", "tensor"
    )

    # SMEM.
    smem_read_bytes: float = rate("bytes per cycle and SM", "that threads read from SMEM", "smem")
    smem_fill_sharing: float = rate(
        "fraction",
        "of the shorter time that is added where wgmma reads SMEM while TMA fills it: 0 with "
        "separate ports, 1 with one port",
        "smem_sharing",
    )

    # L2, lines that it holds.
    l2_bytes: float = bandwidth(
        "that TMA loads to each of all SMs, aligned lines, each read by a row or column of CTAs, "
        "as the operands of a matmul are",
        PRODUCTS,
    )
    l2_own_bytes: float = bandwidth("as `l2_bytes`, where each line is read by one CTA", "l2")
    l2_one_bytes: float = outside("bytes per cycle", "that TMA loads to one SM alone", "l2")
    l2_cluster_2_bytes: float = bandwidth(
        "as `l2_bytes` with CTAs in clusters of 2, without multicast", PRODUCTS
    )
    l2_cluster_4_bytes: float = bandwidth("as `l2_cluster_2_bytes`, in clusters of 4", PRODUCTS)
    l2_multicast_2_bytes: float = bandwidth(
        "that each SM receives by multicast in clusters of 2, whose CTAs load half each", PRODUCTS
    )
    l2_multicast_4_bytes: float = bandwidth("as `l2_multicast_2_bytes`, in clusters of 4", PRODUCTS)
    l2_crossing: float = rate(
        "times as long", "for a row of 128 bytes that crosses from one line to the next", PRODUCTS
    )
    l2_split: float = rate(
        "times as long", "for a row of 128 bytes that begins inside a sector of 32", PRODUCTS
    )
    l2_load_bytes: float = bandwidth("that threads load, 16 bytes each, 8 in flight", "l2_threads")
    l2_store_bytes: float = bandwidth("that threads store, 16 bytes each", "l2_threads")
    l2_tma_store_bytes: float = bandwidth("that TMA stores", "l2")

    # DRAM: of the whole GPU, in nanoseconds, since DRAM has a separate clock.
    dram_read_bytes: float = rate("bytes per nanosecond", "that TMA reads, without writes", "dram")
    dram_write_bytes: float = rate("bytes per nanosecond", "written, without reads", "dram")
    dram_copy_bytes: float = rate("bytes per nanosecond", "read and written, half and half", "dram")
    dram_loaded_ns: float = nanoseconds(
        "from a load to its data while all SMs load: the bytes in flight over this latency are the "
        "rate, up to the bandwidth of DRAM",
        "dram",
    )

    # Instructions.
    fma_lanes: float = rate("threads per cycle and SM", "`fma.f32`", "issue")
    exp_lanes: float = rate("threads per cycle and SM", "`ex2`, `rcp`, `rsqrt`, `tanh`", "issue")

    # Latencies.
    tma_l2_cycles: float = outer_cycles(
        "from the issue of a TMA load to the end of its wait, of lines in L2", "latency"
    )
    tma_dram_cycles: float = outer_cycles("as `tma_l2_cycles`, of lines in DRAM", "latency")
    tma_issue_cycles: float = cycles(
        "of the thread that issues them, from one TMA load to the next", "latency"
    )
    mbarrier_cycles: float = cycles("from an arrive to the end of another warp's wait", "barriers")
    named_barrier_cycles: float = cycles("of a `bar.sync` of 256 threads", "barriers")
    cluster_exchange_cycles: float = outer_cycles(
        "from a store to another CTA's SMEM and an arrive there to the end of its wait", "cluster"
    )
    cluster_barrier_cycles: float = outer_cycles("of a `barrier.cluster` of two CTAs", "cluster")
    cluster_send_bytes: float = bandwidth(
        "that threads store to the SMEM of another CTA", "cluster"
    )
    hand_over_cycles: float = outer_cycles(
        "from the last store of one CTA to the first load of another that waited for its flag in "
        "global memory",
        "hand_over",
    )
    atomic_cycles: float = outer_cycles("of an `atom.add` whose result is used", "hand_over")
    kernel_ns: float = nanoseconds(
        "from empty kernel to empty kernel in a graph, of one CTA per SM with all its SMEM",
        "kernels",
    )
    dependent_kernel_ns: float = nanoseconds(
        "as `kernel_ns`, with programmatic dependent launch", "kernels"
    )

    # The clock, by load. The GPU's power is limited: kernels that move more bytes run slower.
    clock: float = frequency("of a lightly loaded SM", "power")
    tensor_smem_clock: float = frequency(
        "while all tensor cores multiply random numbers, 64 x 256 per wgmma, operands in SMEM",
        "power",
    )
    tensor_l2_clock: float = frequency(
        "as `tensor_smem_clock`, both operands of 128 x 256 tiles from L2 (48 bytes per cycle)",
        "power",
    )

    # Resources.
    num_sms: float = rate("SMs", "of the GPU", "card")
    l2_capacity_bytes: float = rate("bytes", "of L2", "card")
    clusters_2: float = rate("clusters", "of 2 CTAs, each with an SM, that run at once", "card")
    clusters_4: float = rate("clusters", "as `clusters_2`, of 4 CTAs", "card")
    clusters_8: float = rate("clusters", "as `clusters_2`, of 8 CTAs", "card")

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
        """Cycles of one wgmma among many: of the tensor cores, or of its operands' reads if longer.
        With `rows`, of one tcgen05.mma of that many rows, which takes equally long for 64 and 128;
        each CTA of a pair reads half of the columns.
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

    def dram_ns(self, moved: float, written: float) -> float:
        """The least time in which DRAM moves `moved` bytes, including `written` bytes of writes."""
        return moved / self.dram_bytes(written / max(1.0, moved))

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
        raise ValueError(f"missing or illegal values: {', '.join(wrong)}")
    return Rates(**values, origin=origin, notice=notice)


ZERO = ("smem_fill_sharing",)
"""Rates that may be nothing."""
