"""Names of barriers: the tensors in a pipeline, and the phase that is waited for."""

from collections import defaultdict

from wsdsl.ir import ops
from wsdsl.ir.op import Kernel, Value, walk
from wsdsl.ir.ops import (
    AllocateMbarriers,
    ClcTryCancel,
    MbarrierArrive,
    Partition,
    Tcgen05Commit,
    Tcgen05St,
)

FULL, EMPTY = "full", "empty"


def edge_names(kernel: Kernel) -> dict[str, str]:
    """By the name of a value that is barriers: "pipeline of A, B (full)"."""
    made = kernel.definers
    brought: dict[str, dict[str, None]] = defaultdict(dict)

    def number(value: Value) -> str:
        """The number in a pipeline's labels of barriers and stages: full_1, empty_1, slots_1."""
        op = made.get(value)
        label = op.label if isinstance(op, (AllocateMbarriers, ops.AllocateShared)) else value.name
        return label.rpartition("_")[2] if label.rpartition("_")[2].isdigit() else ""

    for op in kernel.ops:
        match op:
            case ops.TmaLoad(map=map, barriers=barriers):
                source = made[map]
                assert isinstance(source, ops.MakeTensorMap)
                brought[number(barriers)][source.tensor.name] = None
            case ops.ThreadLoad(tensor=tensor, shared=shared):
                brought[number(shared)][tensor.name] = None
            case ops.StoreShared(shared=shared, state=state) if state is not None:
                brought[number(shared)]["transformed operands"] = None
            case Tcgen05St(columns=columns):
                brought[number(columns)]["transformed operands"] = None
            case ClcTryCancel(barriers=barriers):
                brought[number(barriers)]["the next tile"] = None
            case Tcgen05Commit(barriers=barriers):
                # Commits to empty barriers release a stage of another pipeline.
                if barriers.name.startswith(FULL):
                    brought[number(barriers)]["accumulators"] = None
            case Partition(role="scale"):
                own = (o.barriers for o in walk(op.body) if isinstance(o, MbarrierArrive))
                for barriers in own:
                    if barriers.name.startswith(FULL):
                        brought[number(barriers)]["scale factors"] = None
            case ops.SendFragment(shared=shared):
                brought[number(shared)]["accumulators of the cluster"] = None
            case _:
                pass
    found: dict[str, str] = {}
    for op in kernel.ops:
        if isinstance(op, AllocateMbarriers):
            side = next((s for s in (FULL, EMPTY) if op.label.startswith(s)), op.label)
            what = ", ".join(brought[number(op.result)])
            found[op.result.name] = f"pipeline of {what} ({side})" if what else op.label
    return found
