"""IR types as LLVM types: how many registers a value takes, and of what kind."""

from wsdsl.codegen.value_registers import Shape
from wsdsl.diagnostics import CompileError
from wsdsl.ir import types as t
from wsdsl.ir.printer import IR_HINT

LLVM_TYPES = {"f32": "float", "tf32": "float", "f16": "half", "bf16": "bfloat", "bool": "i1"}
"""Other elements are integers of their bits."""


def scalar_type(dtype: t.DType) -> str:
    """The LLVM type of one element."""
    if dtype.name not in t.DTYPES:
        raise CompileError(f"WS0603 codegen does not support {dtype} elements", hint="cast them")
    return LLVM_TYPES.get(dtype.name, f"i{dtype.bits}")


def is_packed(dtype: t.DType, columns: int) -> bool:
    """Whether a fragment's registers hold pairs of adjacent columns: 16-bit floats in an i32, 8-bit
    elements in an i16, 4-bit ones in the lowest bits of the halves of an i32, whose others may be
    anything.
    """
    if dtype.bits <= 8:
        return dtype.name != "bool" and columns > 1
    return dtype.is_float and dtype.bits == 16 and columns > 1


def register_type(dtype: t.DType, columns: int) -> str:
    if not is_packed(dtype, columns):
        return scalar_type(dtype)
    return "i16" if dtype.bits == 8 else "i32"


def num_elements(rows: int, columns: int, lanes: t.Lanes = t.ACCUMULATOR) -> int:
    """Elements of a fragment that one thread holds."""
    across = 1 if columns == 1 else columns // lanes.across
    return across * (lanes.held(rows) if rows > 1 else 1)


def num_registers(dtype: t.DType, rows: int, columns: int, lanes: t.Lanes = t.ACCUMULATOR) -> int:
    value = num_elements(rows, columns, lanes)
    return value // 2 if is_packed(dtype, columns) else value


def in_words(dtype: t.DType, shape: Shape) -> bool:
    """Whether loops carry it as words of two pairs each (`Registers.words`): elements of 8 bits,
    whose pairs would have a register each.
    """
    pairs = num_registers(dtype, *shape) if is_packed(dtype, shape.columns) else 1
    return dtype.bits == 8 and shape.lanes == t.ACCUMULATOR and pairs % 2 == 0


def shape_of(type: t.Fragment | t.Accumulator) -> Shape:
    lanes = type.lanes if isinstance(type, t.Fragment) else t.ACCUMULATOR
    return Shape(type.rows, type.columns, lanes)


def llvm_types(type: t.Type) -> tuple[str, ...]:
    """The LLVM types of the registers that a value occupies when a loop carries it."""
    match type:
        case t.Tile(dtype, ()):
            return (scalar_type(dtype),)
        case t.Fragment() | t.Accumulator():
            count = num_registers(type.dtype, *shape_of(type))
            if in_words(type.dtype, shape_of(type)):
                return ("i32",) * (count // 2)
            return (register_type(type.dtype, type.columns),) * count
        case t.State():
            return ("i32", "i32")
        case _:
            raise not_carried(f"a value of type {type}")


def not_carried(value: str) -> CompileError:
    return CompileError(f"WS0604 a loop or an if cannot carry {value}", hint=IR_HINT)


def dtype_and_shape(type: t.Type) -> tuple[t.DType, Shape]:
    match type:
        case t.Tile(dtype, ()):
            return dtype, Shape(1, 1)
        case t.Fragment(dtype):
            return dtype, shape_of(type)
        case _:
            raise CompileError(f"WS0606 {type} is not a scalar or a fragment", hint=IR_HINT)
