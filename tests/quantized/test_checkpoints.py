"""`quantized.load` of files that are packed here, from the published layouts of each format."""

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from wsdsl import LaunchError
from wsdsl.kernels import lossless, quantized

BF16, E4M3 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn
N, K, G = 48, 96, 32
KINDS = {"bfloat16": "BF16", "float8_e4m3fn": "F8_E4M3"}
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
AWQ = [0, 2, 4, 6, 1, 3, 5, 7]
Case = tuple[dict[str, Any], Any]
"""A layer's tensors, and what they represent in f64."""


def save(path: Path, tensors: dict[str, Any]) -> Path:
    header, data = {}, b""
    for name, x in tensors.items():
        kind = KINDS.get(x.dtype.name, f"{x.dtype.kind.upper()}{8 * x.itemsize}")
        offsets = len(data), len(data) + x.nbytes
        header[name] = {"dtype": kind, "shape": x.shape, "data_offsets": offsets}
        data += x.tobytes()
    raw = json.dumps(header).encode()
    path.write_bytes(len(raw).to_bytes(8, "little") + raw + data)
    return path


def words(codes: Any, bits: int, order: Any = None) -> Any:
    """Each 32 / bits codes of a row in a word, whose i-th field from below has code order[i]."""
    per = 32 // bits
    fields = codes.astype(np.uint64).reshape(len(codes), -1, per)[..., order or range(per)]
    return (fields << np.arange(0, 32, bits, dtype=np.uint64)).sum(2).astype(np.uint32).view("i4")


def pairs(codes: Any) -> Any:
    return codes[..., ::2] | codes[..., 1::2] << 4


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def wide(array: Any, size: int = G) -> Any:
    return np.repeat(array.astype(np.float64), size, 1)


