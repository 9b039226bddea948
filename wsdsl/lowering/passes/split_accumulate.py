"""Add to accumulators outside of TMEM by threads: the MMAs in TMEM begin with zeros (TILE).

Before:
    %scaled: f32[m, n] = map(fn="mul", args=(%x, %shrink))
    %y: f32[m, n] = contract(a=%a, b=%b, acc=%scaled)
After:
    %p: f32[m, n] = contract(a=%a, b=%b)
    %y: f32[m, n] = map(fn="add", args=(%scaled, %p))

This holds for a carried accumulator that a loop uses otherwise than as an MMA's: threads have it in
registers, unless it is changed in place (`updated_sums.py`). A loop that accumulates to other
values than zeros begins with zeros, and these values are added after it. Kernels with accumulators
in registers are unchanged.

Why here: `fuse_accumulators` has joined MMAs and accumulators; the memory of accumulators is
decided next.
"""

from collections import Counter

from wsdsl.ir.op import Kernel, Op, Region, Value, with_fields
from wsdsl.ir.ops import Constant, Contract, DimLoop, Full, Map
from wsdsl.ir.rewriter import Namer, uses, with_regions
from wsdsl.ir.types import Tile
from wsdsl.lowering.tensor_chains import staying
from wsdsl.lowering.updated_sums import updates
from wsdsl.lowering.zero_padding import tiles_of_zeros


def split_accumulate(kernel: Kernel) -> Kernel:
    if not kernel.target.has_tensor_memory or not kernel.of(Contract):
        return kernel
    return kernel.with_body(_Apart(kernel).region(kernel.body))


class _Apart:
    """`ready`: zeros, and sums that products may go on with where they lie."""

    def __init__(self, kernel: Kernel) -> None:
        self.namer, self.counts = Namer.of(kernel), Counter(uses(kernel.body))
        self.ready = tiles_of_zeros(kernel.body)
        self.ready |= {update.changed for update in updates(kernel).values()}

    def region(self, region: Region) -> Region:
        made: list[Op] = []
        for op in region:
            match op:
                case Contract():
                    made += self.product(op)
                case DimLoop():
                    made += self.loop(op)
                case _:
                    made.append(with_regions(op, self.region))
        return tuple(made)

    def product(self, op: Contract) -> list[Op]:
        if op.acc is None or op.acc in self.ready:
            self.keep(op.result)
            return [op]
        alone = Value(self.namer.again(op.result.name), op.result.type)
        args = op.acc, alone
        return [
            with_fields(op, result=alone, acc=None),
            Map(result=op.result, fn="add", args=args, loc=op.loc),
        ]

    def keep(self, value: Value) -> None:
        self.ready |= {value} if self.counts[value] == 1 else set()

    def loop(self, op: DimLoop) -> list[Op]:
        before, behind = list[Op](), list[Op]()
        init, result = list(op.init), list(op.result)
        for n in staying(op, self.counts):
            self.ready.add(op.args[n])
            if op.init[n] in self.ready:
                self.keep(op.result[n])
                continue
            kind = op.init[n].as_tile
            zero = Value(self.namer.new("zero"), Tile(kind.dtype))
            init[n] = Value(self.namer.new("zeros"), kind)
            result[n] = Value(self.namer.again(op.result[n].name), kind)
            nothing = 0.0 if kind.dtype.is_float else 0
            before.append(Constant(result=zero, value=nothing, loc=op.loc))
            before.append(Full(result=init[n], value=zero, loc=op.loc))
            args = op.init[n], result[n]
            behind.append(Map(result=op.result[n], fn="add", args=args, loc=op.loc))
        body = self.region(op.body)
        made = with_fields(op, init=tuple(init), result=tuple(result), body=body)
        return [*before, made, *behind]
