"""Put elements of 16 bits together of two bytes by one function.

Before:
    %h: u16[n, k] = cast(x=%high)
    %s: u16[n, k] = map(fn="shl", args=(%h, %c8))
    %l: u16[n, k] = cast(x=%low)
    %x: u16[n, k] = map(fn="or", args=(%s, %l))
    %y: bf16[n, k] = bitcast(x=%x)
After:
    %y: bf16[n, k] = map(fn="join", args=(%high, %low))

One instruction moves the bytes of two elements; integers of 16 bits have a register each.

Why here: before anything counts instructions.
"""

from collections.abc import Iterable

from wsdsl.ir.op import Kernel, Op, Value
from wsdsl.ir.ops import Bitcast, Cast, Constant, Map
from wsdsl.ir.rewriter import rewrite
from wsdsl.ir.types import DTYPES, Tile
from wsdsl.lowering.passes.dce import without_unused

U8 = DTYPES["u8"]
FLOATS = ("bf16", "f16")


def join_bytes(kernel: Kernel) -> Kernel:
    made = kernel.definers

    def change(op: Op) -> Iterable[Op]:
        if isinstance(op, Bitcast) and _dtype(op.result) in FLOATS:
            match made.get(op.x):
                case Map(fn="or" | "add" | "xor", args=(x, y)):
                    for one, other in ((x, y), (y, x)):
                        high, low = _shifted(one), _widened(other)
                        if high is not None and low is not None:
                            return (Map(result=op.result, fn="join", args=(high, low), loc=op.loc),)
                case _:
                    pass
        return (op,)

    def _shifted(value: Value) -> Value | None:
        match made.get(value):
            case Map(fn="shl", args=(x, by)):
                number = made.get(by)
                if isinstance(number, Constant) and number.value == 8:
                    return _widened(x)
            case _:
                pass
        return None

    def _widened(value: Value) -> Value | None:
        """The u8 that it is of; no scalar, which has no register to share."""
        op = made.get(value)
        if isinstance(op, Cast) and isinstance(op.x.type, Tile) and op.x.type.axes:
            return op.x if op.x.type.dtype == U8 else None
        return None

    body = rewrite(kernel.body, change)
    return kernel if body == kernel.body else kernel.with_body(without_unused(body))


def _dtype(value: Value) -> str:
    return value.type.dtype.name if isinstance(value.type, Tile) else ""
