"""GPUs that kernels are compiled for: differences between generations, and between the GPUs
of one.

A kernel's is `Kernel.target`. Their speeds are in `wsdsl/rates`.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache

from wsdsl.record import record


@record
class Target:
    """`clusters`: (CTAs of a cluster, how many such run at the same time) with a CTA on each SM, as
    `cuOccupancyMaxActiveClusters` tells: a cluster lies in one GPC, where SMs may be left over.
    """

    name: str
    arch: str
    capability: tuple[int, int]
    num_sms: int
    memory_bytes: float
    """Bytes per cycle that the GPU's memory reads or writes."""
    clusters: tuple[tuple[int, int], ...] = ()
    l2_bytes: float = 50e6
    smem_bytes: int = 232448
    """Dynamic SMEM a CTA may have (227 KB)."""
    max_cluster: int = 8
    """CTAs of a cluster, without asking for more."""
    register_file: int = 65536
    """Registers of an SM."""
    max_registers: int = 255
    """Registers of a thread that an instruction can name."""
    ptx: int = 83
    """The version of PTX that is emitted: drivers from CUDA 12.3 on take 8.3. Where LLVM does not
    know it of `arch`, it aborts, and ends the process."""
    llvm_arch: str = ""
    """LLVM's target, if older LLVMs do not know the architecture, or not all of its
    instructions, and the version of PTX that is then written."""
    ptx_header: int = 0
    has_tensor_memory: bool = False
    """Whether products are summed there, and not in registers."""
    claims_clusters: bool = False
    """Whether CTAs that run can claim clusters that have not started (cluster launch control)."""
    multiplies_integers: bool = True
    """Whether the tensor cores take i8 and u8."""
    is_run: bool = True
    """Whether kernels run on it by default; others are only compiled for."""
    device: str = r"(?!)"
    """A pattern of the names that drivers give such GPUs."""

    def __str__(self) -> str:
        return f"{self.arch} ({self.name})"

    def entry_registers(self, warpgroups: int) -> int:
        """Return the registers per thread at the entry of a kernel of `warpgroups` warpgroups."""
        return self.register_file // (128 * warpgroups) // 8 * 8

    def cluster_room(self, size: int) -> int:
        """Clusters that run at the same time."""
        # Asked for hundreds of times by a choice.
        for known, room in self.clusters:
            if known == size:
                return min(room, self.num_sms // size)
        return self.num_sms // size

    def run_at_once(self, tiles: int, size: int) -> bool:
        """Return whether all tiles, one per CTA, run at the same time in clusters of the size."""
        return tiles <= size * self.cluster_room(size)


H200 = Target(
    "H200",
    "sm_90a",
    (9, 0),
    num_sms=132,
    memory_bytes=2950.0,
    clusters=((2, 66), (4, 30), (8, 15)),
    device=r"\bH200\b(?!.*MIG)",
)
TB_PER_S = H200.memory_bytes / 4.8
"""Measured bandwidth of an H200 versus its data sheet; other GPUs have the data sheet alone."""
H100_SXM = replace(
    H200, name="H100 SXM", memory_bytes=3.35 * TB_PER_S, device=r"\bH100\b(?!.*(PCIe|NVL|MIG))"
)
GH200 = replace(H200, name="GH200", memory_bytes=4.0 * TB_PER_S, device=r"\bGH200\b(?!.*MIG)")
H100_PCIE = replace(
    H200,
    name="H100 PCIe",
    num_sms=114,
    memory_bytes=2.0 * TB_PER_S,
    clusters=(),
    device=r"\bH100\b.*PCIe(?!.*MIG)",
)
B200 = Target(
    "B200",
    "sm_100a",
    (10, 0),
    num_sms=148,
    memory_bytes=8.0 * TB_PER_S,
    l2_bytes=126e6,
    ptx=86,
    llvm_arch="sm_100a",
    ptx_header=88,
    has_tensor_memory=True,
    claims_clusters=True,
    is_run=False,
    device=r"\bB200\b(?!.*MIG)",
)
B300 = replace(
    B200,
    name="B300",
    arch="sm_103a",
    capability=(10, 3),
    multiplies_integers=False,
    device=r"\bB300\b(?!.*MIG)",
)
TARGETS = (H200, H100_SXM, GH200, H100_PCIE, B200, B300)


@cache
def target_of(arch: str, num_sms: int | None = None) -> Target:
    """Return the target of an architecture: its first GPU; or one that has `num_sms`, or
    as large a part of the first.
    """
    cards = [card for card in TARGETS if card.arch == arch]
    if num_sms is None:
        return cards[0]
    part = replace(cards[0], name=f"{num_sms} SMs of {cards[0]}", num_sms=num_sms)
    return next((card for card in cards if card.num_sms == num_sms), part)


def target_of_device(device: str, arch: str, num_sms: int) -> Target:
    """Return the GPU whose driver gives this name; one that is not known is taken for another of
    the architecture, with a name of its own.
    """
    for card in TARGETS:
        if card.arch == arch and card.num_sms == num_sms and re.search(card.device, device):
            return card
    return replace(target_of(arch), name=device, num_sms=num_sms, device=re.escape(device))
