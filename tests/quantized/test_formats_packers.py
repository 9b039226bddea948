"""`quantized.load` of files that compressed-tensors and ModelOpt pack, versus their own numbers."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from wsdsl.kernels import quantized

N, K = 256, 384
PAGE = Path(__file__).parents[2] / "docs" / "kernels.md"
INT, FP8 = {"num_bits": 4}, {"num_bits": 8, "type": "float"}
SCHEMES: dict[str, dict[str, Any]] = {
    "int4": INT | {"strategy": "group", "group_size": 128},
    "int4 zeros": INT | {"strategy": "group", "group_size": 32, "symmetric": False},
    "int4 channel": INT | {"strategy": "channel"},
    "int8 packed": {"num_bits": 8, "strategy": "group", "group_size": 128},
    "int8": {"num_bits": 8, "strategy": "channel"},
    "int8 zeros": {"num_bits": 8, "strategy": "channel", "symmetric": False},
    "fp8 channel": FP8 | {"strategy": "channel"},
    "fp8 tensor": FP8 | {"strategy": "tensor"},
    "fp8 block": FP8 | {"strategy": "block", "block_structure": [128, 128]},
}


@pytest.fixture
def torch(import_optional: Any) -> Any:
    found = import_optional("torch")
    found.manual_seed(0)
    return found


@pytest.fixture
def load(import_optional: Any, tmp_path: Path) -> Any:
    save_file = import_optional("safetensors.torch").save_file

    def load(tensors: dict[str, Any], **options: Any) -> quantized.Weights:
        held = {f"up{name}": x.contiguous() for name, x in tensors.items()}
        save_file(held, tmp_path / "w.safetensors")
        return quantized.load(tmp_path / "w.safetensors", "up", **options)

    return load


def grouped(w: Any, strategy: str, size: int = K) -> Any:
    """Weights that share a scale along the last dimension."""
    if strategy == "block":
        return w.reshape(N // 128, 128, K // 128, 128).transpose(1, 2).flatten(2)
    return w.reshape(1, -1) if strategy == "tensor" else w.reshape(N, -1, size)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", SCHEMES)
def test_compressed_tensors(
    name: str, dtype: str, torch: Any, load: Any, import_optional: Any
) -> None:
    quantization = import_optional("compressed_tensors.quantization")
    helpers = import_optional("compressed_tensors.quantization.utils.helpers")
    base = import_optional("compressed_tensors.compressors.base").BaseCompressor
    options = SCHEMES[name]
    args = quantization.QuantizationArgs(**options)
    w = torch.randn(N, K, dtype=getattr(torch, dtype))
    cut = grouped(w, options["strategy"], options.get("group_size", K))
    scale, zero_point = helpers.calculate_qparams(cut.amin(-1), cut.amax(-1), args)
    scheme = quantization.QuantizationScheme(targets=["Linear"], weights=args)
    state = dict(weight=w, weight_scale=scale, weight_zero_point=zero_point)
    packer = {"int8": "int", "int8 zeros": "int"}.get(name, "float" if "fp8" in name else "pack")
    compressor = base.get_value_from_registry(f"{packer}-quantized")
    packed = compressor.compress(state, scheme)
    weights = load({f".{part}": x for part, x in packed.items()}, like=w)
    theirs = compressor.decompress(packed, scheme)["weight"]
    assert torch.equal(weights.dequantize(theirs.dtype), theirs)
    x = torch.randn(3, K, dtype=w.dtype)
    y = quantized.matmul(x, weights)
    torch.testing.assert_close(y.float(), x.float() @ theirs.float().T, rtol=0.02, atol=0.5)


def test_nvfp4_of_modelopt(torch: Any, load: Any, import_optional: Any) -> None:
    packer = import_optional("modelopt.torch.quantization.qtensor").NVFP4QTensor
    w = torch.randn(N, K, dtype=torch.bfloat16)
    packed, scales, whole = packer.quantize(w, 16)
    assert scales.dtype == torch.float8_e4m3fn
    held = {".weight": packed._quantized_data, ".weight_scale": scales, ".weight_scale_2": whole}
    weights = load(held, like=w)
    options = dict(scale=scales, block_sizes={-1: 16})
    theirs = packed.dequantize(torch.float32, double_scale=whole, **options)
    # ModelOpt rounds the product of both scales to f32 first.
    torch.testing.assert_close(weights.dequantize("f32"), theirs, rtol=2.0**-23, atol=0)
    power = torch.tensor(2.0**-9)
    ours = load(held | {".weight_scale_2": power}, like=w).dequantize("f32")
    assert torch.equal(ours, packed.dequantize(torch.float32, double_scale=power, **options))


def test_mxfp4_of_modelopt_as_gpt_oss_stores_it(
    torch: Any, load: Any, import_optional: Any
) -> None:
    packer = import_optional("modelopt.torch.quantization.qtensor").MXFP4QTensor
    w = torch.randn(2 * N, K, dtype=torch.bfloat16)
    packed, scales = packer.quantize(w, 32)
    blocks = packed._quantized_data.reshape(2, N, K // 32, 16)
    held = {"_blocks": blocks, "_scales": scales.reshape(2, N, K // 32)}
    theirs = packed.dequantize(torch.bfloat16, scale=scales, block_sizes={-1: 32}).reshape(2, N, K)
    for expert in range(2):
        ours = load(held, index=expert, like=w).dequantize("bf16")
        assert torch.equal(ours, theirs[expert])


def test_docs_example_loads_a_layer(tmp_path: Path, monkeypatch: Any, import_optional: Any) -> None:
    import_optional("safetensors.numpy")
    monkeypatch.chdir(tmp_path)
    _, blocks = PAGE.read_text().split("### Weights of checkpoints")
    names: dict[str, Any] = {}
    exec(blocks.partition("```python\n")[2].partition("```")[0], names)
    assert np.array_equal(names["y"], names["x"][:, :32] * 2)
