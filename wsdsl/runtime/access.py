"""What a kernel does to its tensors: which it reads, writes, and by which means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from wsdsl.ir.barrier_ops import ArriveFlag, WaitFlag
from wsdsl.ir.memory_ops import (
    LoadGlobal,
    MakeTensorMap,
    StoreGlobal,
    ThreadLoad,
    ThreadStore,
    TmaLoad,
    TmaStore,
)
from wsdsl.ir.op import Kernel, Value
from wsdsl.ir.tile_ops import Load, Store
from wsdsl.ir.types import Tensor

NO_ALIGNMENT: Mapping[str, int] = {}


@dataclass(frozen=True, slots=True)
class Access:
    """Names of tensor parameters. `alignment`: bytes of which address and row strides must be
    multiples, where pairs of elements are accessed together.
    """

    reads: frozenset[str] = frozenset()
    writes: frozenset[str] = frozenset()
    mapped: frozenset[str] = frozenset()
    """Accessed by TMA, through a tensor map."""
    alignment: Mapping[str, int] = field(default_factory=lambda: dict(NO_ALIGNMENT))

    @property
    def only_written(self) -> frozenset[str]:
        """What a call may leave out, since nothing of it is read."""
        return self.writes - self.reads


def access_of(kernel: Kernel) -> Access:
    """Read the accesses off a kernel, TILE or SCHEDULED."""
    reads: set[str] = set()
    writes: set[str] = set()
    tensor_of: dict[Value, str] = {}
    alignment: dict[str, int] = {}
    for op in kernel.ops:
        match op:
            case MakeTensorMap():
                tensor_of[op.result] = op.tensor.name
            case TmaLoad():
                reads.add(tensor_of[op.map])
            case TmaStore():
                writes.add(tensor_of[op.map])
                if op.accumulate:
                    reads.add(tensor_of[op.map])
            case ArriveFlag() | WaitFlag():
                reads.add(op.tensor.name)
                writes.add(op.tensor.name)
            case Load() | ThreadLoad() | LoadGlobal():
                reads.add(op.tensor.name)
            case Store() | StoreGlobal() | ThreadStore():
                writes.add(op.tensor.name)
                if op.accumulate:
                    reads.add(op.tensor.name)
            case _:
                pass
        if isinstance(op, LoadGlobal | StoreGlobal):
            assert isinstance(op.tensor.type, Tensor)
            needed = op.vector * op.tensor.type.dtype.bytes
            alignment[op.tensor.name] = max(needed, alignment.get(op.tensor.name, 1))
    return Access(frozenset(reads), frozenset(writes), frozenset(tensor_of.values()), alignment)