def drawn(bits: int, dtype: Any, zeros: int | None = None) -> tuple[Any, Any, Any, Any]:
    """Codes, zero points, scales, and (codes - zeros) * scales."""
    codes = rng().integers(0, 1 << bits, (N, K)).astype(np.uint8)
    points = rng().integers(0, 1 << bits, (N, K // G)).astype(np.uint8)
    points = points if zeros is None else np.full_like(points, zeros)
    scales = (rng().random((N, K // G)) + 0.5).astype(dtype)
    return codes, points, scales, (codes - wide(points)) * wide(scales)


def gptq(bits: int, offset: int = 1, zeros: int | None = None) -> Case:
    codes, points, scales, values = drawn(bits, np.float16, zeros)
    stored = points.astype(np.int64) - offset & (1 << bits) - 1
    tensors = dict(qweight=words(codes, bits).T, qzeros=words(stored.T, bits))
    return tensors | dict(scales=scales.T, g_idx=np.arange(K, dtype=np.int32) // G), values


def act_order(prefix: str, case: Case) -> Case:
    """Columns of the case in another order, each with the number of its group."""
    (tensors, values), order = case, rng().permutation(K)
    packed = {"": "qweight", "weight_": "weight_packed"}[prefix]
    codes = tensors[packed].T if prefix == "" else tensors[packed]
    codes = np.repeat(codes, 8, 1) >> np.tile(np.arange(0, 32, 4), K // 8) & 15
    codes = words(codes[:, order], 4)
    tensors = tensors | {packed: codes.T if prefix == "" else codes}
    return tensors | {f"{prefix}g_idx": (order // G).astype(np.int32)}, values[:, order]


def awq() -> Case:
    codes, zeros, scales, values = drawn(4, np.float16)
    qweight, qzeros = words(codes.T, 4, AWQ), words(zeros.T, 4, AWQ)
    return dict(qweight=qweight, qzeros=qzeros, scales=scales.T), values


def compressed(bits: int, zeros: bool, k: int = K) -> Case:
    half = 1 << bits - 1
    codes, points, scales, values = drawn(bits, BF16, None if zeros else half)
    tensors = dict(weight_packed=words(codes, bits), weight_scale=scales)
    if k < K:  # one scale per row, and words that end with codes of no column
        tensors["weight_scale"], values = (
            scales[:, :1],
            (codes - float(half)) * wide(scales[:, :1], K),
        )
    tensors |= dict(weight_zero_point=words(points.T, bits).T) if zeros else {}
    return tensors | dict(weight_shape=np.array([N, k])), values[:, :k]


def scaled(dtype: Any, scales: Any, *size: int) -> Case:
    codes = (rng().standard_normal((160, 208)) * 50).astype(dtype)
    every = np.repeat(scales.astype(np.float64).reshape(len(scales), -1), size[0], 0)
    values = codes.astype(np.float64) * np.repeat(every, size[1], 1)[:160, :208]
    return dict(weight=codes, weight_scale=scales), values


def nvfp4() -> Case:
    codes, whole = rng().integers(0, 16, (N, K)).astype(np.uint8), np.float32(0.0031)
    scales = (rng().random((N, K // 16)) * 400).astype(E4M3)
    tensors = dict(weight=pairs(codes), weight_scale=scales, weight_scale_2=np.array(whole))
    return tensors, E2M1[codes] * wide(scales, 16) * float(whole)


def normal(*shape: int) -> Any:
    return rng().standard_normal(shape).astype(np.float32)


CASES: dict[str, Case] = {
    "gptq 4 zeros": gptq(4),
    "gptq 8 zeros": gptq(8),
    "gptq symmetric": gptq(4, zeros=8),
    "gptq_v2 zeros": gptq(4, offset=0),
    "gptq act-order zeros": act_order("", gptq(4)),
    "int4 act-order": act_order("weight_", compressed(4, zeros=False)),
    "awq zeros": awq(),
    **{f"int{b}{' zeros' * z}": compressed(b, z) for b in (4, 8) for z in (False, True)},
    "int4 ragged": compressed(4, zeros=False, k=90),
    "int8": scaled(np.int8, normal(160, 1), 1, 208),
    "fp8 channel": scaled(E4M3, normal(160, 1).astype(BF16), 1, 208),
    "fp8 tensor": scaled(E4M3, normal(1), 160, 208),
    "fp8 block": scaled(E4M3, normal(2, 2), 128, 128),
    "fp8 block of 64": scaled(E4M3, normal(3, 4), 64, 64),
    "nvfp4": nvfp4(),
}


@pytest.fixture
def layer(tmp_path: Path) -> Any:
    def load(tensors: dict[str, Any], **options: Any) -> quantized.Weights:
        held = {f"m.up.{name}": x for name, x in tensors.items()}
        path = save(tmp_path / "w", {"m.up2.weight": np.zeros(3, "u1")} | held)
        return quantized.load(path, "m.up", **options)

    return load


@pytest.mark.parametrize("name", CASES)
def test_loaded_weights_are_bit_for_bit_and_multiply(layer: Any, name: str) -> None:
    tensors, values = CASES[name]
    options: dict[str, Any] = {"group": (64, 64)} if name.endswith("64") else {}
    weights = layer(tensors, **options, checkpoint_format="gptq_v2" if "v2" in name else "gptq")
    assert np.array_equal(weights.dequantize("f64"), values)
    assert weights.shape == values.shape and (weights.zeros is None) == ("zeros" not in name)
    x = rng().standard_normal((5, values.shape[1])).astype(BF16)
    wanted, most = (f(x.astype(float)) @ f(values).T for f in (np.positive, abs))
    assert np.all(abs(quantized.matmul(x, weights).astype(float) - wanted) <= 0.005 * most)


def test_mxfp4_of_gpt_oss_has_experts(tmp_path: Path) -> None:
    codes = rng().integers(0, 16, (3, N, K // 32, 32)).astype(np.uint8)
    scales = rng().integers(110, 130, (3, N, K // 32)).astype(np.uint8)
    path = save(tmp_path / "w", {"up_blocks": pairs(codes), "up_scales": scales})
    for expert in range(3):
        values = E2M1[codes[expert]] * 2.0 ** (scales[expert][..., None].astype(int) - 127)
        got = quantized.load(path, "up", index=expert).dequantize("f64")
        assert np.array_equal(got, values.reshape(N, K))
    for wrong in None, 3:
        with pytest.raises(LaunchError, match="expected one of 3 experts"):
            quantized.load(path, "up", index=wrong)


def test_unknown_layouts_are_named(layer: Any) -> None:
    held, _ = CASES["int4"]
    with pytest.raises(
        LaunchError, match=r"m.up has weight_packed, weight_sc.*\n.*missing: w.*_sh"
    ):
        layer({name: held[name] for name in ("weight_packed", "weight_scale")})
    with pytest.raises(LaunchError, match=r"m.up has no tensors .*\n.*supported: GPTQ"):
        layer({})
    with pytest.raises(LaunchError, match="96 codes are packed in 9 words"):
        layer(held | {"weight_packed": np.zeros((N, 9), np.int32)})
    with pytest.raises(LaunchError, match="checkpoint_format is 'awq', expected gptq, gptq_v2"):
        layer({}, checkpoint_format="awq")
    with pytest.raises(LaunchError, match="index is 0, expected None"):
        layer(held, index=0)


def test_damaged_files_are_rejected(tmp_path: Path) -> None:
    path = save(tmp_path / "w", {"w.weight": np.zeros(3, "u1"), "w.weight_scale": np.ones(1, "u1")})
    raw = path.read_bytes()
    swaps = (b'"U8"', b'"X8"'), (b"[3]", b"[4]"), (b"[3]", b"[-3]"), (b"[0,", b"[1,")
    for bad in (b"", raw[:40], raw[:-1], raw + b"\0", *(raw.replace(*swap) for swap in swaps)):
        path.write_bytes(bad)
        with pytest.raises(lossless.FileError, match=r"damaged|has the type X8"):
            quantized.load(path, "w")
