"""Choose the palette: the 16 values of the 4-bit codes. Find the weights that it misses.

A bf16 is split into two bytes: one is coded by 16 values of the palette, the other is stored:

    "bytes"      sign and the upper seven bits of the exponent | its last bit, the mantissa
    "exponents"  the exponent | the sign, the mantissa

Weights of one width have 25 to 31 exponents; the most frequent 16 cover all but 1e-4 of the
weights. The 16 upper bytes are eight pairs of adjacent exponents with either sign, which is a bit
of the code: these miss 1.5 times as many weights, but a weight takes a three-bit lookup, and one
byte permutation instead of four operations.
"""

from typing import Literal

import numpy as np

from wsdsl.kernels.gemm.matmul_dtypes import wrong_option
from wsdsl.kernels.lossless.lossless_arrays import Bits, Bytes, Ints
from wsdsl.record import record

Kind = Literal["bytes", "exponents"]
KINDS: tuple[Kind, ...] = ("bytes", "exponents")
CODES, NEGATIVE = 16, 8
"""Of "bytes" a code is an index of three bits, and a fourth one for the sign."""
ROW = 64
"""Weights along K, whose upper bytes are kept as they are if one of them is not in the palette."""
UPPER = 512
"""Values of sign and exponent, the upper nine bits."""
QUICKER = 0.02
"""Share of the bytes that "bytes" may take more than "exponents", which a product puts together by
more instructions: it took up to 4 % longer."""
KEPT_BITS = 16
"""Of a row with such a weight, by weights: its upper bytes and those of another row."""
CHUNK = 1 << 22
"""Weights that are looked at at once."""


@record
class Palette:
    """`entries`: 16 different exponents, or the upper seven bits of 8 pairs of them, ascending; so
    the first one is of finite numbers.
    """

    kind: Kind
    entries: tuple[int, ...]

    def split(self, bits: Bits) -> tuple[Bytes, Bytes]:
        """Bytes that a palette has, and the others."""
        if self.kind == "bytes":
            return (bits >> 8).astype(np.uint8), bits.astype(np.uint8)
        rest = bits >> 8 & 0x80 | bits & 0x7F
        return (bits >> 7).astype(np.uint8), rest.astype(np.uint8)

    def join(self, upper: Bytes, low: Bytes) -> Bits:
        """The weights of such bytes and the others."""
        upper, rest = upper.astype(np.uint16), low.astype(np.uint16)
        if self.kind == "bytes":
            return upper << 8 | rest
        return (rest & 0x80) << 8 | upper << 7 | rest & 0x7F

    @property
    def values(self) -> Bytes:
        """The byte of each code."""
        own = np.array(self.entries, np.uint8)
        return np.concatenate((own, own | 0x80)) if self.kind == "bytes" else own

    @property
    def codes(self) -> Bytes:
        """The code of each upper byte; CODES where it has none."""
        found = np.full(256, CODES, np.uint8)
        found[self.values] = np.arange(CODES)
        return found

    @property
    def missed(self) -> Bytes:
        """1 for those of the upper nine bits that are not in the palette."""
        upper, _ = self.split(np.arange(UPPER, dtype=np.uint16) << 7)
        return (self.codes[upper] == CODES).astype(np.uint8)


def entries_of(kind: Kind) -> int:
    return NEGATIVE if kind == "bytes" else CODES


def chunks(rows: int, columns: int) -> list[slice]:
    """Rows that are looked at at once, by multiples of ROW."""
    step = max(1, CHUNK // columns // ROW) * ROW
    return [slice(n, min(n + step, rows)) for n in range(0, rows, step)]


def missed_rows(flags: Bytes) -> Bytes:
    """Reduce flags [n, K] to [n, B] by a bitwise or over each block of ROW columns."""
    return np.bitwise_or.reduce(in_rows(flags), axis=2)


def in_rows(part: Bits | Bytes) -> Bits | Bytes:
    """[n, K] as [n, B, ROW], with zeros in what lies behind K."""
    over = -part.shape[1] % ROW
    whole = np.pad(part, ((0, 0), (0, over))) if over else part
    return whole.reshape(len(part), -1, ROW)


def upper_counts(bits: Bits) -> Ints:
    """How often each of the upper nine bits occurs."""
    found = np.zeros(UPPER, np.int64)
    for rows in chunks(*bits.shape):
        found += np.bincount((bits[rows] >> 7).ravel(), minlength=UPPER)
    return found


def of_kind(counts: Ints, kind: Kind) -> Palette:
    """The most frequent ones."""
    by_exponent = counts.reshape(2, 256).sum(0)
    if kind == "bytes":
        by_exponent = by_exponent.reshape(128, 2).sum(1)
    most = np.argsort(-by_exponent, kind="stable")[: entries_of(kind)]
    return Palette(kind, tuple(sorted(most.tolist())))


def choose(
    bits: Bits, counts: Ints, asked: Kind | Literal["auto"] = "auto"
) -> tuple[Palette, Bytes]:
    """Choose the palette; also return the rows [N, B] that it misses. "auto" is "bytes", unless
    "exponents" needs fewer bytes by more than the share `QUICKER`. LaunchError for another name.
    """
    if asked != "auto" and asked not in KINDS:
        raise wrong_option("palette", repr(asked), '"auto", "bytes" or "exponents"')
    kinds = KINDS if asked == "auto" else (asked,)
    made = [of_kind(counts, kind) for kind in kinds]
    flags = np.zeros(UPPER, np.uint8)
    for i, palette in enumerate(made):
        flags |= palette.missed << i
    parts = [missed_rows(flags[bits[rows] >> 7]) for rows in chunks(*bits.shape)]
    missed = np.concatenate(parts)
    shares = [float(np.mean(missed >> i & 1)) for i in range(len(made))]
    sizes = [12 + KEPT_BITS * share for share in shares]
    best = 1 if len(made) > 1 and sizes[0] > (1 + QUICKER) * sizes[1] else 0
    return made[best], missed >> best & 1
