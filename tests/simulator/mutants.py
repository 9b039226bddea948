"""Every small way to break the synchronization of a SCHEDULED kernel."""

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from wsdsl.ir import ops
from wsdsl.ir.op import Kernel, Op, Region, results_of
from wsdsl.ir.printer import print_head
from wsdsl.ir.rewriter import walk, with_regions

DELETED = (
    ops.MbarrierInit,
    ops.FenceMbarrierInit,
    ops.SyncCta,
    ops.SyncWarp,
    ops.SyncCluster,
    ops.NamedBarrierSync,
    ops.NamedBarrierArrive,
    ops.SemaphoreArrive,
    ops.SemaphoreWait,
    ops.Setmaxnreg,
    ops.MbarrierWait,
    ops.MbarrierArrive,
    ops.MbarrierArriveExpectTx,
    ops.FenceAsyncProxy,
    ops.TmaLoad,
    ops.TmaStore,
    ops.ThreadStore,
    ops.TmaStoreCommit,
    ops.TmaStoreWait,
    ops.StoreShared,
    ops.ThreadLoad,
    ops.SendFragment,
    ops.WgmmaFence,
    ops.WgmmaCommit,
    ops.WgmmaWait,
)


def exchange(kernel: Kernel, at: int | Op, *new: Op) -> Kernel:
    """The kernel with others in place of an op, or of the `at`-th one in the order of `walk`."""
    numbers = itertools.count()

    def visit(region: Region) -> Region:
        made: list[Op] = []
        for op in region:
            made += new if next(numbers) == at or op is at else (with_regions(op, visit),)
        return tuple(made)

    return replace(kernel, body=visit(kernel.body))


def changes(op: Op) -> Iterator[tuple[str, Op]]:
    match op:
        case ops.InitialState():
            yield "parity", replace(op, parity=1 - op.parity)
        case ops.AllocateMbarriers():
            for by in (-1, 1):
                yield f"arrivals {by:+d}", replace(op, arrivals=op.arrivals + by)
        case ops.MbarrierArriveExpectTx():
            for by in (-op.tx_bytes // 2, -16, 16, op.tx_bytes):
                yield f"tx_bytes {by:+d}", replace(op, tx_bytes=op.tx_bytes + by)
        case ops.Advance():
            for by in (-1, 1):
                yield f"num {by:+d}", replace(op, num=op.num + by)
        case ops.Setmaxnreg():
            for by in (-8, 8):
                yield f"count {by:+d}", replace(op, count=op.count + by)
            yield "increase", replace(op, increase=not op.increase)
        case ops.MbarrierArrive():
            if op.pred is not None:
                yield "no pred", replace(op, pred=None)
            if op.cta is not None:
                yield "own cta", replace(op, cta=None)
            yield "each thread", replace(op, each_thread=not op.each_thread)
        case ops.SemaphoreArrive():
            once = replace(op, by=None, wrap=None)
            yield "amount", replace(once, amount=-op.amount)
            yield "once", once
            yield "release", replace(op, release=not op.release)
        case ops.TmaStoreWait() | ops.WgmmaWait():
            yield "pending +1", replace(op, pending=op.pending + 1)
            if op.pending:
                yield "pending 0", replace(op, pending=0)
            if isinstance(op, ops.TmaStoreWait):
                yield "read", replace(op, read=not op.read)
        case ops.TmaLoad() if op.multicast is not None:
            yield "own cta", replace(op, multicast=None)
        case ops.SendFragment():
            if op.shift is not None:
                yield "no shift", replace(op, shift=None)
            for by in (-4096, 4096):
                yield f"offset {by:+d}", replace(op, offset=op.offset + by)
        case ops.NamedBarrierSync() | ops.NamedBarrierArrive():
            for by in (-1, 1):
                count = op.num_warpgroups + by
                yield f"num_warpgroups {by:+d}", replace(op, num_warpgroups=count)
            yield "barrier", replace(op, barrier=op.barrier % 15 + 1)
        case ops.SmemDescriptor():
            other = "64B" if op.swizzle == "128B" else "128B"
            yield "swizzle", replace(op, swizzle=other)
        case ops.MakeTensorMap():
            other = "64B" if op.swizzle == "128B" else "128B"
            yield "swizzle", replace(op, swizzle=other)
        case _:
            pass


def mutants(
    kernel: Kernel,
    deleted: tuple[type[Op], ...] = DELETED,
    changes: Callable[[Op], Iterable[tuple[str, Op]]] = changes,
) -> Iterator[tuple[str, Kernel]]:
    """(what was broken, the kernel)."""
    for at, op in enumerate(walk(kernel.body)):
        where = f"op {at}: {print_head(op)}"
        if isinstance(op, deleted) and not results_of(op):
            yield f"delete {where}", exchange(kernel, at)
            yield f"twice {where}", exchange(kernel, at, op, op)
        for what, new in changes(op):
            yield f"{what} {where}", exchange(kernel, at, new)
