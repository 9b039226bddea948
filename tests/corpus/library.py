"""The kernels that wsdsl.kernels generates: quantized and lossless weights, rows."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import product
from typing import Any
from unittest.mock import patch

import numpy as np

from tests.case_data import DTYPES
from tests.corpus.entries import Entry, launched
from tests.quantized.test_product import FORMATS, normal
from wsdsl import Kernel, kernels
from wsdsl.ir.types import Tensor
from wsdsl.kernels import quantized
from wsdsl.kernels.lossless.lossless_matmul import sizes_of, source_of
from wsdsl.kernels.lossless.palette import KINDS

NUM_ROWS = (1, 16, 200, 4096)
EPILOGUE = ({"dtype": "i4", "group": 128}, {"dtype": "nvfp4"}, {"dtype": "i8"})
SHAPES = {(16384, 4096): slice(None), (1001, 4097): slice(1, None, 2), (1024, 65536): slice(15)}
"""Which row kernels are launched, by the shape of the matrix."""


def entries() -> Iterator[Entry]:
    for i, (form, pack) in enumerate(product(FORMATS, (True, False))):
        yield weight_entry(form, pack, NUM_ROWS[i // 2 % 4], "f16" if i % 7 == 3 else "bf16")
    for form in EPILOGUE:
        fused = dict(bias=array("f32", 256), activation="gelu", residual=array("bf16", 16, 256))
        yield weight_entry(form, True, 16, "bf16", **fused)
    for kind, m in product(KINDS, (1, 200, 4096)):
        sizes, text = sizes_of(m, 4096, 4096), source_of(kind, "bf16" if m < 200 else "f32")
        yield Entry(f"lossless/{kind}/{m}", text, sizes, packed=("codes", "low"))
    for (m, n), chosen in SHAPES.items():
        for function, *args in [*_row_calls(m, n)][chosen]:
            kernel, sizes = called(function, *args)
            title = "/".join((function.__name__, *(str(x) for x in args if isinstance(x, str))))
            yield launched(f"rows/{title}/{m}x{n}", kernel.source, sizes)


def weight_entry(form: dict[str, Any], pack: bool, m: int, dtype: str, **epilogue: Any) -> Entry:
    """Quantize a small matrix; the kernel's N and K are 16 times as large."""
    weights = quantized.quantize(normal(256, 256), **form, pack=pack)
    kernel, sizes = called(quantized.matmul, array(dtype, m, 256), weights, **epilogue)
    parts = (*map(str, form.values()), "packed" if pack else "plain", dtype, str(m), *epilogue)
    sizes = {dim: size if dim == "M" else size * 16 for dim, size in sizes.items()}
    name = f"quantized/{'/'.join(parts)}".replace(" ", "")
    return Entry(name, kernel.source, sizes, packed=("W",) if pack else ())


def _row_calls(m: int, n: int) -> Iterator[tuple[Any, ...]]:
    x, f = array("bf16", m, n), array("f32", m, n)
    w, r = array("bf16", n), array("f32", m)
    yield kernels.rmsnorm, x, w
    yield kernels.rmsnorm_with_rstd, f
    yield kernels.rmsnorm_backward, x, x, w, r
    yield kernels.rmsnorm_weight_backward, x, x, w, r
    yield kernels.layernorm, x, w, w
    yield kernels.layernorm_with_statistics, f, w
    yield kernels.layernorm_backward, x, x, w, r, r
    yield kernels.layernorm_weight_backward, x, x, w, r, r
    yield kernels.layernorm_bias_backward, x, w
    yield kernels.softmax, x
    yield kernels.log_softmax, f
    yield kernels.softmax_backward, x, x
    yield kernels.log_softmax_backward, x, f
    yield kernels.cross_entropy, x, np.empty(m, np.int64)
    yield kernels.cross_entropy_with_lse, f, np.empty(m, np.int32)
    yield kernels.cross_entropy_backward, r, x, np.empty(m, np.int64), r
    yield kernels.quantize, x
    yield kernels.quantize, x, "mxfp8"
    yield kernels.quantize, f, "i8", 128


def array(dtype: str, *shape: int) -> Any:
    """Allocate an array; its elements are never accessed."""
    return np.empty(shape, DTYPES[dtype])


def called(function: Callable[..., Any], *args: Any, **options: Any) -> tuple[Kernel, Any]:
    """Return the kernel that a function launches, and the sizes of the launch."""
    launch = patch.object(Kernel, "__call__", autospec=True, side_effect=InterruptedError)
    with launch as call, suppress(InterruptedError):
        function(*args, **options)
    kernel, *given = call.call_args.args
    sizes: dict[str, int] = {}
    for param, value in zip(kernel.params, given):
        if isinstance(param.type, Tensor) and value is not None:
            # The first one, X, counts elements; plain codes of 4 bits count bytes.
            sizes = dict(zip(param.type.dims, value.shape)) | sizes
    return kernel, {dim: size for dim, size in sizes.items() if dim in kernel.dims}
