"""Loads of what a loop multiplies its products by, an iteration ahead: see `schedule_products`."""

from collections.abc import Mapping, Set

from wsdsl.ir import ops
from wsdsl.ir.op import Op, Region, Value, operands, results_of, with_fields
from wsdsl.ir.rewriter import copy_region, makers, replace_operands, used_inside, yielded
from wsdsl.ir.types import Axis
from wsdsl.lowering.partition_context import PartitionContext
from wsdsl.lowering.scale_loads import blocks_of


class LoadsAhead:
    """Loads of one partition. `stored`: the tensors that the kernel writes."""

    def __init__(self, context: PartitionContext, stored: Set[Value]) -> None:
        self.context, self.made, self.stored = context, context.made, stored
        self.builder, self.late = context.builder, context.partition.late_loads

    def emit(self, loop: ops.ForRange) -> ops.ForRange:
        """Add the first loads before the loop, and return the loop."""
        loads = [op for op in loop.body if isinstance(op, (ops.Load, ops.Lookup))]
        needed = {op.result: self.needed(op, loop) for op in loads if self.is_small(op.result)}
        needed = {v: members for v, members in needed.items() if members}
        if not needed:
            return loop
        b, b.loc = self.builder, loop.loc
        first = self.copies(loop, needed, loop.start)
        varying = {
            v: members
            for v, members in needed.items()
            if any(loop.index in operands(op) for op in members)
        }
        args = {v: b.value(v.name, v.type) for v in varying}
        swap = first | args
        body = [replace_operands(op, swap) for op in loop.body if not {*results_of(op)} & {*swap}]
        early = self.computed_from({*swap.values()}, body)
        *body, _ = (op for op in body if op not in early)
        at = self.behind_products(body, early) if self.late and varying else 0
        then = at or behind_reads(body)
        with b.region() as made:
            b.ops += body[:at]
            if at:
                b.add(ops.CommitProducts(loc=loop.loc))
            b.ops += early
            b.add(ops.Materialize(values=tuple(op.result for op in early), loc=loop.loc))
            b.ops += body[at:then]
            last = self.copies(loop, varying, b.plus(loop.index, loop.step, "next"))
            fenced = then > at
            b.add(ops.Materialize(values=tuple(last.values()), in_order=fenced, loc=loop.loc))
            # Where tiles begin is said anew.
            axes = tuple(op for op in body[:then] if isinstance(op, ops.AxisAt))
            b.ops += copy_region(axes, b.namer)
            b.ops += body[then:]
            b.add(ops.Yield(values=(*yielded(loop.body), *last.values()), loc=loop.body[-1].loc))
        return with_fields(
            loop,
            result=(*loop.result, *(b.value(v.name, v.type) for v in varying)),
            init=(*loop.init, *(first[v] for v in varying)),
            args=(*loop.args, *args.values()),
            body=tuple(made),
        )

    def copies(
        self, loop: ops.ForRange, needed: Mapping[Value, Region], index: Value
    ) -> dict[Value, Value]:
        """Add the loads of the iteration with this index, and return their results."""
        wanted = {op for members in needed.values() for op in members}
        swap = {loop.index: index}
        self.builder.copy(tuple(op for op in loop.body if op in wanted), swap)
        return {v: swap[v] for v in needed}

    def needed(self, load: Op, loop: ops.ForRange) -> Region:
        """Return the ops that compute a load, with the load; none if another iteration cannot
        repeat them.
        """
        members = makers(loop.body, results_of(load))
        may = all(op.repeatable and not {*operands(op)} & {*loop.args} for op in members)
        stored = any(
            isinstance(op, (ops.Load, ops.Lookup)) and op.tensor in self.stored for op in members
        )
        return members if may and not stored else ()

    def is_small(self, value: Value) -> bool:
        """Whether it is equal in all columns of a fragment."""
        axes = self.context.axes
        if all(axes[name].role != "columns" for name in value.axes):
            return True
        match self.made.get(value):
            case ops.Load(index=index) | ops.Lookup(index=index):
                return all(map(self.is_place, index))
            case ops.Map(args=values):
                return all(map(self.is_small, values))
            case ops.Cast(x=x):
                return self.is_small(x)
            case _:
                return False

    def is_place(self, index: Value) -> bool:
        """Whether an index is one number for all columns of a fragment."""
        if isinstance(index.type, Axis):
            return self.context.axes[index.type.name].role != "columns"
        if (blocks := blocks_of(index, self.made)) is None:
            return self.is_small(index)
        axis, size = blocks
        if self.context.axes[axis.as_axis.name].role != "columns":
            return True
        begins = self.made.get(axis)
        shifted = isinstance(begins, ops.AxisAt) and begins.shifted
        return not shifted and self.context.shapes.within(axis.as_axis.name, size)

    def computed_from(self, known: set[Value], body: list[Op]) -> list[ops.Map | ops.Cast]:
        """Return the ops on small values that use no inputs but such loads."""
        inside = known | {v for op in body for v in results_of(op)}
        found: list[ops.Map | ops.Cast] = []
        for op in body:
            of = inside & {*operands(op)}
            if (
                isinstance(op, (ops.Cast, ops.Map))
                and of
                and of <= known
                and self.is_small(op.result)
            ):
                known.add(op.result)
                found.append(op)
        return found

    def behind_products(self, body: list[Op], early: list[ops.Map | ops.Cast]) -> int:
        """Return the index after the first MMAs that are issued together; 0 if an operand is
        computed from the loads.
        """
        ends = (ops.CommitProducts, ops.ConsumerRelease, ops.Materialize)
        end = next((i for i, op in enumerate(body) if isinstance(op, ends)), len(body))
        at = max(
            (i + 1 for i, op in enumerate(body[:end]) if isinstance(op, ops.Contract)), default=0
        )
        made = {op.result for op in early}
        read = {v for op in body[:at] for v in (*operands(op), *used_inside(op))}
        return 0 if made & read else at


def behind_reads(body: Region | list[Op]) -> int:
    """Return the index after the releases before all MMAs, of stages that threads have read: the
    fence there waits for all loads in flight. 0 without such releases.
    """
    found = 0
    for i, op in enumerate(body):
        if isinstance(op, ops.Contract):
            break
        found = i + 1 if isinstance(op, ops.ConsumerRelease) else found
    return found


def with_place(region: Region, load: ops.LoadGlobal, *others: Value) -> Region:
    """The load, and what of the region makes its place and others; nothing if that takes more than
    arithmetic on numbers that are known there, as another load.
    """
    needed = makers(region, (load.result, *others))
    return needed if all(op is load or op.pure for op in needed) else ()
