"""bf16 weights in some 12 bits, bit for bit: `pack`, and what it makes.

ROW weights along K with one among them that is not in the palette are kept as they are in
`verbatim`; their codes and lower bytes are 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any, Literal

import numpy as np

from wsdsl.ir.types import DTYPES, DType
from wsdsl.kernels.lossless.arrays import Bits, Bytes, Ints, bits_of, on_host, placed_like
from wsdsl.kernels.lossless.palette import (
    ROW,
    Kind,
    Palette,
    choose,
    chunks,
    in_rows,
    upper_counts,
)
from wsdsl.runtime.packed import Packed
from wsdsl.runtime.packed import pack as in_order

U4, U8 = DTYPES["u4"], DTYPES["u8"]
NONE = 255
"""In `places`: a row that is not kept as it is."""
IN_WORD = 4
"""Rows along K whose places are in one i32."""


@dataclass(frozen=True)
class Statistics:
    """`bits`: of memory for each weight, everything counted. `verbatim`: the share of rows that are
    kept as they are. `entropy`: bits of information in an exponent, so that sign, mantissa and an
    ideal code of exponents take 8 more.
    """

    bits: float
    verbatim: float
    entropy: float

    def __str__(self) -> str:
        return (
            f"{self.bits:.2f} bits a weight, {self.verbatim:.2%} of rows verbatim, "
            f"exponents of {self.entropy:.2f} bits"
        )


@dataclass(frozen=True, eq=False)
class Weights:
    """A matrix [N, K] of bf16, which `pack` packed. Arrays are of one framework, on one device;
    codes and lower bytes lie in the order of [packed tensors](ir/packing.py).

    Byte b % 4 of `places[b // 4, n]`, an i32: which row of its 64 n, of those that are kept as they
    are, the b-th ROW weights of n are, or NONE. `firsts[n // 64, b]`: where those begin in
    `verbatim`. What a CTA reads of either at once lies together.
    """

    shape: tuple[int, int]
    palette: Palette
    entropy: float
    codes: Packed = field(repr=False)
    low: Packed = field(repr=False)
    entries: Any = field(repr=False)
    places: Any = field(repr=False)
    firsts: Any = field(repr=False)
    verbatim: Any = field(repr=False)

    @property
    def width(self) -> int:
        """K, or one more where that is odd."""
        return self.shape[1] + self.shape[1] % 2

    @property
    def nbytes(self) -> int:
        arrays = (self.entries, self.places, self.firsts, self.verbatim)
        return self.codes.nbytes + self.low.nbytes + sum(
            int(np.prod(x.shape)) * x.dtype.itemsize for x in arrays
        )  # fmt: skip

    @property
    def statistics(self) -> Statistics:
        n, k = self.shape
        share = float(np.mean(self.places_of_rows() != NONE))
        return Statistics(8 * self.nbytes / (n * k), share, self.entropy)

    def __str__(self) -> str:
        return f"bf16 [{self.shape[0]}, {self.shape[1]}] in {self.statistics}"

    def to(self, like: Any) -> Weights:
        """On the device of an array, and of its framework."""
        moved: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(self)}
        for name in ("entries", "places", "firsts", "verbatim"):
            moved[name] = placed_like(on_host(moved[name]), like)
        for name in ("codes", "low"):
            held: Packed = moved[name]
            moved[name] = Packed(placed_like(on_host(held.data), like), held.shape, held.dtype)
        return Weights(**moved)

    def unpack(self) -> Any:
        """The matrix that was packed, bit for bit, of the arrays' framework, where they are."""
        return placed_like(self.bits(), self.entries)

    def bits(self) -> Bits:
        """The matrix's bits."""
        (n, k), made = self.shape, np.empty(self.shape, np.uint16)
        pairs, low = on_host(self.codes.unpack()), on_host(self.low.unpack())
        places, firsts = self.places_of_rows(), on_host(self.firsts)
        kept = on_host(self.verbatim)
        for rows in chunks(n, k):
            codes = np.stack((pairs[rows] & 15, pairs[rows] >> 4), axis=2)
            whole = self.palette.join(codes.reshape(len(codes), -1), low[rows])
            cut = in_rows(whole)
            b, row = np.nonzero(places[:, rows] != NONE)
            at = firsts[(rows.start + row) // ROW, b] + places[:, rows][b, row]
            cut[row, b] = kept[at]
            made[rows] = cut.reshape(len(whole), -1)[:, :k]
        return made

    def places_of_rows(self) -> Bytes:
        """[B, N], of u8."""
        words = on_host(self.places)
        parts = words.view(np.uint8).reshape(*words.shape, IN_WORD).transpose(0, 2, 1)
        return parts.reshape(-1, self.shape[0])[: -(-self.shape[1] // ROW)]


def pack(weights: Any, palette: Kind | Literal["auto"] = "auto") -> Weights:
    """Weights [N, K] of bf16 as a product reads them: every bit is kept, be they NaN, infinite,
    denormal or -0.

    weights: of torch, JAX, CuPy (u16 stands for bf16) or NumPy (ml_dtypes' bfloat16, or u16). It is
        packed on the CPU, and what is made is where they are.
    palette: see palette.py; "auto" is the quicker one unless it takes over 2 % more bytes.

    LaunchError for what is no matrix of bf16, or is empty.
    """
    bits = bits_of(weights)
    counts = upper_counts(bits)
    chosen, missed = choose(bits, counts, palette)
    exponents = counts.reshape(2, 256).sum(0) / bits.size
    own = exponents[exponents > 0]
    codes, low, kept = _encoded(bits, chosen, missed)
    places, firsts = _places(missed)
    return Weights(
        shape=(bits.shape[0], bits.shape[1]),
        palette=chosen,
        entropy=float(-np.sum(own * np.log2(own))),
        codes=_ordered(codes, U4, weights),
        low=_ordered(low, U8, weights),
        entries=placed_like(np.array(chosen.entries, np.uint8), weights),
        places=placed_like(_in_words(places), weights),
        firsts=placed_like(firsts, weights),
        verbatim=placed_like(kept, weights),
    )


def _ordered(array: Bytes, dtype: DType, like: Any) -> Packed:
    made = in_order(array, dtype)
    return Packed(placed_like(made.data, like), made.shape, made.dtype)


def _in_words(places: Bytes) -> Ints:
    over = -len(places) % IN_WORD
    whole = np.pad(places, ((0, over), (0, 0)), constant_values=NONE)
    parts = whole.reshape(-1, IN_WORD, whole.shape[1]).transpose(0, 2, 1)
    return np.ascontiguousarray(parts).view(np.int32).reshape(parts.shape[:-1])


def _encoded(bits: Bits, palette: Palette, missed: Bytes) -> tuple[Bytes, Bytes, Bits]:
    """Codes [N, width / 2], two to a byte, lower bytes [N, width], and the rows that are kept, one
    at least.
    """
    (n, k), odd = bits.shape, bits.shape[1] % 2
    pairs, low = np.empty((n, (k + odd) // 2), np.uint8), np.zeros((n, k + odd), np.uint8)
    kept = [np.zeros((1, ROW), np.uint16)] if not missed.any() else []
    for rows in chunks(n, k):
        upper, low[rows, :k] = palette.split(bits[rows])
        # What stands beside an odd K is of the palette, and finite.
        codes = np.pad(palette.codes[upper], ((0, 0), (0, odd)))
        over = np.repeat(missed[rows] != 0, ROW, axis=1)[:, : k + odd]
        codes[over] = 0
        low[rows][over] = 0
        pairs[rows] = codes[:, ::2] | codes[:, 1::2] << 4
        kept += _kept_rows(bits[rows], missed[rows])
    return pairs, low, np.concatenate(kept)


def _kept_rows(bits: Bits, missed: Bytes) -> Iterator[Bits]:
    """In the order of `_places`."""
    cut = in_rows(bits)
    for first in range(0, len(cut), ROW):
        own = missed[first : first + ROW].T != 0
        if own.any():
            yield cut[first : first + ROW].transpose(1, 0, 2)[own]


def _places(missed: Bytes) -> tuple[Bytes, Ints]:
    """Where rows that are kept are, by ROW of N, then ROW along K, then N."""
    n, across = missed.shape
    groups = -(-n // ROW)
    flags = np.zeros((groups * ROW, across), np.int32)
    flags[:n] = missed
    flags = flags.reshape(groups, ROW, across).transpose(0, 2, 1)
    counts = flags.sum(-1)
    firsts = (np.cumsum(counts) - counts.ravel()).reshape(counts.shape)
    places = np.where(flags != 0, np.cumsum(flags, axis=-1) - 1, NONE).astype(np.uint8)
    by_row = places.transpose(1, 0, 2).reshape(across, -1)[:, :n]
    return np.ascontiguousarray(by_row), np.ascontiguousarray(firsts, dtype=np.int32)
