"""Weights of 4 and 8 bits with scales, times activations of 16 bits."""

from wsdsl.kernels.quantized.checkpoints import load
from wsdsl.kernels.quantized.quantized_matmul import matmul
from wsdsl.kernels.quantized.quantized_weights import Weights, weights
from wsdsl.kernels.quantized.weight_quantization import quantize

__all__ = ["Weights", "load", "matmul", "quantize", "weights"]
