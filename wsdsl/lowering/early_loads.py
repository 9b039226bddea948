"""Decide which operands are loaded before the previous kernel is complete, and by which partition.

Tensors of `Schedule.pdl_independent` are not stored by that kernel. Their loads do not wait, so
the pipelines fill with them while the previous kernel ends; partitions that load the others wait
for it, and so do those that compute and that load the epilogue's operands in parts.
"""

from collections.abc import Iterable, Iterator, Mapping

from wsdsl.diagnostics import CompileError, Finding, ScheduleError
from wsdsl.ir import ops
from wsdsl.ir.op import Kernel, Op, Region, Value, operands, with_fields
from wsdsl.ir.rewriter import Namer, makers, walk
from wsdsl.ir.types import Tensor
from wsdsl.lowering.buffer_assignment import SlotGroup, operand_slots
from wsdsl.lowering.builder import Builder
from wsdsl.lowering.product_operands import copied_operands
from wsdsl.schedule import Schedule


def loaded_tensors(groups: Iterable[SlotGroup]) -> frozenset[str]:
    """Return the names of the tensors that stages are filled with."""
    return frozenset(load.tensor.name for group in groups for load in group.loads)


def load_shares(groups: Iterable[SlotGroup], schedule: Schedule) -> list[frozenset[str]]:
    """Return the tensors that each load partition copies, the independent ones first, without
    scale factors, which another thread loads.
    """
    names = loaded_tensors(group for group in groups if group.consumer != "scale")
    early = names & frozenset(schedule.pdl_independent or ())
    return [share for share in (early, names - early) if share]


def load_warps(kernel: Kernel, groups: Iterable[SlotGroup], schedule: Schedule) -> list[int]:
    """Return the warps of each share's partition: a warpgroup for the first, and its next warp for
    the second. The second is a warpgroup, too, where all threads of either copy, and on GPUs where
    other warps of the first have a role, and consumers need few registers.
    """
    shares = load_shares(groups, schedule)
    by_all = any(share & copied_operands(kernel) for share in shares)
    return [4, 4 if by_all or kernel.target.has_tensor_memory else 1][: len(shares)]


def num_load_warpgroups(kernel: Kernel, schedule: Schedule) -> int:
    """Of a kernel with products."""
    if not schedule.pdl_independent:
        return 1
    return max(1, load_warps(kernel, operand_slots(kernel), schedule).count(4))


def unfit_constants(kernel: Kernel, schedule: Schedule) -> Iterator[Finding]:
    """Reject names that are not tensors, and tensors that the kernel stores."""
    known = [p.name for p in kernel.params if isinstance(p.type, Tensor)]
    stored = {op.tensor.name: op for op in kernel.of(ops.Store)}
    for name in schedule.pdl_independent or ():
        if name not in known:
            told = f"WS0436 Schedule.pdl_independent names `{name}`, which is not a tensor"
            yield Finding(told, hint=f"choose from the tensors: {', '.join(known)}")
        elif name in stored:
            told = f"WS0437 Schedule.pdl_independent names `{name}`, which the kernel stores"
            yield Finding(told, hint="name tensors that are only loaded")


def refuse_written_addresses(kernel: Kernel, side: Region) -> None:
    """Raise CompileError if addresses of loads, which run ahead, depend on a stored tensor."""
    written = {op.tensor for op in kernel.of(ops.Store)}
    for op in walk(side):
        if isinstance(op, (ops.Load, ops.Lookup)) and op.tensor in written:
            message = f"WS0307 the addresses of loads depend on `{op.tensor.name}`, which the "
            message += "kernel stores"
            raise CompileError(message, op.loc, "store to another tensor")


def refuse_addresses_in_memory(side: Region, names: frozenset[str], schedule: Schedule) -> None:
    """Raise ScheduleError if addresses of loads that do not wait depend on another tensor."""
    constant = frozenset(schedule.pdl_independent or ())
    if not names <= constant:
        return
    for op in walk(side):
        if isinstance(op, ops.Load) and op.tensor.name not in constant:
            message = f"WS0438 Schedule.pdl_independent names {', '.join(sorted(names))}, whose "
            message += f"index is in `{op.tensor.name}`, which the previous kernel may store"
            hint = f"name `{op.tensor.name}`, too, if that kernel does not store it, or neither"
            raise ScheduleError(message, op.loc, hint)


# L2 prefetch before `griddepcontrol.wait`.


def first_boxes(partition: ops.Partition, maps: Mapping[Value, str], namer: Namer) -> Region:
    """Return the L2 prefetches of the first tile, of the tensors and iterations of
    `partition.asks_early`; none if they cannot be computed before its loops.
    """
    items = _loop(partition.body)
    loop = _loop(items.body) if items else None
    if items is None or loop is None:
        return ()
    early = dict(partition.asks_early)
    loads = [op for op in loop.body if isinstance(op, ops.TmaLoad) and maps[op.map] in early]
    places = tuple(v for op in loads for v in op.coordinates)
    inside = makers(loop.body, places)
    wanted = loop.start, loop.stop, loop.step, *places, *_read(inside)
    around = makers(items.body, wanted)
    wanted = items.start, items.stop, *wanted, *_read(around)
    scalars = makers(partition.body, wanted)
    known = all(op.pure for op in (*scalars, *around, *inside))
    if not (loads and known) or {*items.args, *loop.args} & {*wanted}:
        return ()
    iterations = max(early.values())
    return _asked(iterations, items, loop, loads, (scalars, around, inside), namer)


def _asked(
    iterations: int,
    items: ops.ForRange,
    loop: ops.ForRange,
    loads: Iterable[ops.TmaLoad],
    computed: tuple[Region, Region, Region],
    namer: Namer,
) -> Region:
    """`computed`: what coordinates are made of in front of the loops, in the outer, the inner."""
    b, swap, (scalars, around, inside) = Builder(namer), dict[Value, Value](), computed
    b.loc = loop.loc

    def now(value: Value) -> Value:
        return swap.get(value, value)

    b.copy(scalars, swap)
    with b.when(b.map("lt", now(items.start), now(items.stop), wish="any")):
        swap[items.index] = now(items.start)
        b.copy(around, swap)
        start, step = now(loop.start), now(loop.step)
        far = b.map("mul", step, b.integer(iterations), wish="early")
        until = b.map("min", b.plus(start, far), now(loop.stop), wish="until")
        swap[loop.index] = index = b.value(loop.index.name, loop.index.type)
        with b.region() as body:
            b.copy(inside, swap)
            for op in loads:
                at = tuple(map(now, op.coordinates))
                b.add(ops.PrefetchBox(map=op.map, coordinates=at, loc=op.loc))
        own = ops.ForRange(
            result=(), index=index, start=start, stop=until, step=step, body=tuple(body)
        )
        b.add(with_fields(own, loc=loop.loc))
    return tuple(b.ops)


def _loop(region: Region) -> ops.ForRange | None:
    return next((op for op in region if isinstance(op, ops.ForRange)), None)


def _read(region: Iterable[Op]) -> tuple[Value, ...]:
    return tuple(v for op in region for v in operands(op))
