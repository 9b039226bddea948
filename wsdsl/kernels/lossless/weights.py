"""bf16 weights in some 12 bits, bit for bit: `pack`, and what it makes.

ROW weights along K with one among them that is not in the palette are kept as they are in
`verbatim`; their codes and lower bytes are 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any, Literal

import numpy as np

from wsdsl.diagnostics import Finding, LaunchError
from wsdsl.ir.types import DTYPES, DType
from wsdsl.kernels.lossless.arrays import Bits, Bools, Bytes, Ints, bits_of, on_host, placed_like
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
GROUP = 16
"""Of N, whose rows have one mark."""
MOST_ROWS = (1 << 16) // GROUP - 1
"""Along K: before a group's last mark there are fewer than 1 << 16 that are kept."""


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

    Bit n % GROUP of `marks[n // GROUP, b]`, an i32, says whether the b-th ROW weights of n are kept
    as they are. Those of a group of n follow each other in `verbatim`, by b and then by n, from
    `firsts[n // GROUP]` on; the mark's upper 16 bits are how many there are before b. A thread that
    goes along K finds 32 marks in one line of the cache.
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
        whole_rows, kept, used = self.is_kept(), on_host(self.verbatim), 0
        for rows in chunks(n, k):
            codes = np.stack((pairs[rows] & 15, pairs[rows] >> 4), axis=2)
            whole = self.palette.join(codes.reshape(len(codes), -1), low[rows])
            cut = in_rows(whole)
            for first in range(0, len(cut), GROUP):
                # A view: what is assigned to it is in `cut`.
                own, at = cut[first : first + GROUP].transpose(1, 0, 2), rows.start + first
                flags = whole_rows[at : at + GROUP].T
                own[flags] = kept[used : (used := used + int(flags.sum()))]
            made[rows] = cut.reshape(len(whole), -1)[:, :k]
        return made

    def is_kept(self) -> Bools:
        """[N, B]: whether ROW weights are kept as they are."""
        marks = on_host(self.marks)[:, None] >> np.arange(GROUP)[:, None] & 1
        return marks.reshape(-1, marks.shape[-1])[: self.shape[0]] != 0


def pack(weights: Any, palette: Kind | Literal["auto"] = "auto") -> Weights:
    """Weights [N, K] of bf16 as a product reads them: every bit is kept, be they NaN, infinite,
    denormal or -0.

    weights: of torch, JAX, CuPy (u16 stands for bf16) or NumPy (ml_dtypes' bfloat16, or u16). It is
        packed on the CPU, and what is made is where they are.
    palette: see palette.py; "auto" is the quicker one unless it takes over 2 % more bytes.

    LaunchError for what is no matrix of bf16, is empty, or has more than MOST_ROWS * ROW along K.
    """
    bits = bits_of(weights)
    if bits.shape[1] > MOST_ROWS * ROW:
        message = f"weights of shape {bits.shape}: K is {MOST_ROWS * ROW} at the most"
        raise LaunchError(Finding(message, hint="pack its parts along K, and add their products"))
    counts = upper_counts(bits)
    chosen, missed = choose(bits, counts, palette)
    exponents = counts.reshape(2, 256).sum(0) / bits.size
    own = exponents[exponents > 0]
    codes, low, kept = _encoded(bits, chosen, missed)
    marks, firsts = _marks(missed)
    return Weights(
        shape=(bits.shape[0], bits.shape[1]),
        palette=chosen,
        entropy=float(-np.sum(own * np.log2(own))),
        codes=_ordered(codes, U4, weights),
        low=_ordered(low, U8, weights),
        entries=placed_like(np.array(chosen.entries, np.uint8), weights),
        marks=placed_like(marks, weights),
        firsts=placed_like(firsts, weights),
        verbatim=placed_like(kept, weights),
    )


def _ordered(array: Bytes, dtype: DType, like: Any) -> Packed:
    made = in_order(array, dtype)
    return Packed(placed_like(made.data, like), made.shape, made.dtype)


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
    """In the order of `_marks`."""
    cut = in_rows(bits)
    for first in range(0, len(cut), GROUP):
        own = missed[first : first + GROUP].T != 0
        if own.any():
            yield cut[first : first + GROUP].transpose(1, 0, 2)[own]


def _marks(missed: Bytes) -> tuple[Ints, Ints]:
    """Which rows [N, B] are kept, and where those of each group of N begin."""
    n, across = missed.shape
    flags = np.zeros((-(-n // GROUP) * GROUP, across), np.int64)
    flags[:n] = missed
    flags = flags.reshape(-1, GROUP, across)
    counts = flags.sum(1)
    before, whole = np.cumsum(counts, 1) - counts, counts.sum(1)
    marks = (flags << np.arange(GROUP)[:, None]).sum(1) | before << 16
    return marks.astype(np.uint32).view(np.int32), (np.cumsum(whole) - whole).astype(np.int32)
