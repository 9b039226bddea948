"""Load what follows an exchange between CTAs in front of it.

Before:
    store_partials(fn="add", x=%squares, shared=%partials, ctas=8, barriers=%full, ...)
    wait_barrier(barriers=%full, state=%s)
    %sum = reduce_partials(fn="add", shared=%partials, parts=32, state=%s)
    %w: frag<bf16[1x1024]> = load_global(tensor=%W, index=(%n_index,))
After:
    %w: frag<bf16[1x1024]> = load_global(tensor=%W, index=(%n_index,), in_order=True)
    store_partials(fn="add", x=%squares, shared=%partials, ctas=8, barriers=%full, ...)
    wait_barrier(barriers=%full, state=%s)
    %sum = reduce_partials(fn="add", shared=%partials, parts=32, state=%s)

What a row is multiplied by would be asked for when the last exchange is over, and the CTA would
wait again. Only loads of what the kernel does not write, and that no wait tells the place of, and
only in front of the last exchange: what is loaded earlier takes registers for longer. So do not
more bytes than are held of the row: with them fewer CTAs would be on an SM.

Why here: behind `load_tiles_ahead`, which takes other loads into the iteration before.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from wsdsl.ir.barrier_ops import Elect
from wsdsl.ir.memory_ops import LoadGlobal, StorePartials
from wsdsl.ir.op import Kernel, Op, Region
from wsdsl.ir.pipeline_ops import Partition
from wsdsl.ir.tensor_accesses import written_tensors
from wsdsl.ir.types import Fragment
from wsdsl.ir.walk import with_regions
from wsdsl.lowering.load_places import with_place


def load_before_waits(kernel: Kernel) -> Kernel:
    if not any(op.ctas > 1 for op in kernel.of(StorePartials)):
        return kernel
    if any(op.role != "compute" for op in kernel.of(Partition)):
        return kernel  # Its registers hold products' sums meanwhile.
    stored = written_tensors(kernel.ops)
    return replace(kernel, body=_region(kernel.body, stored))


def _region(region: Region, stored: frozenset[str]) -> Region:
    region = tuple(with_regions(op, lambda inner: _region(inner, stored)) for op in region)
    sends = [i for i, op in enumerate(region) if isinstance(op, StorePartials) and op.ctas > 1]
    if not sends:
        return region
    # The bytes are expected in front of what sends them.
    at = max(i for i in range(sends[-1]) if isinstance(region[i], Elect))
    early = list[Op]()
    for op in region[sends[-1] :]:
        if isinstance(op, LoadGlobal) and op.tensor.name not in stored:
            early += [o for o in with_place(region[at:], op) if o not in early]
    if _bytes(early) > _bytes(region[:at]):
        return region
    rest = tuple(op for op in region[at:] if op not in early)
    asked = (replace(o, in_order=True) if isinstance(o, LoadGlobal) else o for o in early)
    return (*region[:at], *asked, *rest)


def _bytes(ops: Iterable[Op]) -> int:
    """That loads bring."""
    kinds = (op.result.type for op in ops if isinstance(op, LoadGlobal))
    return sum(k.rows * k.columns * k.dtype.bytes for k in kinds if isinstance(k, Fragment))
