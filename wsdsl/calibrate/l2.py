"""What TMA moves between L2 and the SMs."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable

from wsdsl.calibrate.asm import Kernel
from wsdsl.calibrate.gpu import Gpu
from wsdsl.calibrate.rings import BLOCK, BLOCK_ROWS, loads, stores

PITCH = 4096
"""Bytes of a row of the panels that several CTAs want."""
OWN_PITCH = 512
"""Of those that one wants: twice 128 rows for each of 132 SMs are 17 MB, which L2 holds."""
SHIFTED = 256
"""Bytes behind the panels, so that their rows may begin later."""
COUNT = 2000
STORED = 1 << 17
"""Bytes that a CTA stores to again and again."""
PLAIN = loads("boxes", boxes=True)
CLUSTERS = {size: loads(f"boxes_{size}", boxes=True, cluster=size) for size in (2, 4)}
MULTICAST = {
    size: loads(f"multicast_{size}", boxes=True, cluster=size, multicast=True) for size in (2, 4)
}
STORES = stores("stores")
KERNELS = (PLAIN, *CLUSTERS.values(), *MULTICAST.values(), STORES)
Panels = Callable[[int], tuple[int, int]]
"""The number of either panel of a CTA."""


def product(num_sms: int, cluster: int = 1) -> tuple[Panels, int]:
    """A row and a column of a grid as square as can be; those of a cluster lie in one row. And how
    many panels there are."""
    width = -(-math.isqrt(num_sms) // cluster) * cluster
    rows = -(-num_sms // width)
    return lambda cta: (cta // width, rows + cta % width), rows + width


def table(panels: Panels, grid: int) -> bytes:
    rows = (BLOCK_ROWS * panel for cta in range(grid) for panel in panels(cta))
    return struct.pack(f"<{2 * grid}I", *rows)


class Rows:
    """Panels in the memory of the card."""

    def __init__(self, gpu: Gpu, panels: int, pitch: int) -> None:
        self.gpu, self.pitch, self.rows = gpu, pitch, panels * BLOCK_ROWS
        self.address = gpu.buffer(self.rows * pitch + SHIFTED)
        gpu.clear(self.address, self.rows * pitch + SHIFTED)

    def bytes_per_cycle(
        self, kernel: Kernel, grid: int, panels: Panels, shift: int = 0, parts: int = 1
    ) -> float:
        """Of each CTA. Rows begin `shift` bytes later; a box has a part of a block's rows."""
        gpu, box = self.gpu, BLOCK_ROWS // parts
        place = gpu.buffer(8 * grid)
        gpu.upload(place, table(panels, grid))
        map = gpu.rows(self.address + shift, self.rows, self.pitch, box)
        run = gpu.run(kernel, grid, COUNT, map, place, self.pitch // 2 - 1)
        return COUNT * BLOCK / run.cycles


def measure(gpu: Gpu) -> dict[str, float]:
    panels, many = product(gpu.num_sms)
    shared = Rows(gpu, many + 8, PITCH)
    own = Rows(gpu, 2 * gpu.num_sms, OWN_PITCH)
    found = {
        "l2_bytes": shared.bytes_per_cycle(PLAIN, gpu.num_sms, panels),
        "l2_own_bytes": own.bytes_per_cycle(PLAIN, gpu.num_sms, lambda cta: (2 * cta, 2 * cta + 1)),
        "l2_one_bytes": own.bytes_per_cycle(PLAIN, 1, lambda cta: (0, 1)),
    }
    for size, kernel in CLUSTERS.items():
        grid = size * gpu.room(kernel)
        wanted = product(grid, size)[0]
        found[f"l2_cluster_{size}_bytes"] = shared.bytes_per_cycle(kernel, grid, wanted)
        together = alike(wanted, size)
        rate = shared.bytes_per_cycle(MULTICAST[size], grid, together, parts=size)
        found[f"l2_multicast_{size}_bytes"] = rate
    return found | {"l2_tma_store_bytes": stored(gpu)}


def alike(panels: Panels, size: int) -> Panels:
    """All CTAs of a cluster want what the first one does."""
    return lambda cta: panels(cta // size * size)


def stored(gpu: Gpu) -> float:
    place = gpu.buffer(gpu.num_sms * STORED)
    run = gpu.run(STORES, gpu.num_sms, COUNT, place, STORED // BLOCK, BLOCK, STORED - 1)
    return COUNT * BLOCK / run.cycles


def measure_lines(gpu: Gpu) -> dict[str, float]:
    """Rows of boxes that begin amid a line, and amid a sector."""
    panels, many = product(gpu.num_sms)
    rows = Rows(gpu, many, PITCH)
    aligned = rows.bytes_per_cycle(PLAIN, gpu.num_sms, panels)
    crossing, split = (
        aligned / rows.bytes_per_cycle(PLAIN, gpu.num_sms, panels, shift) for shift in (64, 16)
    )
    return {"l2_crossing": crossing, "l2_split": split}
