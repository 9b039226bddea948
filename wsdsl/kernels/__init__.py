"""Ready kernels, written in the language."""

from typing import TYPE_CHECKING, Any

from wsdsl.kernels.gemm.matmul import Matmul, matmul
from wsdsl.kernels.gemm.product import Product

if TYPE_CHECKING:
    from wsdsl.kernels import lossless, quantized

__all__ = ["Matmul", "Product", "lossless", "matmul", "quantized"]


def __getattr__(name: str) -> Any:
    """What needs NumPy is imported when it is asked for."""
    if name not in ("lossless", "quantized"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return import_module(f"wsdsl.kernels.{name}")
