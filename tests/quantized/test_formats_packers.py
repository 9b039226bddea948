"""`quantized.load` of files from compressed-tensors, bitsandbytes and ModelOpt."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from wsdsl.kernels import quantized

N, K = 256, 384
SCHEMES = [
    *(
        ("pack", s, bits, zeros)
        for s in ("group", "channel")
        for bits in (4, 8)
        for zeros in (0, 1)
    ),
    *(("int", "channel", 8, zeros) for zeros in (0, 1)),
    *(("float", strategy, 8, 0) for strategy in ("channel", "tensor", "block")),
]
OPTIONS = {"group": {"group_size": 128}, "block": {"block_structure": [128, 128]}}


@pytest.fixture
def load(import_optional: Any, tmp_path: Path) -> Any:
    save_file = import_optional("safetensors.torch").save_file
    import_optional("torch").manual_seed(0)

    def load(tensors: dict[str, Any], **options: Any) -> quantized.Weights:
        held = {f"up{name}": x.contiguous() for name, x in tensors.items()}
        save_file(held, tmp_path / "w")
        return quantized.load(tmp_path / "w", "up", **options)

    return load


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_compressed_tensors(scheme: Any, dtype: str, load: Any, import_optional: Any) -> None:
    packer, strategy, bits, zeros = scheme
    torch, ct = import_optional("torch"), import_optional("compressed_tensors.quantization")
    helpers = import_optional("compressed_tensors.quantization.utils.helpers")
    base = import_optional("compressed_tensors.compressors.base").BaseCompressor
    options = dict(type="float" if packer == "float" else "int", **OPTIONS.get(strategy, {}))
    args = ct.QuantizationArgs(num_bits=bits, strategy=strategy, symmetric=not zeros, **options)
    w = torch.randn(N, K, dtype=getattr(torch, dtype))
    blocks = w.unfold(0, 128, 128).unfold(1, 128, 128).flatten(2)
    cuts = dict(tensor=w.reshape(1, -1), block=blocks, group=w.reshape(N, -1, 128))
    cut = cuts.get(strategy, w.reshape(N, 1, K))
    scale, zero_point = helpers.calculate_qparams(cut.amin(-1), cut.amax(-1), args)
    scheme = ct.QuantizationScheme(targets=["Linear"], weights=args)
    compressor = base.get_value_from_registry(f"{packer}-quantized")
    state = dict(weight=w, weight_scale=scale, weight_zero_point=zero_point)
    packed = compressor.compress(state, scheme)
    theirs = compressor.decompress(packed, scheme)["weight"]
    ours = load({f".{part}": x for part, x in packed.items()}, like=w)
    assert torch.equal(ours.dequantize(theirs.dtype), theirs)


def test_fp4_of_modelopt(load: Any, import_optional: Any) -> None:
    torch, packers = (
        import_optional("torch"),
        import_optional("modelopt.torch.quantization.qtensor"),
    )
    w = torch.randn(N, K, dtype=torch.bfloat16)
    packed, scales, whole = packers.NVFP4QTensor.quantize(w, 16)
    # ModelOpt rounds the product of both scales to f32, which is exact for a power of two.
    for number, rounding in (whole, 2.0**-23), (torch.tensor(2.0**-9), 0):
        how = dict(scale=scales, double_scale=number, block_sizes={-1: 16})
        held = {".weight": packed._quantized_data, ".weight_scale": scales}
        ours = load(held | {".weight_scale_2": number}, like=w).dequantize("f32")
        theirs = packed.dequantize(torch.float32, **how)
        torch.testing.assert_close(ours, theirs, rtol=rounding, atol=0)
    packed, scales = packers.MXFP4QTensor.quantize(w, 32)
    blocks = packed._quantized_data.reshape(2, N // 2, K // 32, 16)  # of two experts of gpt-oss
    held = {"_blocks": blocks, "_scales": scales.reshape(2, N // 2, K // 32)}
    ours = torch.cat([load(held, index=i, like=w).dequantize("bf16") for i in range(2)])
    theirs = packed.dequantize(torch.bfloat16, scale=scales, block_sizes={-1: 32})
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("nested", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_nf4_of_bitsandbytes(dtype: str, nested: bool, load: Any, import_optional: Any) -> None:
    torch, bnb = import_optional("torch"), import_optional("bitsandbytes.functional")
    w = torch.randn(N, K, dtype=getattr(torch, dtype))
    packed, state = bnb.quantize_4bit(w, None, None, 64, nested, "nf4")
    named = {f".weight.{name}": x for name, x in state.as_dict(packed=True).items()}
    ours = load({".weight": packed} | named, like=w).dequantize(dtype)
    assert torch.equal(ours, bnb.dequantize_4bit(packed, state))


def test_docs_example_loads_a_layer(tmp_path: Path, monkeypatch: Any, import_optional: Any) -> None:
    import_optional("safetensors.numpy")
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[2] / "docs" / "kernels.md").read_text()
    section, names = page.split("### Weights of checkpoints")[1], dict[str, Any]()
    exec(section.partition("```python\n")[2].partition("```")[0], names)
    assert np.array_equal(names["y"], names["x"][:, :32] * 2)
