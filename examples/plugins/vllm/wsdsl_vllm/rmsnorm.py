"""RMSNorm of vLLM, also with the addition of a residual before it."""

from typing import Any

import torch
from vllm.model_executor.layers.layernorm import RMSNorm

from wsdsl import kernels
from wsdsl.kernels import torch_ops

torch_ops.register()  # a cached graph of torch.compile names these operators


@RMSNorm.register_oot
class WsdslRMSNorm(RMSNorm):
    """vLLM constructs this class where a model constructs RMSNorm."""

    def forward_cuda(self, x: torch.Tensor, residual: torch.Tensor | None = None) -> Any:
        if self.variance_size_override is not None:  # mean square of a part of the row
            return super().forward_cuda(x, residual)
        weight = self.weight.data if self.has_weight else None
        if residual is None:
            return kernels.rmsnorm(x, weight, self.variance_epsilon)
        residual = x + residual
        return kernels.rmsnorm(residual, weight, self.variance_epsilon), residual

    def forward_oot(self, x: torch.Tensor, residual: torch.Tensor | None = None) -> Any:
        return self.forward_cuda(x, residual)
