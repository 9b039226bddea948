"""Quantization method "wsdsl" of vLLM: checkpoints of 16 bits, or of GPTQ without act-order."""

from typing import Any
from weakref import WeakValueDictionary

import torch
from vllm.model_executor.layers.linear import (
    LinearBase,
    LinearMethodBase,
    UnquantizedLinearMethod,
    register_weight_loader_v2_supported_method,
)
from vllm.model_executor.layers.quantization import register_quantization_config
from vllm.model_executor.layers.quantization.base_config import QuantizationConfig
from vllm.model_executor.parameter import (
    GroupQuantScaleParameter,
    ModelWeightParameter,
    PackedvLLMParameter,
)

from wsdsl.kernels import quantized

LAYERS = WeakValueDictionary[str, torch.nn.Module]()
"""Layers by name, which graphs of torch.compile contain in place of their weights."""


@torch.library.custom_op("wsdsl_vllm::linear", mutates_args=())
def linear(x: torch.Tensor, layer: str, bias: torch.Tensor | None) -> torch.Tensor:
    return quantized.matmul(x, LAYERS[layer].wsdsl_weights, bias)


@linear.register_fake
def _(x: torch.Tensor, layer: str, bias: torch.Tensor | None) -> torch.Tensor:
    return x.new_empty((*x.shape[:-1], LAYERS[layer].wsdsl_weights.shape[0]))


@register_quantization_config("wsdsl")
class WsdslConfig(QuantizationConfig):
    """Type of weights and size of groups. `gptq`: the configuration of a GPTQ checkpoint, whose
    weights are read; others have 16 bits and are quantized after loading.
    """

    def __init__(
        self,
        dtype: str = "i4",
        group: int = 128,
        skipped: tuple[str, ...] = (),
        gptq: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.dtype, self.group, self.skipped, self.gptq = dtype, group, skipped, gptq

    def get_name(self) -> str:
        return "wsdsl"

    def get_supported_act_dtypes(self) -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16]

    @classmethod
    def get_min_capability(cls) -> int:
        return 90

    @staticmethod
    def get_config_filenames() -> list[str]:
        return []

    @classmethod
    def override_quantization_method(
        cls, hf_quant_cfg: dict[str, Any], user_quant: str | None, hf_config: Any = None
    ) -> str | None:
        """Read GPTQ checkpoints if the user selects `--quantization wsdsl`."""
        is_gptq = hf_quant_cfg.get("quant_method") == "gptq"
        return "wsdsl" if user_quant == "wsdsl" and is_gptq else None

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "WsdslConfig":
        skipped = tuple(config.get("modules_to_not_convert") or ())
        if config["quant_method"] != "gptq":
            return cls(config.get("dtype", "i4"), config.get("group_size", 128), skipped)
        bits, group = config["bits"], config["group_size"]
        if bits not in (4, 8) or config.get("desc_act") or config.get("dynamic"):
            raise ValueError(f"expected GPTQ of 4 or 8 bits without desc_act and dynamic: {config}")
        biased = f"b{1 << bits - 1}" if config.get("sym", True) else ""
        return cls(f"u{bits}{biased}", group, skipped, config)

    def get_quant_method(self, layer: torch.nn.Module, prefix: str) -> LinearMethodBase | None:
        if not isinstance(layer, LinearBase):
            return None
        if any(name in prefix for name in self.skipped):
            return UnquantizedLinearMethod()
        return WsdslLinearMethod(self, prefix)


@register_weight_loader_v2_supported_method
class WsdslLinearMethod(LinearMethodBase):
    """Multiply by the weights of one layer, the part of this rank."""

    def __init__(self, config: WsdslConfig, prefix: str) -> None:
        self.config, self.prefix = config, prefix

    def create_weights(
        self,
        layer: torch.nn.Module,
        input_size_per_partition: int,
        output_partition_sizes: list[int],
        input_size: int,
        output_size: int,
        params_dtype: torch.dtype,
        **extra_weight_attrs: Any,
    ) -> None:
        if LAYERS.setdefault(self.prefix, layer) is not layer:
            raise ValueError(f"two layers have the name {self.prefix!r}")
        k, n = input_size_per_partition, sum(output_partition_sizes)
        loader = extra_weight_attrs["weight_loader"]
        if (gptq := self.config.gptq) is None:
            data = torch.empty(n, k, dtype=params_dtype)
            weight = ModelWeightParameter(
                data=data, input_dim=1, output_dim=0, weight_loader=loader
            )
            layer.register_parameter("weight", weight)
            return
        codes = 32 // gptq["bits"]
        group = self.config.group if self.config.group > 0 else input_size
        if k % group:
            raise ValueError(f"{k} rows of a rank of {self.prefix!r} are not groups of {group}")
        dims = dict(input_dim=0, output_dim=1, weight_loader=loader)
        for name, rows, columns in ("qweight", k // codes, n), ("qzeros", k // group, n // codes):
            data, packed_dim = torch.empty(rows, columns, dtype=torch.int32), int(name == "qzeros")
            words = PackedvLLMParameter(
                data=data, packed_dim=packed_dim, packed_factor=codes, **dims
            )
            layer.register_parameter(name, words)
        data = torch.empty(k // group, n, dtype=params_dtype)
        layer.register_parameter("scales", GroupQuantScaleParameter(data=data, **dims))

    def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
        if (gptq := self.config.gptq) is None:
            dtype, group = self.config.dtype, self.config.group
            named = dtype in ("nvfp4", "mxfp4")  # which have groups of one size
            weights = quantized.quantize(layer.weight.data, dtype, None if named else group)
            del layer.weight
        else:
            zeros = None if gptq.get("sym", True) else _zeros(layer.qzeros.data, gptq)
            codes, scales = (x.data.T.contiguous() for x in (layer.qweight, layer.scales))
            weights = quantized.weights(codes, scales, zeros, dtype=self.config.dtype)
            del layer.qweight, layer.qzeros, layer.scales
        layer.wsdsl_weights = weights

    def apply(
        self, layer: torch.nn.Module, x: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        return linear(x, self.prefix, bias)


def _zeros(words: torch.Tensor, gptq: dict[str, Any]) -> torch.Tensor:
    """Zero points [N, K / group], one per byte; GPTQ stores them less 1, GPTQ v2 as they are."""
    zeros, bits = words.view(torch.uint8), gptq["bits"]
    if bits == 4:
        zeros = torch.stack((zeros & 15, zeros >> 4), -1).flatten(1)
    zeros = zeros + (gptq.get("checkpoint_format") != "gptq_v2") & (1 << bits) - 1
    return zeros.T.contiguous()
