"""Conversion of a region: SCHEDULED ops in, LLVM text out.

An op `x` is converted by the function `convert_x` of a file in `codegen/ops`.
"""

from collections.abc import Iterable
from itertools import groupby
from typing import cast

from wsdsl.codegen import ops
from wsdsl.codegen.emission_context import Context
from wsdsl.codegen.ops.pipeline import convert_partition
from wsdsl.diagnostics import CompileError
from wsdsl.ir.op import Op, Region, Value, by_op
from wsdsl.ir.op_fields import op_name
from wsdsl.ir.ops import Partition
from wsdsl.ir.printer import IR_HINT
from wsdsl.ir.rewriter import yielded

CONVERTERS = by_op(ops, prefix="convert_")


def convert_region(c: Context, region: Region) -> tuple[Value, ...]:
    """Convert the ops of a region, adjacent partitions together; return the values it yields."""
    for kind, group in groupby(region, type):
        if kind is Partition:
            convert_partition(c, *cast(Iterable[Partition], group))
        else:
            for op in group:
                convert_op(c, op)
    return yielded(region)


def convert_op(c: Context, op: Op) -> None:
    convert = CONVERTERS.get(type(op))
    if convert is None:
        raise CompileError(f"WS0601 codegen cannot emit `{op_name(type(op))}`", op.loc, IR_HINT)
    convert(c, op)
