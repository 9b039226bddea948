"""The accesses of a kernel, read off its ops."""

from __future__ import annotations

from wsdsl.artifact.access import Access
from wsdsl.codegen.byte_vectors import MOST, may_be_words
from wsdsl.ir.complete_writes import written_whole
from wsdsl.ir.memory_ops import LoadGlobal, StoreGlobal
from wsdsl.ir.op import Kernel
from wsdsl.ir.tensor_accesses import mapped_tensors, touches
from wsdsl.ir.types import Tensor


def access_of(kernel: Kernel) -> Access:
    """Read the accesses off a kernel, TILE or SCHEDULED."""
    found = list(touches(kernel))
    alignment: dict[str, int] = {}
    for op, touch in found:
        if isinstance(op, LoadGlobal | StoreGlobal):
            assert isinstance(op.tensor.type, Tensor)
            needed = op.tensor.type.dtype.size(op.vector)
            if isinstance(op, LoadGlobal) and may_be_words(op):
                needed = 1 if touch.tensor in kernel.unaligned else MOST
            alignment[touch.tensor] = max(needed, alignment.get(touch.tensor, 1))
    return Access(
        reads=frozenset(touch.tensor for _, touch in found if touch.reads or touch.adds),
        writes=frozenset(touch.tensor for _, touch in found if touch.writes),
        mapped=frozenset(mapped_tensors(kernel).values()),
        alignment=alignment,
        whole=written_whole(kernel) if kernel.level == "tile" else {},
    )
