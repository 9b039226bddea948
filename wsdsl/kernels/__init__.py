"""Ready kernels, written in the language."""

from typing import TYPE_CHECKING, Any

from wsdsl.dispatch.callee import repeated_function
from wsdsl.dynamo import opaque
from wsdsl.kernels.gemm.matmul import Matmul, matmul
from wsdsl.kernels.gemm.matmul_call import Product
from wsdsl.kernels.torch_ops import traced_rows, with_gradient

if TYPE_CHECKING:
    from wsdsl.kernels import lossless, quantized
    from wsdsl.kernels.rows.cross_entropy import (
        cross_entropy,
        cross_entropy_backward,
        cross_entropy_with_lse,
    )
    from wsdsl.kernels.rows.layernorm import (
        layernorm,
        layernorm_backward,
        layernorm_bias_backward,
        layernorm_weight_backward,
        layernorm_with_statistics,
    )
    from wsdsl.kernels.rows.quantize import quantize
    from wsdsl.kernels.rows.rmsnorm import (
        rmsnorm,
        rmsnorm_backward,
        rmsnorm_weight_backward,
        rmsnorm_with_rstd,
    )
    from wsdsl.kernels.rows.softmax import (
        log_softmax,
        log_softmax_backward,
        softmax,
        softmax_backward,
    )

__all__ = [
    "Matmul",
    "Product",
    "cross_entropy",
    "cross_entropy_backward",
    "cross_entropy_with_lse",
    "layernorm",
    "layernorm_backward",
    "layernorm_bias_backward",
    "layernorm_weight_backward",
    "layernorm_with_statistics",
    "log_softmax",
    "log_softmax_backward",
    "lossless",
    "matmul",
    "quantize",
    "quantized",
    "rmsnorm",
    "rmsnorm_backward",
    "rmsnorm_weight_backward",
    "rmsnorm_with_rstd",
    "softmax",
    "softmax_backward",
]
ROWS = ("cross_entropy", "layernorm", "quantize", "rmsnorm", "softmax")
"""Modules of `rows`; the names of their functions contain theirs."""


def __getattr__(name: str) -> Any:
    """Import modules that need NumPy on first access."""
    from importlib import import_module

    if name in ("lossless", "quantized"):
        return import_module(f"wsdsl.kernels.{name}")
    module = next((module for module in ROWS if module in name and name in __all__), None)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = vars(import_module(f"wsdsl.kernels.rows.{module}"))
    made: dict[str, Any] = {}
    for each in {*__all__} & {*home}:
        if module in each:
            traced, call = traced_rows(each), home[each]
            call = with_gradient(call, traced) if traced else call
            made[each] = repeated_function(opaque(call, traced=traced))
    home |= made
    globals().update(made)
    return made[name]


def __dir__() -> list[str]:
    """Also what is not imported yet."""
    return sorted(__all__)
