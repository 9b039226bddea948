"""Control flow: loops and the election of one thread (SCHEDULED); `if` and `yield` (all levels)."""

from __future__ import annotations

from typing import Any

from wsdsl.ir.op import ALL, SCHEDULED, ManyResults, Op, Region, Value, binds, op_class


class Loop(ManyResults):
    """Base of loops: `init` are the first values of the carried variables `args`."""

    index: Value
    init: tuple[Value, ...]
    args: tuple[Value, ...]
    body: Region
    claimed: bool = False

    @property
    def bounds(self: Any) -> tuple[Value, Value, Value]:
        """The first index, the end and the step of a SCHEDULED loop."""
        return self.start, self.stop, self.step


@op_class(SCHEDULED, "any", any_lanes=True)
class ForRange(Loop):
    """`for index in range(start, stop, step)` on i32 (step > 0); carries like `for_tiles`. With
    `claimed` each index but the first is what the iteration before has carried last, an i32 in the
    place of `index + step`: the loop goes on while that is less than `stop`.
    """

    index: Value = binds()
    start: Value
    stop: Value
    step: Value
    claimed: bool = False
    init: tuple[Value, ...] = ()
    args: tuple[Value, ...] = binds(())
    body: Region = ()


@op_class(SCHEDULED, "warps", by_lone_warps=True)
class Elect(Op):
    """One thread runs `body`: thread 0 of the CTA, or in a partition an elected thread of the first
    warp of its first warpgroup. The others go on.
    """

    body: Region = ()


@op_class(ALL, "any", any_lanes=True)
class If(ManyResults):
    """Run `then` where the scalar `cond` holds, else `orelse`; both end in a `yield`."""

    cond: Value
    then: Region = ()
    orelse: Region = ()


@op_class(ALL, "any", any_lanes=True)
class Yield(Op):
    """End a region with the values that it yields; always the last op of a loop's or if's."""

    values: tuple[Value, ...] = ()
