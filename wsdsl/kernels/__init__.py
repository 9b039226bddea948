"""Ready kernels, written in the language."""

from typing import TYPE_CHECKING, Any

from wsdsl.kernels.gemm.matmul import Matmul, matmul
from wsdsl.kernels.gemm.product import Product

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
ROWS = {
    "cross_entropy": (
        "cross_entropy",
        "cross_entropy_backward",
        "cross_entropy_with_lse",
    ),
    "layernorm": (
        "layernorm",
        "layernorm_backward",
        "layernorm_bias_backward",
        "layernorm_weight_backward",
        "layernorm_with_statistics",
    ),
    "quantize": ("quantize",),
    "rmsnorm": (
        "rmsnorm",
        "rmsnorm_backward",
        "rmsnorm_weight_backward",
        "rmsnorm_with_rstd",
    ),
    "softmax": (
        "log_softmax",
        "log_softmax_backward",
        "softmax",
        "softmax_backward",
    ),
}
"""The functions of the modules of `rows`."""


def __getattr__(name: str) -> Any:
    """What needs NumPy is imported when it is asked for."""
    from importlib import import_module

    if name in ("lossless", "quantized"):
        return import_module(f"wsdsl.kernels.{name}")
    module = next((module for module, names in ROWS.items() if name in names), None)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"wsdsl.kernels.rows.{module}"), name)


def __dir__() -> list[str]:
    """Also what is not imported yet."""
    return sorted(__all__)
