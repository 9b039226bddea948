"""Accumulators that are registers which the PTX declares and names, and LLVM knows nothing of.

As values of LLVM, each of an accumulator's hundred registers is an operand of every loop, product
and wait, and of all that LLVM does with these: a third of its time. Under names of their own,
products name them, and the wait moves the sums to values of LLVM; ptxas sees through the moves.

Not where sums are handed on by a loop or a branch, or back to wgmma: what they become there has to
lie in the same registers, and LLVM sees to that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from wsdsl.ir.barrier_ops import ForRange
from wsdsl.ir.fragment_ops import AsAccumulator, EmptyAccumulator, Wgmma, WgmmaWait, ZeroUnless
from wsdsl.ir.op import Kernel, Value, operands, regions, results_of
from wsdsl.ir.types import Accumulator, Fragment
from wsdsl.ir.walk import yielded

Firsts = Mapping[Value, Value]
HELD = (Accumulator, Fragment)
NONE: tuple[Firsts, Firsts] = ({}, {})


def named_accumulators(kernel: Kernel) -> tuple[Firsts, Firsts]:
    """By an accumulator the empty one that it began as, whose registers it has; and the same by
    sums that nobody but a `zero_unless` reads. None if they are left to LLVM.
    """
    uses = Counter([v for op in kernel.ops for v in operands(op) if isinstance(v.type, HELD)])
    first: dict[Value, Value] = {}
    read: dict[Value, Value] = {}
    zeroed: dict[Value, Value] = {}
    for op in kernel.ops:
        match op:
            case EmptyAccumulator(result=result):
                first[result] = result
            case Wgmma(result=result, acc=acc):
                first[result] = first[acc]
                read.clear()
            case WgmmaWait(result=result, accumulators=accumulators):
                read |= {v: first[acc] for v, acc in zip(result, accumulators, strict=True)}
            case ForRange(init=init, args=args, result=result):
                for before, *inside in zip(init, args, result, strict=True):
                    if _is_accumulator(before):
                        first |= dict.fromkeys(inside, first[before])
            case ZeroUnless(x=x):
                # Else zeros would get into what others read, or the registers are others' by now.
                if x not in read or uses[x] > 1:
                    return NONE
                zeroed[x] = read[x]
            case _ if isinstance(op, AsAccumulator) or any(map(_is_accumulator, results_of(op))):
                return NONE
            case _:
                pass
        if regions(op):
            read.clear()
            if any(isinstance(v.type, Fragment) for v in results_of(op)):
                return NONE
    for loop in kernel.of(ForRange):
        handed = zip(loop.args, yielded(loop.body), strict=True)
        if any(first.get(a) != first.get(b) for a, b in handed):
            return NONE
    return NONE if any(uses[value] > 1 for value in first) else (first, zeroed)


def _is_accumulator(value: Value) -> bool:
    return isinstance(value.type, Accumulator)
