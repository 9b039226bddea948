"""Generate the source of a matmul kernel from its options (`Form`).

A parameter's dimensions say how it is indexed: `B: bf16[G, K, N]` is read as `B[g, k, n]`, and the
scales `f32[NB, KB]` of blocks as `[index(n) // 128, index(k) // 128]`.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache

from wsdsl.dispatch.kernel import Kernel
from wsdsl.ir.hardware.wgmma_shapes import sum_of
from wsdsl.ir.types import DType
from wsdsl.record import record

BLOCK = 128
"""Elements along a dimension that share a scale."""

LINE = 100
BATCHES = ("G", "H", "I")
INDEX = {
    **{dim: dim.lower() for dim in ("M", "N", "K", *BATCHES)},
    **{f"{dim}B": f"index({dim.lower()}) // {BLOCK}" for dim in ("M", "N", "K")},
    "1": "0",
}
"""How a dimension is indexed, by its name; the number 1 is that of a tensor of one element."""

ACTIVATIONS = ("relu", "gelu", "silu", "sigmoid", "tanh")

ADDED_IN_PLACE = ("f32", "f16", "bf16", "i32", "u32")
"""Types that memory adds; others are read, added and stored."""


@record
class Param:
    """A parameter; without dimensions a scalar."""

    name: str
    dtype: DType
    dims: tuple[str, ...] = ()

    @property
    def declared(self) -> str:
        return f"{self.name}: {self.dtype}" + (f"[{', '.join(self.dims)}]" if self.dims else "")

    @property
    def read(self) -> str:
        return f"{self.name}[{', '.join(INDEX[d] for d in self.dims)}]" if self.dims else self.name

    @property
    def varies_along_k(self) -> bool:
        return "KB" in self.dims


@record
class Form:
    """A kernel's options: one kernel for each. `batch` holds the dimensions walked by `each`."""

    a: Param
    b: Param
    out: Param
    batch: tuple[str, ...] = ()
    scale_a: Param | None = None
    scale_b: Param | None = None
    bias: Param | None = None
    activation: str | None = None
    residual: Param | None = None
    accumulate: bool = False

    @property
    def params(self) -> tuple[Param, ...]:
        """In the order in which the kernel takes them."""
        found = (self.a, self.b, self.scale_a, self.scale_b, self.bias, self.residual, self.out)
        return tuple(p for p in found if p is not None)


def source_of(form: Form) -> str:
    """The kernel's text, as one would write it."""
    lines, indent = head_of(form.params), "    "
    if form.batch:
        loop = ", ".join(INDEX[d] for d in form.batch)
        lines.append(f"{indent}for {loop} in each({', '.join(form.batch)}):")
        indent += "    "
    total = sum_of(form.a.dtype, form.b.dtype)
    lines += [
        f"{indent}for m, n in tiles(M, N):",
        f"{indent}    acc = zeros({total}[m, n])",
        f"{indent}    for k in tiles(K):",
        *(f"{indent}        {line}" for line in _product(form)),
        f"{indent}    {store_of(form)}",
    ]
    return "\n".join(lines) + "\n"


def head_of(params: Sequence[Param]) -> list[str]:
    """The lines of a kernel's decorator and signature."""
    told = ", ".join(p.declared for p in params)
    if len(head := f"def matmul({told}):") <= LINE:
        return ["@kernel", head]
    inside = [told] if len(told) + 4 <= LINE else [f"{p.declared}," for p in params]
    return ["@kernel", "def matmul(", *(f"    {line}" for line in inside), "):"]


def _product(form: Form) -> Iterator[str]:
    """The body of the loop over k; scales that vary along it belong to the operands."""
    operands: list[str] = []
    scaled = [s is not None and s.varies_along_k for s in (form.scale_a, form.scale_b)]
    both = (form.a, form.scale_a, "a"), (form.b, form.scale_b, "b")
    for (operand, scale, name), blocks in zip(both, scaled):
        if scale is not None and blocks:
            yield f"{name} = {operand.read} * {scale.read}"
            operands.append(name)
        else:
            # A scaled operand is f32, and `@` takes two of a type.
            operands.append(f"cast({operand.read}, f32)" if any(scaled) else operand.read)
    yield f"acc += {operands[0]} @ {operands[1]}"


def store_of(form: Form) -> str:
    """The last statement: scales, bias, activation, residual, and where that goes."""
    value, is_float = _value(form)
    out = form.out
    if form.accumulate and out.dtype.name in ADDED_IN_PLACE:
        if is_float and out.dtype.is_integer:
            value = f"cast(round({value}), i32)"
        if out.dtype.name == "u32":
            value = f"cast({value}, u32)"
        return f"{out.read} += {value}"
    if form.accumulate:
        held = out.read
        if out.dtype.is_integer:
            held = f"cast({held}, {'f32' if is_float else 'i32'})"
        elif not is_float:
            value, is_float = f"cast({value}, f32)", True
        value = f"{held} + {value}"
    return f"{out.read} = {f'round({value})' if is_float and out.dtype.is_integer else value}"


def _value(form: Form) -> tuple[str, bool]:
    """The epilogue's expression, and whether it is of a float type."""
    total = sum_of(form.a.dtype, form.b.dtype)
    assert total is not None
    scales = [s for s in (form.scale_a, form.scale_b) if s is not None and not s.varies_along_k]
    value, is_float = "acc", total.is_float

    def as_float() -> str:
        return value if is_float else f"cast({value}, f32)"

    if scales:
        factor = " * ".join(s.read for s in scales)
        # Two numbers, or a number and a vector, are one factor: less for each element to do.
        one = len(scales) == 2 and any({*s.dims} <= {"1"} for s in scales)
        value, is_float = f"{as_float()} * {f'({factor})' if one else factor}", True
    for part in (form.bias, form.activation, form.residual):
        if part is None:
            continue
        if part.dtype.is_float if isinstance(part, Param) else part != "relu":
            value, is_float = as_float(), True
        if isinstance(part, str):
            value = f"{part}({value})"
        else:
            own = "f32" if is_float else "i32"
            same = part.dtype.is_float or part.dtype.name == own
            value = f"{value} + {part.read if same else f'cast({part.read}, {own})'}"
    return value, is_float


def is_float_result(form: Form) -> bool:
    """Whether the epilogue's value is a float, and not an integer accumulator."""
    return _value(form)[1]


@lru_cache(maxsize=1024)
def kernel_of(form: Form) -> Kernel:
    """The one kernel of a form."""
    from wsdsl.dispatch.sources import one_of

    return one_of("matmul", source_of(form), "<wsdsl.kernels.matmul>")
