"""`load`: weights of a linear layer as checkpoints of other packages have them."""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from wsdsl.diagnostics import LaunchError
from wsdsl.dynamo import opaque
from wsdsl.kernels.gemm.matmul_dtypes import wrong_option
from wsdsl.kernels.host_arrays import OF_HOST, placed_like
from wsdsl.kernels.quantized.codes import in_pairs
from wsdsl.kernels.quantized.quantized_weights import Group, Weights, weights
from wsdsl.kernels.safetensors import files_of_tensors

AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
"""Of eight columns, the one that each 4 bits of a word have, from the lowest bits on."""
GPTQ_OFFSETS = {"gptq": 1, "gptq_v2": 0}
"""The number that is added to zero points, by the `checkpoint_format` of GPTQModel's config."""
Given = tuple[tuple[int, ...], dict[str, Any]]
"""[N, K], and arguments of `weights`."""


@opaque
def load(
    file: str | os.PathLike[str],
    name: str,
    like: Any = None,
    *,
    index: int | None = None,
    group: Group = None,
    checkpoint_format: str = "gptq",
) -> Weights:
    """Read the weights [N, K] of one linear layer from a safetensors file, from the files that
    `model.safetensors.index.json` lists, or from the folder of either.

    Supported are GPTQ (act-order, too), AWQ, compressed-tensors (int4, int8 and fp8), NF4 of
    bitsandbytes, MXFP4 of gpt-oss and NVFP4 of ModelOpt; the names of the layer's tensors tell
    the format.

    name: prefix of the layer's tensors, as "model.layers.0.mlp.up_proj".
    like: an array; the weights are of its framework, on its device. Else of NumPy.
    index: an expert, of tensors that have those in their first dimension.
    group: as for `weights`, where shapes do not tell it: a last group or block that is smaller.
    checkpoint_format: "gptq", whose zero points are stored less 1, or "gptq_v2".

    LaunchError for tensors of another format, and FileError for a file that is damaged.
    """
    if checkpoint_format not in GPTQ_OFFSETS:
        raise wrong_option("checkpoint_format", repr(checkpoint_format), ", ".join(GPTQ_OFFSETS))
    files = files_of_tensors(file, (f"{name}.", f"{name}_blocks", f"{name}_scales"))
    parts = {full[len(name) + 1 :]: full for full in files}
    known = next((x for x in LAYOUTS.values() if parts.keys() >= {*x[1]}), None)
    if known is None:
        kinds = "; ".join(f"{kind} ({', '.join(names)})" for kind, (_, names) in LAYOUTS.items())
        begun = [{*names} - parts.keys() for _, names in LAYOUTS.values() if names[0] in parts]
        missing = f"missing: {', '.join(sorted(min(begun, key=len)))}; " if begun else ""
        message = f"WS0849 layer {name} has {', '.join(sorted(parts)) or 'no tensors'} in {file}"
        raise LaunchError(message, hint=f"{missing}supported: {kinds}")
    layout, (first, *_) = known
    experts, *below = files[parts[first]].entries[parts[first]][1]
    if index not in (range(experts) if len(below) == 3 else (None,)):
        expected = f"one of {experts} experts" if len(below) == 3 else "None"
        raise wrong_option("index", repr(index), expected)
    held = {suffix: files[full].read(full, index) for suffix, full in parts.items()}
    try:
        shape, given = layout(held | {"offset": GPTQ_OFFSETS[checkpoint_format]})
    except (ValueError, KeyError, TypeError, IndexError) as error:
        message = f"WS0852 tensors of layer {name} do not fit each other: {error}"
        raise LaunchError(message, hint="supported rows of NF4 consist of whole blocks") from None
    given |= {} if group is None else {"group": group}
    for part, x in given.items() if like is not None else ():
        given[part] = placed_like(x, like) if isinstance(x, np.ndarray) else x
    more = {part: given.pop(part, None) for part in ("order", "table")}
    return replace(weights(**given), shape=shape, **more)


def _fields(words: Any, bits: int, axis: int) -> Any:
    """Split words of int32 along an axis into fields of `bits`, the lowest ones first."""
    split = np.moveaxis(words.astype(np.int32, casting="equiv"), axis, -1)
    split = np.ascontiguousarray(split).view(np.uint8)
    if bits == 4:
        split = np.stack((split & 15, split >> 4), axis=-1).reshape(*split.shape[:-1], -1)
    return np.moveaxis(split, -1, axis)


def _integers(codes: Any, scales: Any, zeros: Any, bits: int, **options: Any) -> Given:
    """Unsigned codes [N, K], one to a byte. Zero points of half the range are in the type."""
    half = 1 << bits - 1
    zeros = None if zeros is None or (zeros == half).all() else zeros
    options["dtype"] = f"u{bits}" if zeros is not None else f"u{bits}b{half}"
    options |= dict(codes=in_pairs(codes) if bits == 4 else codes, scales=scales, zeros=zeros)
    return codes.shape, options


