"""Generate the source of matmuls that have quantized weights, from a call's options (`Form`)."""

from functools import lru_cache

from wsdsl.dispatch.kernel import Kernel
from wsdsl.ir.types import DTYPES
from wsdsl.kernels.gemm.matmul_source import INDEX, Param, head_of, store_of
from wsdsl.kernels.gemm.matmul_source import Form as Product
from wsdsl.record import record

GROUPED = ("NB", "KB")
"""Dimensions of scales and zero points that have one element per group of N, of K."""


@record
class Form:
    """A kernel's options: one kernel for each. `group`: rows and columns of weights that share a
    scale, where those are more than one along that dimension and fewer than all. `table`: of the
    values of codes.

    `scale`: one number for all weights in addition to `scales`. Types are by name. `vector`: of one
    row of x, without MMAs of tiles: packed codes are loaded from GMEM to registers.
    """

    x: str
    weights: str
    scales: Param
    group: tuple[int, int]
    packed: bool
    out: str
    zeros: Param | None = None
    table: bool = False
    scale: bool = False
    bias: str | None = None
    activation: str | None = None
    residual: str | None = None
    vector: bool = False

    @property
    def product(self) -> Product:
        """The matmul of unquantized operands that has this kernel's epilogue."""

        def param(name: str, dtype: str | None, *dims: str) -> Param | None:
            return Param(name, DTYPES[dtype], dims) if dtype else None

        rows = () if self.vector else ("M",)
        x, w = Param("X", DTYPES[self.x], (*rows, "K")), Param("W", DTYPES[self.x], ("N", "K"))
        return Product(
            x, w, Param("out", DTYPES[self.out], (*rows, "N")),
            scale_a=param("scale", "f32" if self.scale else None, "1"),
            scale_b=None if self.by_group else self.scales,
            bias=param("bias", self.bias, "N"),
            activation=self.activation,
            residual=param("residual", self.residual, *rows, "N"),
        )  # fmt: skip

    @property
    def by_group(self) -> bool:
        """Whether scales vary along the contraction axis K, so that they multiply the weights."""
        return "KB" in self.scales.dims

    @property
    def params(self) -> tuple[Param, ...]:
        """In the order in which the kernel takes them."""
        end = self.product
        weights = Param("W", DTYPES[self.weights], ("N", "K"))
        table = Param("table", DTYPES["f32"], ("16",)) if self.table else None
        of_weights = weights, self.scales, self.zeros, table
        found = (end.a, *of_weights, end.scale_a, end.bias, end.residual, end.out)
        return tuple(p for p in found if p is not None)


def source_of(form: Form) -> str:
    """The kernel's text, as one would write it."""
    lines = [
        *head_of(form.params),
        "    for n in tiles(N):" if form.vector else "    for m, n in tiles(M, N):",
        "        acc = zeros(f32[n])" if form.vector else "        acc = zeros(f32[m, n])",
        "        for k in tiles(K):",
        *(f"            {line}" for line in _product(form)),
        f"        {store_of(form.product)}",
    ]
    return "\n".join(lines) + "\n"


def _product(form: Form) -> tuple[str, str]:
    """The statements that dequantize a weight and accumulate. Scales are applied in f32 if their
    type is not the activations', except 8-bit scales, which are exact in the activations' type.
    """
    x, kind = form.x, form.scales.dtype
    in_x = not form.by_group or kind.name == x or kind.bits == 8
    code = "lookup(table, W[n, k])" if form.table else "W[n, k]"
    number = f"cast({code}, {x if in_x or form.zeros else 'f32'})"
    if form.zeros:
        number += f" - cast({_read(form.zeros, form)}, {x})"
    scale = _read(form.scales, form)
    if not form.by_group:
        weight = "w"
    elif in_x:
        weight = f"(w * {scale if kind.name == x else f'cast({scale}, {x})'})"
    else:
        wide = "cast(w, f32)" if form.zeros else "w"
        weight = f"cast({wide} * {scale}, {x})"
    if form.vector:
        return f"w = {number}", f"acc += sum(cast({weight}, f32) * cast(X[k], f32), over=k)"
    return f"w = {number}", f"acc += X[m, k] @ {weight}"


def _read(param: Param, form: Form) -> str:
    sizes = dict(zip(GROUPED, form.group, strict=True))
    index = [f"index({d[0].lower()}) // {sizes[d]}" if d in sizes else INDEX[d] for d in param.dims]
    return f"{param.name}[{', '.join(index)}]"


@lru_cache(maxsize=1024)
def kernel_of(form: Form) -> Kernel:
    """The one kernel of a form."""
    from wsdsl.dispatch.sources import one_of

    kernel = one_of("matmul", source_of(form), "<wsdsl.kernels.quantized>")
    return kernel.packed("W") if form.packed else kernel
