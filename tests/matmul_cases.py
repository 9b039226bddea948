"""Calls of `wsdsl.kernels.matmul`: every option with every other, and what they mean in float64."""

import itertools
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.case_table import gelu, silu
from tests.kernels import DTYPES, TENSOR_CORES, TOLERANCE

BF16, F8 = DTYPES["bf16"], DTYPES["f8e4m3"]
M, N, K = 72, 88, 272

TYPES = {
    "bf16": ("bf16", "bf16"),
    "f16": ("f16", "f16"),
    "tf32": ("tf32", "tf32"),
    "f8": ("f8e4m3", "f8e4m3"),
    "f8 mixed": ("f8e5m2", "f8e4m3"),
    "i8": ("i8", "i8"),
    "u8 i8": ("u8", "i8"),
}
BATCHES: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "none": ((), ()),
    "of a": ((2, 2), ()),
    "of b": ((), (3,)),
    "same": ((2,), (2,)),
    "broadcast": ((2, 1), (1, 2)),
}
OPTIONS: dict[str, tuple[str, ...]] = {
    "types": tuple(TYPES),
    "a": ("rows", "columns", "padded", "odd"),
    "b": ("rows", "columns", "flag", "odd"),
    "batch": tuple(BATCHES),
    "bias": ("", "f32", "bf16", "i32"),
    "activation": ("", "relu", "gelu", "silu", "sigmoid", "tanh"),
    "residual": ("", "f32", "bf16", "columns", "shared"),
    "out_dtype": ("", "f32", "bf16", "f16", "f8e4m3", "i8", "i32"),
    "out": ("", "rows", "columns", "added", "columns added", "odd"),
    "scales": ("", "numbers", "single", "rows", "one", "groups", "blocks", "column-major groups"),
}
"""By option what it may be; the first of each is the plainest."""
Options = Mapping[str, str]
ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "gelu": gelu,
    "silu": silu,
    "sigmoid": lambda x: 1 / (1 + np.exp(-np.clip(x, -700, 700))),
    "tanh": np.tanh,
}


def legal(o: Options) -> bool:
    """Only 16-bit operands have another axis than K contiguous; integers no scales along K."""
    wide, integer = o["types"] in ("bf16", "f16"), "i8" in o["types"]
    layouts = wide or (o["a"] != "columns" and o["b"] in ("columns", "flag"))
    blocks = o["scales"] in ("groups", "blocks", "column-major groups")
    small = o["out_dtype"] not in ("f16",) or not integer
    return layouts and small and not (integer and blocks)


def every_pair(seed: int = 0) -> Iterator[Options]:
    """Few calls that have every two settings of two options that go together at all."""
    rng = random.Random(seed)
    left = {
        frozenset(((x, v), (y, w)))
        for (x, xs), (y, ys) in itertools.combinations(OPTIONS.items(), 2)
        for v in xs
        for w in ys
    }
    missed = 0
    while left and missed < 60:
        tried = [{x: rng.choice(v) for x, v in OPTIONS.items()} for _ in range(60)]
        # Pairs that are still missing are tried on purpose.
        for o, pair in zip(tried, sorted(map(sorted, left))):
            o.update(pair)
        found = [o for o in tried if legal(o)]
        best = max(found, key=lambda o: len(_pairs(o) & left), default=None)
        gained = _pairs(best) & left if best else set()
        missed = 0 if gained else missed + 1
        left -= gained
        if best and gained:
            yield best


def _pairs(o: Options) -> set[frozenset[tuple[str, str]]]:
    return {frozenset(p) for p in itertools.combinations(o.items(), 2)}


@dataclass
class Made:
    """A call: positional and keyword arguments, what `out` holds at first, and what is meant."""

    args: tuple[Any, Any]
    options: dict[str, Any]
    want: Any
    dtype: str


