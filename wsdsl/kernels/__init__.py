"""Ready kernels, written in the language."""

from wsdsl.kernels import lossless
from wsdsl.kernels.gemm.matmul import Matmul, matmul
from wsdsl.kernels.gemm.product import Product

__all__ = ["Matmul", "Product", "lossless", "matmul"]
