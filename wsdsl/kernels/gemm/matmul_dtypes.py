"""Element types of a product: how they are named, which go together, what comes out."""

from collections.abc import Sequence
from typing import Any

from wsdsl.diagnostics import LaunchError
from wsdsl.ir.hardware.wgmma_shapes import sum_of
from wsdsl.ir.types import DTYPES, DType
from wsdsl.runtime.arrays.views import ArrayView, adapt, dtype_named

OUTPUTS = ("f32", "f16", "bf16", "f8e4m3", "f8e5m2", "i32", "i16", "i8", "u32", "u16", "u8")
ADDENDS = ("f32", "f16", "bf16", "i32")
RESIDUALS = (*ADDENDS, "f8e4m3", "f8e5m2", "i8", "u8")
TWO_DTYPES = "WS0804 out and out_dtype have different types:"
PAIRS = "both bf16, both f16, both tf32, of f8e4m3 and f8e5m2, or of i8 and u8"


def dtype_of(given: Any, what: str) -> DType:
    """The type of a name ("bf16", "bfloat16"), of a type of the language, or of a dtype of
    torch, NumPy, ml_dtypes, CuPy or JAX. LaunchError for another thing.
    """
    names = given, getattr(given, "name", None), getattr(given, "__name__", None), str(given)
    for name in names:
        if isinstance(name, str):
            bare = name.removeprefix("torch.")
            found = DTYPES.get(bare) or dtype_named(bare, 0)
            if found.kind != "other":
                return found
    raise wrong_option(what, repr(given), f"an element type: {', '.join(OUTPUTS)}")


def wrong_dtype(name: str, dtype: object, expected: Sequence[str]) -> LaunchError:
    message = f"WS0805 {name} is {dtype}, expected {', '.join(expected)}"
    return LaunchError(message, hint="convert it")


def wrong_shape(name: str, shape: tuple[int, ...], expected: object) -> LaunchError:
    return LaunchError(f"WS0806 {name} has shape {shape}, expected {expected}")


def wrong_option(name: str, given: str, expected: str) -> LaunchError:
    return LaunchError(f"WS0807 {name} is {given}, expected {expected}")


def operand_views(
    a: ArrayView, b: ArrayView, given: Any
) -> tuple[tuple[ArrayView, ArrayView], DType]:
    """The operands as what they are multiplied as, and their sum's type."""
    pair: Any = given if isinstance(given, tuple | list) else (given, given)
    if len(pair) != 2:
        raise wrong_option("operand_dtype", repr(given), "one type, or a type for each operand")
    found = [_as(view, wanted, name) for view, wanted, name in zip((a, b), pair, "ab")]
    total = sum_of(found[0].dtype, found[1].dtype)
    if total is None:
        held, hint = [v.dtype.name for v in found], f"convert them: operands are {PAIRS}"
        if held == ["f32", "f32"]:
            hint = 'give operand_dtype="tf32" (the upper 19 bits), or convert to bf16 or f16'
        message = f"WS0808 a is {held[0]} and b is {held[1]}; tensor cores cannot multiply them"
        raise LaunchError(message, hint=hint)
    return (found[0], found[1]), total


def _as(view: ArrayView, given: Any, name: str) -> ArrayView:
    if given is None:
        return view
    wanted = dtype_of(given, "operand_dtype")
    found = adapt(view, wanted)
    if found.dtype != wanted:
        hint = f"convert {name}: operand_dtype reinterprets bits, or is tf32 for f32"
        message = f"WS0809 {name} is {view.dtype}, which cannot be multiplied as {wanted}"
        raise LaunchError(message, hint=hint)
    return found


def default_output(a: DType, total: DType, *, is_float: bool) -> DType:
    """Of 16-bit operands their type, of tf32 f32, of fp8 bf16; of integers i32, or bf16 where what
    follows the product made a float of it.
    """
    if a.bits == 16:
        return a
    if a.name == "tf32":
        return DTYPES["f32"]
    return DTYPES["bf16"] if is_float else total
