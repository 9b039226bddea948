"""Weights of 4 and 8 bits with scales, times activations of 16 bits."""

from wsdsl.kernels.quantized.checkpoints import load
from wsdsl.kernels.quantized.product import matmul
from wsdsl.kernels.quantized.quantize import quantize
from wsdsl.kernels.quantized.weights import Weights, weights

__all__ = ["Weights", "load", "matmul", "quantize", "weights"]