def _bits(codes: int, words: int, supported: tuple[int, ...] = (4, 8)) -> int:
    """Bits of a code, by a row's number of codes and of words."""
    for bits in supported:
        if -(-codes * bits // 32) == words:
            return bits
    message = f"WS0850 {codes} codes are packed in {words} words of 32 bits"
    raise LaunchError(message, hint=f"supported bits per code: {supported}")


def _gptq(parts: dict[str, Any]) -> Given:
    """Words along K of GPTQ; along N of AWQ, whose order of codes differs."""
    words, zeros, scales = parts["qweight"], parts["qzeros"], parts["scales"].T
    n, of_awq = len(scales), words.shape[1] < len(scales)
    bits = _bits(n, zeros.shape[1], (4,) if of_awq else (4, 8))
    if of_awq:
        found = (
            _fields(x, bits, 1).reshape(-1, 8)[:, np.argsort(AWQ_ORDER)] for x in (words, zeros)
        )
        codes, points = (x.reshape(-1, n).T for x in found)
        return _integers(codes, scales, points, bits)
    points = _fields(zeros, bits, 1)[:, :n].T + np.uint8(parts["offset"]) & (1 << bits) - 1
    codes, options = _by_group(parts.get("g_idx"), _fields(words, bits, 0).T, scales)
    return _integers(codes, scales, points, bits, **options)


def _by_group(of_columns: Any, codes: Any, scales: Any) -> tuple[Any, dict[str, Any]]:
    """Codes with columns of one group side by side, and options, if columns tell their groups."""
    if of_columns is None or of_columns.min() < 0 or scales.shape[1] == 1:
        return codes, {}
    order, size = np.argsort(of_columns, kind="stable"), np.count_nonzero(of_columns == 0)
    if not size or not np.array_equal(of_columns[order], np.arange(len(order)) // size):
        message = f"WS0851 groups have {np.bincount(of_columns)} columns"
        raise LaunchError(message, hint="give a layer with groups of one size")
    if np.array_equal(order, np.arange(len(order))):
        return codes, {"group": int(size)}
    return codes[:, order], {"group": int(size), "order": order.astype(np.int32)}


def _compressed(parts: dict[str, Any]) -> Given:
    """pack-quantized of compressed-tensors: words along K, those of zero points along N."""
    (n, k), scales = map(int, parts["weight_shape"]), parts["weight_scale"]
    bits = _bits(k, parts["weight_packed"].shape[1])
    if (zeros := parts.get("weight_zero_point")) is not None:
        half = np.uint8(1 << bits - 1)  # earlier versions do not pack zero points
        zeros = zeros.view("u1") + half if zeros.dtype == "i1" else _fields(zeros, bits, 0)[:n]
    codes = _fields(parts["weight_packed"], bits, 1)[:, :k]
    codes, options = _by_group(parts.get("weight_g_idx"), codes, scales)
    return _integers(codes, scales, zeros, bits, **options)


def _scaled(parts: dict[str, Any]) -> Given:
    """int- and float-quantized of compressed-tensors, fp8 of ModelOpt. Blocks of 128, or equal."""
    codes, scales = parts["weight"], parts["weight_scale"]
    given = dict(codes=codes, scales=scales, zeros=parts.get("weight_zero_point"))
    if scales.ndim == 2 and scales.size > 1 and len(scales) != len(codes):
        sizes = zip(codes.shape, scales.shape)
        given["group"] = tuple(128 if -(-n // 128) == b else -(-n // b) for n, b in sizes)
    return codes.shape, given


def _nvfp4(parts: dict[str, Any]) -> Given:
    codes, scales = parts["weight"], parts["weight_scale"]
    given = dict(codes=codes, scales=scales, scale=parts["weight_scale_2"], dtype="nvfp4")
    return (len(codes), 2 * codes.shape[1]), given


def _mxfp4(parts: dict[str, Any]) -> Given:
    codes = parts["blocks"].reshape(len(parts["blocks"]), -1)
    given = dict(codes=codes, scales=parts["scales"].view(OF_HOST["f8e8m0"]), dtype="mxfp4")
    return (len(codes), 2 * codes.shape[1]), given


def _nf4(parts: dict[str, Any]) -> Given:
    """Blocks in flat order of bitsandbytes, whose scales may be codes of a table, too."""
    state, scales = json.loads(parts[NF4].tobytes()), parts["weight.absmax"]
    n, k = state["shape"]
    if "weight.nested_absmax" in parts:
        scales = parts["weight.nested_quant_map"][scales]
        scales *= np.repeat(parts["weight.nested_absmax"], state["nested_blocksize"])[: scales.size]
        scales += np.float32(state["nested_offset"])
    codes, table = parts["weight"].reshape(n, k // 2), parts["weight.quant_map"]
    given = dict(codes=codes >> 4 | codes << 4, scales=scales.reshape(n, -1), dtype="u4")
    return (n, k), given | dict(group=state["blocksize"], table=table)


NF4 = "weight.quant_state.bitsandbytes__nf4"
LAYOUTS: dict[str, tuple[Callable[[dict[str, Any]], Given], tuple[str, ...]]] = {
    "GPTQ or AWQ": (_gptq, ("qweight", "qzeros", "scales")),
    "compressed-tensors": (_compressed, ("weight_packed", "weight_shape", "weight_scale")),
    "MXFP4 of gpt-oss": (_mxfp4, ("blocks", "scales")),
    "NVFP4 of ModelOpt": (_nvfp4, ("weight", "weight_scale_2", "weight_scale")),
    "NF4 of bitsandbytes": (_nf4, ("weight", "weight.absmax", "weight.quant_map", NF4)),
    "int8 or fp8": (_scaled, ("weight", "weight_scale")),
}
"""Formats in order of precedence, each with the tensors that it needs, the first one telling."""
