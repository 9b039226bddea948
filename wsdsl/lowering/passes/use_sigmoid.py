"""Divide by 1 + exp(y) as one function: a product with a sigmoid.

Before:
    %e: f32[m, n] = map(fn="exp", args=(%y,))
    %d: f32[m, n] = map(fn="add", args=(%one, %e))
    %z: f32[m, n] = map(fn="div", args=(%x, %d))
After:
    %y_neg: f32[m, n] = map(fn="neg", args=(%y,))
    %sigmoid: f32[m, n] = map(fn="sigmoid", args=(%y_neg,))
    %z: f32[m, n] = map(fn="mul", args=(%x, %sigmoid))

Both are within 4 units of the last place. A division scales its operands in case the divisor is
huge or tiny, which this one is not where it matters: that takes twice the instructions, and ptxas
keeps so many conditions that it spills.

Why here: before anything counts instructions.
"""

from collections import Counter

from wsdsl.ir.op import Kernel, Op, Region, Value, with_fields
from wsdsl.ir.ops import Constant, Map
from wsdsl.ir.rewriter import Namer, uses, with_regions
from wsdsl.ir.types import F32, Tile


def use_sigmoid(kernel: Kernel) -> Kernel:
    made, used, namer = kernel.definers, Counter(uses(kernel.body)), Namer.of(kernel)
    dropped: set[Op] = set()

    def change(region: Region) -> Region:
        kept: list[Op] = []
        for op in region:
            if isinstance(op, Map) and op.fn == "div" and (found := _divisor(op.args[1])):
                total, exp = found
                dropped.update((total, exp))
                kept += _product(op, exp.args[0])
            else:
                kept.append(with_regions(op, change))
        return tuple(op for op in kept if op not in dropped)

    def _divisor(divisor: Value) -> tuple[Map, Map] | None:
        """The sum of 1 and an exponential, and that, if nobody else needs them."""
        match made.get(divisor):
            case Map(fn="add", args=(a, b)) as total if used[divisor] == 1 and _is_f32(divisor):
                for one, e in ((a, b), (b, a)):
                    match made.get(one), made.get(e):
                        case Constant(value=1), Map(fn="exp") as exp if used[e] == 1:
                            return (total, exp) if _is_f32(e) else None
                        case _:
                            pass
            case _:
                pass
        return None

    def _product(op: Map, y: Value) -> tuple[Op, ...]:
        negated = Value(namer.new(f"{y.name}_neg"), y.type)
        sigmoid = Value(namer.new("sigmoid"), y.type)
        return (
            Map(result=negated, fn="neg", args=(y,), loc=op.loc),
            Map(result=sigmoid, fn="sigmoid", args=(negated,), loc=op.loc),
            with_fields(op, fn="mul", args=(op.args[0], sigmoid)),
        )

    body = change(kernel.body)
    return kernel.with_body(body) if dropped else kernel


def _is_f32(value: Value) -> bool:
    return isinstance(value.type, Tile) and value.type.dtype == F32
