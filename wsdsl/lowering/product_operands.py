"""What products read: where the table of edges begins, and what is asked before there is one."""

from wsdsl.ir.hardware.packed_layout import packed_swizzle
from wsdsl.ir.hardware.swizzle import SWIZZLE_SPAN, widest_swizzle
from wsdsl.ir.hardware.tma_box import TMA_ALIGN
from wsdsl.ir.hardware.wgmma_shapes import cast_to
from wsdsl.ir.op import Kernel, Makers, Op, Value, once
from wsdsl.ir.ops import Bitcast, Cast, Contract, DimLoop, Load, Lookup, Map
from wsdsl.ir.rewriter import made_of
from wsdsl.ir.types import DType, Role


@once
def multiplied(kernel: Kernel) -> frozenset[Value]:
    """The operands of products. One that is loaded from a packed tensor counts as computed: threads
    hold it before it is multiplied.
    """
    packed = {op.result for op in kernel.of(Load) if op.packed}
    return frozenset(v for op in kernel.of(Contract) for v in (op.a, op.b) if v not in packed)


def with_casts(product: Contract) -> str:
    """The text of a product whose operands are computed, of a type that tensor cores take."""
    a, _, b = (product.loc.written if product.loc else "").rpartition(" @ ")
    dtype = cast_to(*(t.dtype for t in product.tiles))
    return f"cast({a or 'x'}, {dtype}) @ cast({b or 'x'}, {dtype})"


def computed_operands(kernel: Kernel, op: Contract) -> list[Value]:
    """Those of a product that are not loaded as they are."""
    return [v for v in (op.a, op.b) if v not in operand_loads(kernel)]


@once
def operand_loads(kernel: Kernel) -> frozenset[Value]:
    """Operands that are loaded as they are."""
    return frozenset(op.result for op in kernel.of(Load) if op.result in multiplied(kernel))


@once
def operand_scales(kernel: Kernel) -> frozenset[Value]:
    """Tiles of scales that the tensor cores multiply operands by."""
    return frozenset(v for op in kernel.of(Contract) for v in op.scales)


@once
def multiplied_tensors(kernel: Kernel) -> frozenset[Value]:
    return frozenset(op.tensor for op in kernel.of(Load) if op.result in multiplied(kernel))


@once
def copied_operands(kernel: Kernel) -> frozenset[str]:
    """Those that threads copy, since TMA can not take them."""
    return frozenset(tensor.name for tensor in multiplied_tensors(kernel)) & {*kernel.unaligned}


def of_product(value: Value, made: Makers) -> bool:
    """Whether a value is made of a product's results in the same loop."""
    ops = made_of((value,), made, lambda op: not isinstance(op, DimLoop))
    return any(isinstance(op, Contract) for _, op in ops)


def is_elementwise(op: Op) -> bool:
    """Whether an element of the result is made of the same element of each operand."""
    return isinstance(op, (Bitcast, Cast, Lookup, Map))


def operand_lines(
    size: int, dtype: DType, role: Role, shares: int = 1, packed: bool = False
) -> tuple[str, int]:
    """(swizzle mode, elements of all panels' lines) of a tile with `size` elements along its
    contiguous axis. Each of `shares` consumers begins with a panel.
    """
    if packed:
        return packed_swizzle(dtype), size
    if not role:
        over = dtype.size(size) % TMA_ALIGN
        return ("none", size) if over else (widest_swizzle(dtype.size(size)), size)
    own = dtype.size(size // shares)
    fitting = ("32B", "64B", "128B")
    if shares > 1:
        fitting = [mode for mode in fitting if own % SWIZZLE_SPAN[mode] == 0] or fitting[:1]
    mode = min(fitting, key=lambda mode: -(-own // SWIZZLE_SPAN[mode]))
    span = dtype.count(SWIZZLE_SPAN[mode])
    return mode, -(-size // span) * span
