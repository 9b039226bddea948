"""bf16 weights in some 12 bits, bit for bit: `pack`, and what it makes.

ROW weights along K of two of N, n and n + PAIRS, with one among them that is not in the palette are
a pair that is kept: `verbatim` has their upper bytes as they are, and their codes are 0.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Literal

import numpy as np

from wsdsl.diagnostics import LaunchError
from wsdsl.dynamo import opaque
from wsdsl.ir.types import DTYPES
from wsdsl.kernels.host_arrays import packed_like
from wsdsl.kernels.lossless.lossless_arrays import (
    Bits,
    Bools,
    Bytes,
    Ints,
    bits_of,
    on_host,
    placed_like,
)
from wsdsl.kernels.lossless.palette import ROW, Kind, Palette, choose, chunks, upper_counts
from wsdsl.kernels.torch_ops import Stored
from wsdsl.lazy import cached_property
from wsdsl.runtime.arrays.packed import Packed
from wsdsl.runtime.arrays.packed import pack as in_order
from wsdsl.runtime.native.repeated_calls import Repeater

U4, U8 = DTYPES["u4"], DTYPES["u8"]
GROUP = 16
"""Of N, whose rows have one mark: those of a warp."""
PAIRS = GROUP // 2
"""Pairs of rows per group: one thread multiplies weights of both rows (as in an accumulator)."""
LANES = 4
"""Threads that share a row, each with two adjacent ones of every eight columns."""
MOST_ROWS = (1 << 32 - PAIRS) // PAIRS - 1
"""Blocks of ROW weights along K, at most: a mark has 32 - PAIRS bits to count their pairs."""


@dataclass(frozen=True)
class Statistics:
    """`bits`: of memory for each weight, everything counted. `verbatim`: the share of rows whose
    upper bytes are kept as they are. `entropy`: bits of information in an exponent, so that sign,
    mantissa and an ideal code of exponents take 8 more.
    """

    bits: float
    verbatim: float
    entropy: float

    def __str__(self) -> str:
        return (
            f"{self.bits:.2f} bits per weight, {self.verbatim:.2%} of rows verbatim, "
            f"exponents of {self.entropy:.2f} bits"
        )


@dataclass(frozen=True, eq=False)
class Weights(Stored):
    """A matrix [N, K] of bf16, which `pack` packed. Arrays are of one framework, on one device;
    codes and lower bytes lie in the order of [packed tensors](ir/hardware/packed_layout.py).

    Bit n % PAIRS of `marks[n // GROUP, b]`, an i32, says whether the b-th ROW weights of n, and of
    the other one of its pair, are kept. Those of a group of n follow each other in `verbatim`, by b
    and then by n, from `firsts[n // GROUP]` on; the mark's other bits are how many there are before
    b. A thread that goes along K finds 32 marks in one line of the cache.

    A pair in `verbatim` has the bytes of a thread side by side: by lane, by eights of columns, by
    adjacent columns, by row of the pair. Those of 32 columns are a vector of 16 bytes.
    """

    shape: tuple[int, int]
    palette: Palette
    entropy: float
    codes: Packed = field(repr=False)
    low: Packed = field(repr=False)
    entries: Any = field(repr=False)
    marks: Any = field(repr=False)
    firsts: Any = field(repr=False)
    verbatim: Any = field(repr=False)

    @cached_property
    def arrays(self) -> tuple[Repeater, dict[str, Any]]:
        """The known calls with these weights, and their arrays by name."""
        codes, low = self.codes.data, self.low.data
        names = "entries", "marks", "firsts", "verbatim"
        return Repeater(), dict(codes=codes, low=low) | {n: getattr(self, n) for n in names}

    @property
    def width(self) -> int:
        """K, or one more where that is odd."""
        return self.shape[1] + self.shape[1] % 2

    @property
    def nbytes(self) -> int:
        arrays = (self.entries, self.marks, self.firsts, self.verbatim)
        return self.codes.nbytes + self.low.nbytes + sum(
            int(np.prod(x.shape)) * x.dtype.itemsize for x in arrays
        )  # fmt: skip

    @property
    def statistics(self) -> Statistics:
        n, k = self.shape
        share = float(np.mean(self.is_kept()))
        return Statistics(8 * self.nbytes / (n * k), share, self.entropy)

    def __str__(self) -> str:
        return f"bf16 [{self.shape[0]}, {self.shape[1]}] in {self.statistics}"

    def to(self, like: Any) -> Weights:
        """On the device of an array, and of its framework."""
        moved: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(self)}
        for name in ("entries", "marks", "firsts", "verbatim"):
            moved[name] = placed_like(on_host(moved[name]), like)
        for name in ("codes", "low"):
            moved[name] = packed_like(moved[name], like)
        return Weights(**moved)

    def unpack(self) -> Any:
        """The matrix that was packed, bit for bit, of the arrays' framework, where they are."""
        return placed_like(self.bits(), self.entries)

    def bits(self) -> Bits:
        """The matrix's bits."""
        (n, k), made = self.shape, np.empty(self.shape, np.uint16)
        pairs, low = on_host(self.codes.unpack()), on_host(self.low.unpack())
        flags, kept, used = self._flags(), on_host(self.verbatim), 0
        for rows in chunks(n, k):
            codes = np.stack((pairs[rows] & 15, pairs[rows] >> 4), axis=2)
            upper = _padded(self.palette.values[codes.reshape(len(codes), -1)])
            own = flags[rows.start // GROUP : -(-rows.stop // GROUP)]
            some = kept[used : (used := used + int(own.sum()))]
            _in_pairs(upper)[own] = _of_lanes(some)
            made[rows] = self.palette.join(upper[: len(codes), :k], low[rows, :k])
        return made

    def _flags(self) -> Bools:
        """[groups, B, PAIRS]: whether a pair is kept."""
        return (on_host(self.marks)[..., None] >> np.arange(PAIRS) & 1) != 0

    def is_kept(self) -> Bools:
        """[N, B]: whether the upper bytes of ROW weights are kept as they are."""
        rows = np.concatenate([self._flags()] * 2, axis=2).swapaxes(1, 2)
        return rows.reshape(-1, rows.shape[-1])[: self.shape[0]]


@opaque
def pack(weights: Any, palette: Kind | Literal["auto"] = "auto") -> Weights:
    """Pack weights [N, K] of bf16 for matmuls. Every bit is preserved, also of NaN, infinite and
    denormal numbers and -0.

    weights: of torch, JAX, CuPy (u16 as bf16) or NumPy (ml_dtypes' bfloat16, or u16). The CPU packs
        them; the result is on their device.
    palette: see palette.py; "auto" is the faster one unless it takes over 2 % more bytes.

    LaunchError unless they are a matrix of bf16 with elements and at most MOST_ROWS * ROW along K.
    """
    bits = bits_of(weights)
    if bits.shape[1] > MOST_ROWS * ROW:
        message = f"WS0828 weights have shape {bits.shape}, expected K <= {MOST_ROWS * ROW}"
        raise LaunchError(message, hint="split K: pack each part, and add the results")
    counts = upper_counts(bits)
    chosen, missed = choose(bits, counts, palette)
    exponents = counts.reshape(2, 256).sum(0) / bits.size
    own = exponents[exponents > 0]
    flags = _flags_of(missed)
    codes, low, kept = _encoded(bits, chosen, flags)
    marks, firsts = _marks(flags)
    return Weights(
        shape=(bits.shape[0], bits.shape[1]),
        palette=chosen,
        entropy=float(-np.sum(own * np.log2(own))),
        codes=packed_like(in_order(codes, U4), weights),
        low=packed_like(in_order(low, U8), weights),
        entries=placed_like(np.array(chosen.entries, np.uint8), weights),
        marks=placed_like(marks, weights),
        firsts=placed_like(firsts, weights),
        verbatim=placed_like(kept, weights),
    )


def _encoded(bits: Bits, palette: Palette, flags: Bools) -> tuple[Bytes, Bytes, Bytes]:
    """Codes [N, width / 2], two to a byte, lower bytes [N, width], and the upper ones of pairs that
    are kept, of one at least.
    """
    (n, k), odd = bits.shape, bits.shape[1] % 2
    pairs, low = np.empty((n, (k + odd) // 2), np.uint8), np.zeros((n, k + odd), np.uint8)
    kept = [np.zeros((1, 2 * ROW), np.uint8)] if not flags.any() else []
    for rows in chunks(n, k):
        upper, low[rows, :k] = palette.split(bits[rows])
        whole, own = _padded(upper), flags[rows.start // GROUP : -(-rows.stop // GROUP)]
        cut = _in_pairs(whole)
        kept.append(_by_lanes(cut[own]))
        # Verbatim weights and the padding of an odd K get a code of the palette: finite.
        cut[own] = palette.values[0]
        codes = palette.codes[whole[: len(upper), :k]]
        codes = np.pad(codes, ((0, 0), (0, odd))) if odd else codes
        pairs[rows] = codes[:, ::2] | codes[:, 1::2] << 4
    return pairs, low, np.concatenate(kept)


def _padded(upper: Bytes) -> Bytes:
    """Of whole groups and rows."""
    over = -upper.shape[0] % GROUP, -upper.shape[1] % ROW
    return np.pad(upper, ((0, over[0]), (0, over[1]))) if any(over) else upper


def _in_pairs(padded: Bytes) -> Bytes:
    """[groups, B, PAIRS, 2, ROW], a view."""
    cut = padded.reshape(len(padded) // GROUP, 2, PAIRS, -1, ROW)
    return cut.transpose(0, 3, 2, 1, 4)


def _by_lanes(pairs: Bytes) -> Bytes:
    """[pairs, 2, ROW] as `verbatim` has them."""
    cut = pairs.reshape(-1, 2, ROW // 2 // LANES, LANES, 2)
    return cut.transpose(0, 3, 2, 4, 1).reshape(-1, 2 * ROW)


def _of_lanes(verbatim: Bytes) -> Bytes:
    """The same back again."""
    cut = verbatim.reshape(-1, LANES, ROW // 2 // LANES, 2, 2)
    return cut.transpose(0, 4, 2, 1, 3).reshape(-1, 2, ROW)


def _flags_of(missed: Bytes) -> Bools:
    """[groups, B, PAIRS]: whether one of a pair's rows [N, B] is missed."""
    whole = np.pad(missed, ((0, -len(missed) % GROUP), (0, 0))) != 0
    return whole.reshape(-1, 2, PAIRS, whole.shape[1]).any(1).swapaxes(1, 2)


def _marks(flags: Bools) -> tuple[Ints, Ints]:
    """Which pairs are kept, and where those of each group of N begin."""
    counts = flags.sum(2)
    before, whole = np.cumsum(counts, 1) - counts, counts.sum(1)
    marks = (flags.astype(np.int64) << np.arange(PAIRS)).sum(2) | before << PAIRS
    return marks.astype(np.uint32).view(np.int32), (np.cumsum(whole) - whole).astype(np.int32)
