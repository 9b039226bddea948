"""The plugin of examples/plugins in vLLM's layers, where vLLM is installed."""

from typing import Any

import pytest

from tests.plugins.signatures import PLUGIN

torch: Any = pytest.importorskip("torch")
pytest.importorskip("vllm")
pytestmark = pytest.mark.gpu


def test_layers_of_vllm_run_the_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.config import CompilationConfig, VllmConfig, set_current_vllm_config
    from vllm.model_executor import parameter
    from vllm.model_executor.layers import layernorm, linear, quantization

    monkeypatch.syspath_prepend(PLUGIN.parent)
    monkeypatch.setattr(parameter, "get_tensor_model_parallel_rank", lambda: 0)
    monkeypatch.setattr(parameter, "get_tensor_model_parallel_world_size", lambda: 1)
    import wsdsl_vllm

    wsdsl_vllm.register()
    config = VllmConfig(compilation_config=CompilationConfig(custom_ops=["all"]))
    chosen = quantization.get_quantization_config("wsdsl")(dtype="i8", group=128)
    options = dict(params_dtype=torch.bfloat16, quant_config=chosen, disable_tp=True)
    with set_current_vllm_config(config), torch.device("cuda"):
        norm = layernorm.RMSNorm(1024, dtype=torch.bfloat16)
        layer = linear.ReplicatedLinear(1024, 512, bias=False, prefix="up", **options)
        x, residual = torch.randn(2, 7, 1024, dtype=torch.bfloat16).unbind()
        layer.weight.data.normal_()
        weight = layer.weight.data.double()
        layer.quant_method.process_weights_after_loading(layer)
        y, total = norm(x, residual)
        product, _ = layer(y)
    assert type(norm).__name__ == "WsdslRMSNorm" and torch.equal(total, x + residual)
    wide = total.double()
    wanted = wide * (wide.square().mean(-1, keepdim=True) + norm.variance_epsilon).rsqrt()
    torch.testing.assert_close(y.double(), wanted, rtol=1e-2, atol=1e-2)
    error = (product.double() - y.double() @ weight.T).norm() / product.double().norm()
    assert error < 0.02
