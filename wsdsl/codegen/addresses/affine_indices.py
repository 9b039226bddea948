"""Index arithmetic on affine fragments."""

import math

from wsdsl.codegen.addresses.lane_indices import divided
from wsdsl.codegen.arithmetic.casts import I32_MAX
from wsdsl.codegen.arithmetic.integer_functions import integer_binary
from wsdsl.codegen.emission_context import Context
from wsdsl.codegen.fragment_registers import from_elements, multiple_of, source_element
from wsdsl.codegen.llvm_types import num_elements
from wsdsl.codegen.value_registers import (
    Affine,
    Registers,
    Scalar,
    Shape,
    Storage,
    nonnegative,
)
from wsdsl.ir.hardware.gmem_limits import MAX_SIZE
from wsdsl.ir.ops import Map
from wsdsl.ir.types import ACCUMULATOR, DTYPES


def index_comparison(c: Context, op: Map, shape: Shape) -> Registers | None:
    """Which indices are below a number: one answer for those between two multiples of what it and
    their base are multiples of.
    """
    if op.fn != "lt" or shape.lanes == ACCUMULATOR or shape.rows == shape.columns == 1:
        return None
    a, b = (c.values[x] for x in op.args)
    if not isinstance(a, Registers) or a.affine is None or not isinstance(b, Scalar):
        return None
    if a.shape != shape:
        return None
    unit = math.gcd(a.affine.unit, multiple_of(b)) or 1
    left, cache = c.w.binary("sub", "i32", b.text, a.affine.base), dict[int, str]()
    if type(b.known) is int and (most := a.affine.most) is not None:
        sure = (x for x in a.affine.offsets if most + x // unit * unit < b.known)
        cache = {offset // unit: "true" for offset in sure}
    for offset in a.affine.offsets:
        if offset // unit not in cache:
            cache[offset // unit] = c.w.compare("sgt", left, offset // unit * unit)
    texts = [cache[offset // unit] for offset in a.affine.offsets]
    return from_elements(c.w, DTYPES["bool"], shape, texts)


def affine_map(c: Context, op: Map, shape: Shape) -> Registers | None:
    """Index fragments plus scalars, or times constants, stay one register and constants; by the
    lanes quotients and remainders do.
    """
    if len(op.args) != 2 or shape.rows == shape.columns == 1:
        return None
    a, b = (c.values[x] for x in op.args)
    if op.fn in ("floordiv", "mod"):
        return _divided(c, op, a, b, shape)
    if op.fn not in ("add", "sub", "mul"):
        return None
    if isinstance(a, Scalar) and isinstance(b, Registers) and op.fn != "sub":
        a, b = b, a
    if op.fn == "add" and isinstance(a, Registers) and isinstance(b, Registers):
        return _sum_of_indices(c, op, a, b, shape)
    if not (isinstance(a, Registers) and a.affine is not None and isinstance(b, Scalar)):
        return None
    if shape != a.shape:
        return None
    base, offsets = a.affine.base, a.affine.offsets
    known = b.known if isinstance(b.known, int) else None
    origin, moved, lanes = b.origin or b, b.offset, a.affine.lanes
    if known is not None and op.fn != "mul":
        moved = known if op.fn == "add" else -known
        sure = a.affine.nonnegative and moved >= 0
    elif op.fn == "mul":
        if known is None:
            return None
        base, moved = c.w.multiply(base, known), 0
        offsets = tuple(x * known for x in offsets)
        sure = a.affine.nonnegative and known >= 0
        lanes = lanes and lanes.times(known)
    elif op.fn == "add":
        base = c.w.add(base, origin.text)
        sure = a.affine.nonnegative and origin.nonnegative and moved >= 0
        lanes = lanes and lanes.moved(multiple_of(origin))
    else:
        base, moved, sure = c.w.binary("sub", "i32", base, b.text), 0, False
        lanes = lanes and lanes.moved(multiple_of(b))
    offsets = tuple(x + moved for x in offsets)
    if op.wraps and max(map(abs, offsets)) > I32_MAX - MAX_SIZE:
        return None  # Bounds are compared less the base, and sizes leave so much room.
    lanes = None if op.wraps else lanes
    most = lanes and lanes.most
    affine = Affine(base, offsets, sure and not op.wraps, most, lanes=lanes)
    return Registers(a.dtype, *shape, affine=affine)


def _divided(c: Context, op: Map, a: Storage, b: Storage, shape: Shape) -> Registers | None:
    if not (isinstance(a, Registers) and a.affine is not None and isinstance(b, Scalar)):
        return None
    affine, number = a.affine, b.known
    if affine.lanes is None or type(number) is not int or shape != a.shape or op.wraps:
        return None
    result = divided(op.fn, number, affine.lanes, affine.offsets)
    if result is None:
        return None
    lanes, offsets = result
    first = c.w.add(affine.base, affine.offsets[0])
    base = integer_binary(c.w, op, a.dtype, [a, b], nonnegative(a) and nonnegative(b))(
        first, b.text
    )
    sure = (affine.nonnegative or op.fn == "mod") and min(offsets) >= 0
    return Registers(a.dtype, *shape, affine=Affine(base, offsets, sure, lanes.most, lanes=lanes))


def _sum_of_indices(
    c: Context, op: Map, a: Registers, b: Registers, shape: Shape
) -> Registers | None:
    """Such as one of rows and one of columns: where elements are that go on from row to row."""
    if a.affine is None or b.affine is None:
        return None
    lanes = None
    if a.affine.lanes and b.affine.lanes and not op.wraps:
        lanes = a.affine.lanes.plus(b.affine.lanes)
    if a.shape == b.shape and lanes is None:
        return None
    offsets = tuple(
        sum(x.affine.offsets[source_element(e, shape, x.shape)] for x in (a, b) if x.affine)
        for e in range(num_elements(*shape))
    )
    base = c.w.add(a.affine.base, b.affine.base)
    sure = a.affine.nonnegative and b.affine.nonnegative and not op.wraps
    most = lanes and lanes.most
    return Registers(a.dtype, *shape, affine=Affine(base, offsets, sure, most, lanes=lanes))
