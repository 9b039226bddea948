"""`quantized.load` of files that are packed here, from the published layouts of each format."""

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from wsdsl import LaunchError
from wsdsl.kernels import quantized
from wsdsl.kernels.safetensors import FileError

BF16, E4M3 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn
RNG = np.random.default_rng(0)
N, K, G = 48, 128, 32
KINDS = {"bfloat16": "BF16", "float8_e4m3fn": "F8_E4M3"}
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
Case = tuple[dict[str, Any], Any]  # a layer's tensors, and what they represent in f64


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


def wide(array: Any, size: int = G) -> Any:
    return np.repeat(array.astype(np.float64), size, 1)


def drawn(bits: int, dtype: Any, zeros: int | None = None) -> tuple[Any, Any, Any, Any]:
    """Codes, zero points, scales, and (codes - zeros) * scales."""
    codes = RNG.integers(0, 1 << bits, (N, K)).astype(np.uint8)
    points = RNG.integers(*((0, 1 << bits) if zeros is None else (zeros, zeros + 1)), (N, K // G))
    scales = (RNG.random((N, K // G)) + 0.5).astype(dtype)
    return codes, points, scales, (codes - wide(points)) * wide(scales)


def gptq(bits: int, offset: int = 1, zeros: int | None = None, order: Any = range(K)) -> Case:
    codes, points, scales, values = drawn(bits, np.float16, zeros)
    qzeros = words((points - offset & (1 << bits) - 1).T, bits)
    tensors = dict(qweight=words(codes[:, order], bits).T, qzeros=qzeros, scales=scales.T)
    return tensors | dict(g_idx=np.int32(order) // G), values[:, order]


def awq() -> Case:
    codes, zeros, scales, values = drawn(4, np.float16)
    qweight, qzeros = (words(x.T, 4, [0, 2, 4, 6, 1, 3, 5, 7]) for x in (codes, zeros))
    return dict(qweight=qweight, qzeros=qzeros, scales=scales.T), values


def compressed(bits: int, zeros: bool, packed: bool = True) -> Case:
    codes, points, scales, values = drawn(bits, BF16, None if zeros else 1 << bits - 1)
    tensors = dict(weight_packed=words(codes, bits), weight_scale=scales)
    stored = words(points.T, bits).T if packed else (points - (1 << bits - 1)).astype(np.int8)
    tensors |= dict(weight_zero_point=stored) if zeros else {}
    # The last words of a row have codes of no column.
    return tensors | dict(weight_shape=np.array([N, K - 2])), values[:, :-2]


def scaled(dtype: Any, scales: Any, *size: int) -> Case:
    codes = (RNG.standard_normal((160, 208)) * 50).astype(dtype)
    every = np.repeat(scales.astype(np.float64).reshape(len(scales), -1), size[0], 0)
    values = codes.astype(np.float64) * np.repeat(every, size[1], 1)[:160, :208]
    return dict(weight=codes, weight_scale=scales), values


def in_bytes(form: str) -> Case:
    codes, low_first = RNG.integers(0, 16, (N, K)).astype(np.uint8), form != "nf4"
    pairs = codes[:, ::2] << 4 * (not low_first) | codes[:, 1::2] << 4 * low_first
    if form == "nvfp4":
        scales, whole = (RNG.random((N, K // 16)) * 400).astype(E4M3), np.float32(0.0031)
        tensors = dict(weight=pairs, weight_scale=scales, weight_scale_2=np.array(whole))
        return tensors, E2M1[codes] * wide(scales, 16) * float(whole)
    if form == "mxfp4":
        scales = RNG.integers(110, 130, (N, K // G)).astype(np.uint8)
        values = E2M1[codes] * 2.0 ** (wide(scales) - 127)
        return dict(blocks=pairs.reshape(N, K // G, 16), scales=scales), values
    state = json.dumps(dict(shape=[N, K], blocksize=64, nested_blocksize=32, nested_offset=0.25))
    tensors = {"weight": pairs.reshape(-1, 1), "weight.absmax": np.uint8(RNG.integers(0, 256, 96))}
    tensors |= {"weight.quant_state.bitsandbytes__nf4": np.frombuffer(state.encode(), np.uint8)}
    names = dict(quant_map=16, nested_quant_map=256, nested_absmax=3)
    tensors |= {f"weight.{name}": RNG.random(n, np.float32) for name, n in names.items()}
    nested = np.repeat(tensors["weight.nested_absmax"], 32)
    scales = tensors["weight.nested_quant_map"][tensors["weight.absmax"]] * nested + np.float32(
        0.25
    )
    return tensors, tensors["weight.quant_map"].astype(float)[codes] * wide(
        scales.reshape(N, 2), 64
    )


CASES: dict[str, Case] = {
    "gptq 4 zeros": gptq(4),
    "gptq 8 zeros": gptq(8),
    "gptq symmetric": gptq(4, zeros=8),
    "gptq_v2 zeros": gptq(4, offset=0),
    "gptq act-order zeros": gptq(4, order=RNG.permutation(K)),
    "awq zeros": awq(),
    **{f"packed {b}{' zeros' * z}": compressed(b, z) for b in (4, 8) for z in (False, True)},
    "packed 4, zeros in bytes": compressed(4, zeros=True, packed=False),
    "int8 channel": scaled(np.int8, RNG.random((160, 1), np.float32), 1, 208),
    "fp8 tensor": scaled(E4M3, RNG.random(1, np.float32), 160, 208),
    "fp8 block": scaled(E4M3, RNG.random((2, 2), np.float32), 128, 128),
    "fp8 block of 64": scaled(E4M3, RNG.random((3, 4)).astype(BF16), 64, 64),
    **{form: in_bytes(form) for form in ("nvfp4", "mxfp4", "nf4")},
}


@pytest.fixture
def layer(tmp_path: Path) -> Any:
    def load(tensors: dict[str, Any], **options: Any) -> quantized.Weights:
        between = "_" if "blocks" in tensors else "."
        held = {f"m.up{between}{name}": x for name, x in tensors.items()}
        path = save(tmp_path / "w", {"m.up2.weight": np.zeros(3, "u1")} | held)
        return quantized.load(path, "m.up", **options)

    load.folder = tmp_path
    return load


@pytest.mark.parametrize("name", CASES)
def test_loaded_weights_are_bit_for_bit_and_multiply(layer: Any, name: str) -> None:
    tensors, values = CASES[name]
    group = (64, 64) if name.endswith("64") else G if name.startswith("packed") else None
    form = "gptq_v2" if "v2" in name else "gptq"
    weights = layer(tensors, group=group, checkpoint_format=form)
    assert np.array_equal(weights.dequantize("f64"), values)
    assert weights.shape == values.shape and (weights.zeros is None) == ("zeros" not in name)
    for rows in 1, 5:
        x = RNG.standard_normal((rows, values.shape[1])).astype(BF16)
        wanted, most = (f(x.astype(float)) @ f(values).T for f in (np.positive, abs))
        assert np.all(abs(quantized.matmul(x, weights).astype(float) - wanted) <= 0.005 * most)


def test_unknown_layouts_are_named(layer: Any) -> None:
    held, experts = CASES["packed 4"][0], {name: x[None] for name, x in CASES["mxfp4"][0].items()}
    for tensors, options, said in (
        ({"weight_packed": experts["blocks"]}, {}, r"m.up has weight_pac.*\n.*missing: weight_sc"),
        ({}, {}, r"m.up has no tensors .*\n.*supported: GPTQ"),
        (held | {"weight_packed": np.zeros((N, 9), np.int32)}, {}, "126 codes are packed in 9"),
        (held, {"checkpoint_format": "awq"}, "checkpoint_format is 'awq', expected gptq, g"),
        (held, {"index": 0}, "index is 0, expected None"),
        (CASES["nf4"][0] | {"weight.absmax": np.zeros(95, "f4")}, {}, "do not fit each other: "),
        (experts, {"index": 1}, "index is 1, expected one of 1 experts"),
    ):
        with pytest.raises(LaunchError, match=said):
            layer(tensors, **options)


@pytest.mark.parametrize("name", ["nvfp4", "mxfp4"])
def test_load_of_sharded_checkpoint_when_files_share_a_layer(layer: Any, name: str) -> None:
    tensors, between = CASES[name][0], "_" if name == "mxfp4" else "."
    whole, folder = layer(tensors), layer.folder
    files = [f"model-{i}.safetensors" for i in range(3)]
    names = [f"m.up{between}{suffix}" for suffix in tensors]
    shards = {file: {full: x} for file, full, x in zip(files, names, tensors.values())}
    for file, content in shards.items():
        save(folder / file, content)
    weight_map = {full: file for file, content in shards.items() for full in content}
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": weight_map | {"m.other": "not there"}}))
    for path in index, folder:
        loaded = quantized.load(path, "m.up")
        assert np.array_equal(loaded.dequantize("f64"), whole.dequantize("f64"))
    with pytest.raises(LaunchError, match=r"m.u has no tensors in .*index.json"):
        quantized.load(index, "m.u")
    index.unlink()
    save(folder / "model.safetensors", shards[files[0]])
    with pytest.raises(LaunchError, match=r"m.up has .*\n.*missing: "):
        quantized.load(folder, "m.up")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "weight_map is invalid"),
        (b"\xff", "weight_map is invalid"),
        (b"[" * 100_000, "weight_map is invalid"),
        (b"[]", "weight_map is invalid"),
        (b"{}", "weight_map is invalid"),
        (b'{"weight_map": 1}', "weight_map is invalid"),
        (b'{"weight_map": {"m.up.weight": 1}}', "weight_map is invalid"),
        (b'{"weight_map": {"m.up.weight": "../w"}}', "weight_map is invalid"),
        (b'{"weight_map": {"m.up.other": "w"}}', "w does not contain m.up.other"),
    ],
)
def test_damaged_index_is_rejected(layer: Any, data: bytes, why: str) -> None:
    layer(CASES["nvfp4"][0])
    index = layer.folder / "model.safetensors.index.json"
    index.write_bytes(data)
    with pytest.raises(FileError, match=f"WS0826 .*index.json is damaged: {why}"):
        quantized.load(layer.folder, "m.up")
