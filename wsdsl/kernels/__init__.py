"""Ready kernels, written in the language."""

from typing import TYPE_CHECKING, Any

from wsdsl.kernels.gemm.matmul import Matmul, matmul
from wsdsl.kernels.gemm.product import Product
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

if TYPE_CHECKING:
    from wsdsl.kernels import lossless, quantized

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


def __getattr__(name: str) -> Any:
    """What needs NumPy is imported when it is asked for."""
    if name not in ("lossless", "quantized"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return import_module(f"wsdsl.kernels.{name}")