class Maker:
    """`convert` makes a NumPy array one of the framework that is tested."""

    def __init__(self, seed: int, convert: Callable[[Any], Any], scale: int = 1) -> None:
        self.rng, self.convert = np.random.default_rng(seed), convert
        self.m, self.n, self.k = (size * scale for size in (M, N, K))

    def array(self, shape: tuple[int, ...], dtype: str, layout: str = "rows") -> tuple[Any, Any]:
        """The array to give, and its values in float64."""
        kind, held, look = DTYPES[dtype], shape, lambda x: x
        if layout in ("columns", "column-major groups"):
            held, look = (*shape[:-2], shape[-1], shape[-2]), lambda x: x.swapaxes(-1, -2)
        elif layout in ("padded", "odd"):
            size = -(-shape[-1] // 16) * 16 + (16 if layout == "padded" else 3)
            held, look = (*shape[:-1], size), lambda x: x[..., : shape[-1]]
        base = self.random(held, kind)
        given, seen = look(self.convert(base)), look(base)
        if dtype == "tf32":
            seen = np.ascontiguousarray(seen).view(np.uint32) & np.uint32(0xFFFFE000)
            seen = seen.view(np.float32)
        return given, seen.astype(np.float64)

    def random(self, shape: tuple[int, ...], kind: Any) -> Any:
        if np.issubdtype(kind, np.integer):
            low = -20 if np.issubdtype(kind, np.signedinteger) else 0
            return self.rng.integers(low, 21, shape).astype(kind)
        return self.rng.standard_normal(shape).astype(np.float32).astype(kind)

    def scales(self, kind: str) -> tuple[Any, Any, Any, Any]:
        """Those of a and of b to give, and what each element is multiplied by."""
        groups, k = -(-self.k // 128), np.arange(self.k) // 128

        def one(size: int, kind: str) -> tuple[Any, Any]:
            match kind:
                case "":
                    return None, 1.0
                case "eighth":
                    return 0.125, 0.125
                case "numbers":
                    return 0.0625, 0.0625
                case "single":
                    given, seen = self.array((1,), "f32")
                    return given, seen[0]
                case "rows":
                    given, seen = self.array((size,), "f32")
                    return given, seen[:, None]
                case "blocks":
                    given, seen = self.array((-(-size // 128), groups), "f32")
                    return given, seen[np.arange(size)[:, None] // 128, k]
                case _:
                    given, seen = self.array((size, groups), "f32", kind)
                    return given, seen[:, k]

        # Blocks: 1 x 128 of a by 128 x 128 of b.
        kinds = {"one": ("", "eighth"), "blocks": ("groups", "blocks")}.get(kind, (kind, kind))
        left, right = one(self.m, kinds[0]), one(self.n, kinds[1])
        return left[0], right[0], left[1], right[1]

    def call(self, o: Options) -> Made:
        left, right = TYPES[o["types"]]
        batch_a, batch_b = BATCHES[o["batch"]]
        a, a_seen = self.array((*batch_a, self.m, self.k), left, o["a"])
        flagged = o["b"] == "flag"
        if flagged:
            b, b_seen = self.array((*batch_b, self.n, self.k), right)
            b_seen = b_seen.swapaxes(-1, -2)
        else:
            b, b_seen = self.array((*batch_b, self.k, self.n), right, o["b"])
        scale_a, scale_b, a_factor, b_factor = self.scales(o["scales"])
        x = (a_seen * a_factor) @ (b_seen * np.atleast_2d(b_factor).T)
        options: dict[str, Any] = {"transpose_b": flagged}
        if o["types"] == "tf32":
            options["operand_dtype"] = "tf32"
        if o["scales"]:
            options["scales"] = (scale_a, scale_b)
        integer = "i8" in o["types"] and not o["scales"]
        if o["bias"]:
            options["bias"], seen = self.array((self.n,), o["bias"])
            x = x + seen
            integer = integer and o["bias"] == "i32"
        if o["activation"]:
            options["activation"] = o["activation"]
            x = ACTIVATIONS[o["activation"]](x)
            integer = integer and o["activation"] == "relu"
        if o["residual"]:
            shape = x.shape[-2:] if o["residual"] == "shared" else x.shape
            kind = "bf16" if o["residual"] == "bf16" else "f32"
            options["residual"], seen = self.array(shape, kind, o["residual"])
            x, integer = x + seen, False
        usual = {"bf16": "bf16", "f16": "f16", "tf32": "f32"}
        dtype = o["out_dtype"] or usual.get(o["types"], "i32" if integer else "bf16")
        if o["out_dtype"]:
            options["out_dtype"] = o["out_dtype"]
        if o["out"]:
            layout = o["out"].removesuffix(" added")
            options["out"], seen = self.array(x.shape, dtype, layout)
            if "added" in o["out"]:
                options["accumulate"] = True
                x = x + seen
        return Made((a, b), options, rounded(x, dtype), dtype)


def rounded(x: Any, dtype: str) -> Any:
    """What a type can hold of exact values, but for its last bits."""
    if dtype.startswith("f8"):
        return np.clip(x, -448, 448)
    if dtype in ("i8", "i32"):
        known = np.iinfo(DTYPES[dtype])
        return np.clip(np.rint(x), known.min, known.max)
    return x


def check(made: Made, got: Any, o: Options) -> None:
    """`got`: the result in float64."""
    assert got.shape == made.want.shape
    error = np.linalg.norm(got - made.want) / max(float(np.linalg.norm(made.want)), 1e-30)
    allowed = max(TOLERANCE[made.dtype], TENSOR_CORES if "f8" in o["types"] else 0.0)
    if made.dtype in ("i8", "i32"):
        # Where a float is next to a half, one may round it the other way.
        allowed = max(allowed, np.sqrt(0.01 * made.want.size) / max(np.linalg.norm(made.want), 1))
    assert error <= allowed, f"relative error {error:.2g}"


def array(*shape: int, dtype: Any = BF16) -> Any:
    return np.zeros(shape, dtype)
