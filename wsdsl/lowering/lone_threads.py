"""Partitions whose bodies one thread runs: `insert_prologue` puts them into an `elect`."""

from __future__ import annotations

from wsdsl.ir.memory_ops import ClearPanels, ThreadLoad
from wsdsl.ir.pipeline_ops import Partition
from wsdsl.ir.walk import walk


def by_one_thread(op: Partition) -> bool:
    """Whether all that it does is to start copies, or products."""
    if op.role == "load":
        return not any(isinstance(inner, ThreadLoad) for inner in walk(op.body))
    # A warpgroup that clears what is not to be multiplied has one thread multiply for itself.
    return op.role == "mma" and not any(isinstance(inner, ClearPanels) for inner in walk(op.body))
