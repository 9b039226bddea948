"""Which operands that TMA can not take are copied to longer rows in front of a launch.

Threads copy a tile each time that a CTA wants it, and a slot at a time; a copy of the whole operand
reads and writes it once. So the copy wins where tiles are wanted several times, and loses where few
rows meet large weights.
"""

import dataclasses
import math
from collections.abc import Collection

from wsdsl.diagnostics import ScheduleError
from wsdsl.ir.hardware.gmem_limits import whole_lines
from wsdsl.ir.op import Kernel
from wsdsl.ir.types import Sizes, Tensor
from wsdsl.lowering.cost_model.predict import predict
from wsdsl.lowering.cost_model.workload import Work
from wsdsl.lowering.footprint import axis_sizes
from wsdsl.lowering.pipeline import scheduled_tile
from wsdsl.lowering.product_operands import multiplied_tensors
from wsdsl.rates import Rates, rates_of


def padded_operands(
    kernel: Kernel, sizes: Sizes, names: Collection[str], singly: Collection[str] = ()
) -> tuple[str, ...]:
    """`names` as far as products read them, or none if that does not pay. Of a TILE kernel for
    whose `unaligned` tensors nothing is done yet; `singly`: those that threads would copy element
    by element.
    """
    made, by_threads = _chosen(kernel, sizes, singly)
    found = {tensor.name: tensor.type for tensor in multiplied_tensors(made)}
    chosen = tuple(name for name in kernel.unaligned if name in found and name in names)
    if not chosen:
        return ()
    rates = rates_of(kernel.target)
    copying = sum(_copy_nanoseconds(rates, found[name], sizes) for name in chosen) / 1000
    if copying + _least_microseconds(made, sizes) >= by_threads:
        return ()  # Whatever would be chosen.
    rest = tuple(name for name in kernel.unaligned if name not in chosen)
    _, by_tma = _chosen(dataclasses.replace(kernel, unaligned=rest, padded=chosen), sizes, singly)
    return chosen if by_tma + copying < by_threads else ()


def _chosen(kernel: Kernel, sizes: Sizes, singly: Collection[str]) -> tuple[Kernel, float]:
    """With the schedule that would be chosen, and microseconds by that; infinite where the one that
    is given does not fit.
    """
    try:
        made = scheduled_tile(kernel, sizes)
    except ScheduleError:
        return kernel, math.inf
    assert made.schedule is not None
    tile = axis_sizes(made, made.schedule)
    return made, predict(Work(made, sizes, singly), made.schedule, tile).microseconds


def _least_microseconds(made: Kernel, sizes: Sizes) -> float:
    """In which memory has read and written all tensors."""
    work = Work.of(made, sizes)
    return work.least_memory_cycles / work.rates.tensor_smem_clock / 1000


def _copy_nanoseconds(rates: Rates, kind: object, sizes: Sizes) -> float:
    """It starts, and what is behind it starts when it is over. Its rows begin amid sectors: of 1023
    to 5001 elements it moves 1300 to 1550 bytes a nanosecond on an H200, where this says 1555.
    """
    assert isinstance(kind, Tensor)
    *outer, row = (d if isinstance(d, int) else sizes[d] for d in kind.dims)
    width = row * kind.dtype.bits // 8
    moved = math.prod(outer) * (width + whole_lines(width))
    starts = 2 * rates.kernel_ns - rates.dependent_kernel_ns
    return starts + moved / (rates.dram_copy_bytes / rates.l2_split)
