"""bf16 weights in some 12 bits, bit for bit: `pack`, and what it makes.

K is walked in two halves at once: a byte of `codes` has the index of weight k in its lower four
bits, and that of weight k + H in its upper ones, H = ceil(K / 2). So a product reads whole bytes
alone, each of them once. ROW weights of one half with one among them that is not in the palette are
kept as they are in `verbatim`; their codes and lower bytes are 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any, Literal

import numpy as np

from wsdsl.ir.types import DTYPES
from wsdsl.kernels.lossless.arrays import Bits, Bytes, Ints, bits_of, on_host, placed_like
from wsdsl.kernels.lossless.palette import (
    ROW,
    Kind,
    Palette,
    choose,
    chunks,
    halves,
    upper_counts,
)
from wsdsl.runtime.packed import Packed
from wsdsl.runtime.packed import pack as in_order

U8 = DTYPES["u8"]
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

    Byte b % 4 of `places[h, b // 4, n]`, an i32: which row of its 64 n, of those that are kept as
    they are, the b-th ROW weights of half h and n are, or NONE. `firsts[h, b, n // 64]`: where
    those begin in `verbatim`.
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
    def half(self) -> int:
        """H."""
        return -(-self.shape[1] // 2)

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
        codes, low = on_host(self.codes.unpack()), on_host(self.low.unpack())
        places, firsts = self.places_of_rows(), on_host(self.firsts)
        kept = on_host(self.verbatim)
        for rows in chunks(n, k):
            pair = np.stack((codes[rows] & 15, codes[rows] >> 4), axis=1)
            whole = self.palette.join(pair, low[:, rows].transpose(1, 0, 2))
            over = -self.half % ROW
            cut = np.pad(whole, ((0, 0), (0, 0), (0, over))).reshape(len(whole), 2, -1, ROW)
            h, b, row = np.nonzero(places[..., rows] != NONE)
            at = firsts[h, b, (rows.start + row) // ROW] + places[..., rows][h, b, row]
            cut[row, h, b] = kept[at]
            made[rows] = cut.reshape(len(whole), 2, -1)[..., : self.half].reshape(len(whole), -1)[
                :, :k
            ]
        return made

    def places_of_rows(self) -> Bytes:
        """[2, B, N], of u8."""
        words = on_host(self.places)
        parts = words.view(np.uint8).reshape(*words.shape, IN_WORD).transpose(0, 1, 3, 2)
        return parts.reshape(2, -1, self.shape[0])[:, : -(-self.half // ROW)]


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
        codes=_ordered(codes, weights),
        low=_ordered(low, weights),
        entries=placed_like(np.array(chosen.entries, np.uint8), weights),
        places=placed_like(_in_words(places), weights),
        firsts=placed_like(firsts, weights),
        verbatim=placed_like(kept, weights),
    )


def _ordered(array: Bytes, like: Any) -> Packed:
    made = in_order(array, U8)
    return Packed(placed_like(made.data, like), made.shape, made.dtype)


def _in_words(places: Bytes) -> Ints:
    over = -places.shape[1] % IN_WORD
    whole = np.pad(places, ((0, 0), (0, over), (0, 0)), constant_values=NONE)
    parts = whole.reshape(2, -1, IN_WORD, places.shape[2]).transpose(0, 1, 3, 2)
    return np.ascontiguousarray(parts).view(np.int32).reshape(parts.shape[:-1])


def _encoded(bits: Bits, palette: Palette, missed: Bytes) -> tuple[Bytes, Bytes, Bits]:
    """Codes [N, H], lower bytes [2, N, H], and the rows that are kept, one at least."""
    (n, k), half = bits.shape, -(-bits.shape[1] // 2)
    codes, low = np.empty((n, half), np.uint8), np.empty((2, n, half), np.uint8)
    kept = [np.zeros((1, ROW), np.uint16)] if not missed.any() else []
    for rows in chunks(n, k):
        upper, lower = palette.split(bits[rows])
        # A weight beside an odd K is one of the palette, and finite.
        pair, lower = halves(palette.codes[upper]), halves(lower)
        over = np.repeat(missed[rows] != 0, ROW, axis=2)[..., :half]
        pair[over] = 0
        lower[over] = 0
        codes[rows] = pair[:, 0] | pair[:, 1] << 4
        low[:, rows] = lower.transpose(1, 0, 2)
        kept += _kept_rows(bits[rows], missed[rows])
    return codes, low, np.concatenate(kept)


def _kept_rows(bits: Bits, missed: Bytes) -> Iterator[Bits]:
    """In the order of `_places`."""
    cut = halves(bits)
    cut = np.pad(cut, ((0, 0), (0, 0), (0, -cut.shape[2] % ROW)))
    cut = cut.reshape(*cut.shape[:2], -1, ROW)
    for first in range(0, len(cut), ROW):
        own = missed[first : first + ROW].transpose(1, 2, 0) != 0
        if own.any():
            yield cut[first : first + ROW].transpose(1, 2, 0, 3)[own]


def _places(missed: Bytes) -> tuple[Bytes, Ints]:
    """Where rows that are kept are, by ROW of N, then halves, then ROW along K, then N."""
    n = len(missed)
    groups = -(-n // ROW)
    flags = np.zeros((groups * ROW, *missed.shape[1:]), np.int32)
    flags[:n] = missed
    flags = flags.reshape(groups, ROW, *missed.shape[1:]).transpose(0, 2, 3, 1)
    counts = flags.sum(-1)
    firsts = (np.cumsum(counts) - counts.ravel()).reshape(counts.shape)
    places = np.where(flags != 0, np.cumsum(flags, axis=-1) - 1, NONE).astype(np.uint8)
    by_row = places.transpose(1, 2, 0, 3).reshape(*missed.shape[1:], -1)[..., :n]
    return np.ascontiguousarray(by_row), np.ascontiguousarray(
        firsts.transpose(1, 2, 0), dtype=np.int32
    )
