"""Threads that read in SMEM stay within the bytes that they are said to read.

The interval of an index follows from its formula. So is how far numbers of blocks are apart:
(s + d) // q - s // q is at least d // q and at most ceil(d / q), for every s. (Indices
of tiles do not overflow.)
"""

from wsdsl.ir import ops
from wsdsl.ir.analysis.intervals import Interval, image
from wsdsl.ir.hardware.swizzle import lines_reached
from wsdsl.ir.op import Kernel, Op, Region, Value, walk
from wsdsl.ir.ops import Partition
from wsdsl.ir.types import Fragment, Tile
from wsdsl.prover.failure import Failure, Party
from wsdsl.prover.machine.linear import I32, WARPGROUP, Linear, Sums

HINT = "index by iota, by constants, or by values that `mod` or `min` and `max` bound"


def check_load_bounds(kernel: Kernel) -> None:
    """Raises Failure where an index may lead out of what is read."""
    sums, agent = Sums(kernel), 0
    for op in kernel.body:
        part = op if isinstance(op, Partition) else None
        warpgroups = part.num_warpgroups if part else 1
        _Intervals(kernel, sums, warpgroups).check(part.body if part else (op,), agent)
        agent += warpgroups if part else 0


class _Intervals:
    def __init__(self, kernel: Kernel, sums: Sums, warpgroups: int) -> None:
        self.made, self.sums, self.warpgroups = kernel.definers, sums, warpgroups
        self.known: dict[Value, Interval | None] = {}

    def check(self, region: Region, agent: int) -> None:
        for op in walk(region):
            wrong = self._wrong(op)
            if wrong:
                raise Failure("misuse", wrong, Party(agent, op), hint=HINT)

    def _wrong(self, op: Op) -> str:
        match op:
            case ops.LoadShared():
                kind = op.result.type
                assert isinstance(kind, Tile | Fragment)
                index, first = self.of(op.index), Interval(0, 0)
                if op.first is not None:
                    first = self.of(op.first)
                if index is None or first is None:
                    return f"elements may exceed {op.bytes} bytes: their bounds are not known"
                ends = sorted(x * op.stride for x in index)
                low, high = first.low + ends[0], first.high + ends[1]
                if low < 0 or (high + 1) * kind.dtype.bytes > op.bytes:
                    return f"elements {low} to {high} exceed {op.bytes} bytes"
            case ops.LoadPanels() | ops.StoreShared() if op.start is not None:
                value = op.result if isinstance(op, ops.LoadPanels) else op.value
                kind, start = value.type, self.of(op.start)
                assert isinstance(kind, Fragment)
                if start is None:
                    return f"rows may exceed {op.rows}: their bounds are not known"
                end = start.high + (lines_reached(op.apart) if kind.rows > 1 else 1)
                if start.low < 0 or end > op.rows:
                    return f"rows {start.low} to {end} exceed a tile of {op.rows} rows"
            case _:
                pass
        return ""

    def of(self, value: Value) -> Interval | None:
        if value not in self.known:
            found = self._find(value)
            inside = found is not None and found.low in I32 and found.high in I32
            self.known[value] = found if inside else None
        return self.known[value]

    def _find(self, value: Value) -> Interval | None:
        op = self.made.get(value)
        match op:
            case ops.Constant() if isinstance(op.value, int):
                return Interval(int(op.value), int(op.value))
            case ops.Iota():
                start = self.of(op.start)
                return start and Interval(start.low, start.high + op.extent - 1)
            case ops.Map(fn="sub", args=(x, y)) if (found := self._blocks(x, y)) is not None:
                return found
            case ops.Map(args=(x, y)):
                return _mapped(op.fn, self.of(x), self.of(y))
            case ops.Map(fn="where", args=(_, x, y)):
                return _mapped("where", self.of(x), self.of(y))
            case _:
                is_warpgroup = op is not None and self.sums.of(value) == Linear(
                    0, ((WARPGROUP, 1),)
                )
                return Interval(0, self.warpgroups - 1) if is_warpgroup else None

    def _blocks(self, x: Value, y: Value) -> Interval | None:
        """Of blocks' numbers, how far they are apart."""
        first, last = self.made.get(y), self.made.get(x)
        match first, last:
            case ops.Map(fn="floordiv", args=(s, by)), ops.Map(fn="floordiv", args=(e, other)):
                size, begin = self.sums.of(by), self.made.get(e)
                more = 0
                if isinstance(begin, ops.Iota):
                    more = begin.extent - 1
                    e = begin.start
                apart = self.sums.of(e) - self.sums.of(s)
                same = size == self.sums.of(other) and not size.terms and size.number > 0
                if not same or any(term != WARPGROUP for term, _ in apart.terms):
                    return None
                # A warpgroup's part of a tile begins as far after the tile's begin.
                last = sum(times for _, times in apart.terms) * (self.warpgroups - 1)
                q, d = size.number, apart.number
                low, high = d + min(0, last), d + max(0, last)
                return Interval(low // q, -(-(high + more) // q))
            case _:
                return None


def _mapped(fn: str, a: Interval | None, b: Interval | None) -> Interval | None:
    """Of what is not known, `mod`, `min` and `max` make something known."""
    if fn in ("mod", "min", "max"):
        a, b = (x or Interval(I32[0], I32[-1]) for x in (a, b))
    return None if a is None or b is None else image(fn, a, b)
