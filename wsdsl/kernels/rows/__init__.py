"""Kernels over the rows of an array: norms, softmax, cross entropy, quantization."""
