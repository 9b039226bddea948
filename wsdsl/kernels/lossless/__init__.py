"""Weights of bf16 in some 12 bits, bit for bit: packed, in files, and multiplied."""

from wsdsl.kernels.lossless.container import FileError, load, save
from wsdsl.kernels.lossless.lossless_matmul import matmul
from wsdsl.kernels.lossless.lossless_weights import Statistics, Weights, pack

__all__ = ["FileError", "Statistics", "Weights", "load", "matmul", "pack", "save"]
