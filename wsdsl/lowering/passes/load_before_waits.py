"""Load what follows an exchange between CTAs while they wait for each other.

Before:
    store_partials(fn="add", x=%squares, shared=%partials, ctas=8, barriers=%full, ...)
    mbarrier_wait(barriers=%full, state=%s)
    %sum = reduce_partials(fn="add", shared=%partials, parts=32, state=%s)
    %w: frag<bf16[1x1024]> = load_global(tensor=%W, index=(%n_index,))
After:
    store_partials(fn="add", x=%squares, shared=%partials, ctas=8, barriers=%full, ...)
    %w: frag<bf16[1x1024]> = load_global(tensor=%W, index=(%n_index,), in_order=True)
    mbarrier_wait(barriers=%full, state=%s)
    %sum = reduce_partials(fn="add", shared=%partials, parts=32, state=%s)

What a row is multiplied by would be asked for when the last exchange is over, and the CTA would
wait again. Only loads of what the kernel does not write, and that no wait tells the place of, and
only in front of the last exchange, behind what is sent: what is loaded earlier takes registers for
longer. As many as there are registers for beside the row's: tensor by tensor, as they are asked
for.

Why here: behind `load_tiles_ahead`, which takes other loads into the iteration before.
"""

from collections.abc import Iterable
from dataclasses import replace

from wsdsl.ir.analysis.tensor_accesses import written_tensors
from wsdsl.ir.op import Kernel, Op, Region
from wsdsl.ir.ops import LoadGlobal, Partition, StorePartials, grid_of
from wsdsl.ir.rewriter import with_regions
from wsdsl.ir.types import THREADS, Fragment
from wsdsl.lowering.loads_ahead import with_place

WORD, MOST, BESIDE = 4, 255, 24
"""Bytes; registers of a thread, at the most; and those that it has for other things meanwhile, when
a row is reduced.
"""


def load_before_waits(kernel: Kernel) -> Kernel:
    if not any(op.ctas > 1 for op in kernel.of(StorePartials)):
        return kernel
    if any(op.role != "compute" for op in kernel.of(Partition)):
        return kernel  # Its registers hold products' sums meanwhile.
    stored, partitions = written_tensors(kernel), kernel.of(Partition)
    grid = grid_of(kernel)
    ctas = grid.ctas_per_sm if grid else 1
    groups = sum(op.num_warpgroups for op in partitions)
    registers = min(MOST, kernel.target.entry_registers(groups * ctas))
    room = WORD * THREADS * (registers - BESIDE)
    return replace(kernel, body=_region(kernel.body, stored, room))


def _region(region: Region, stored: frozenset[str], room: int) -> Region:
    """`room`: bytes of all threads' registers for what is loaded."""
    region = tuple(with_regions(op, lambda inner: _region(inner, stored, room)) for op in region)
    sends = [i for i, op in enumerate(region) if isinstance(op, StorePartials) and op.ctas > 1]
    if not sends:
        return region
    at = sends[-1] + 1
    early, left = list[Op](), room - _bytes(region[:at])
    behind = [op for op in region[at:] if isinstance(op, LoadGlobal)]
    for tensor in dict.fromkeys(op.tensor for op in behind if op.tensor.name not in stored):
        asked = [op for op in behind if op.tensor == tensor]
        needed = [o for op in asked for o in with_place(region[at:], op)]
        if _bytes(asked) <= left and needed:
            left -= _bytes(asked)
            early += [o for o in dict.fromkeys(needed) if o not in early]
    rest = tuple(op for op in region[at:] if op not in early)
    asked = (replace(o, in_order=True) if isinstance(o, LoadGlobal) else o for o in early)
    return (*region[:at], *asked, *rest)


def _bytes(ops: Iterable[Op]) -> int:
    """That loads bring."""
    kinds = (op.result.type for op in ops if isinstance(op, LoadGlobal))
    return sum(k.rows * k.columns * k.dtype.bytes for k in kinds if isinstance(k, Fragment))
