"""Shape buckets: calls whose sizes are in one bucket run the same kernel, whose sizes are arguments
of the launch.

A bucket is arithmetic: it depends on the kernel's source only, not on earlier calls or
measurements. Numbers of rows of the output, which change from call to call, are in 32 buckets per
octave (1025 to 1056, ..., 4033 to 4095) of at least 8 sizes. A round number of rows, which a user
writes on purpose, is alone in its bucket. Other dimensions (weights) have these buckets where rows
of memory fill whole lines of L2, so that most sizes are alone, and else four per octave. A
dimension that one tile covers is exact. Along the contiguous dimension of a tensor a bucket has one
alignment: its rows in memory begin at lines of L2, at addresses that TMA supports, at words, or
anywhere.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from wsdsl.artifact.artifact import Declaration
from wsdsl.ir.hardware.gmem_limits import COPY_WORD, L2_LINE
from wsdsl.ir.hardware.tma_box import TMA_ALIGN
from wsdsl.ir.types import Tensor
from wsdsl.lazy import cached_property
from wsdsl.record import record

FINE, COARSE = 32, 4
"""Parts of an octave."""
LEAST_ROWS = 8
"""Rows that are not told apart: tiles have multiples of 8."""
FIRST, FACTOR = 64, 64
"""Ranges of rows: up to FIRST; each later range ends at FACTOR times the end of the one before."""
ROUND = 64
"""Round sizes are quarters of an octave that this divides."""


@record
class Span:
    """Sizes from `low` to `high` that are multiples of `step`, and none of `unlike` if given."""

    low: int
    high: int
    step: int = 1
    unlike: int = 0

    def __contains__(self, size: int) -> bool:
        fits = self.low <= size <= self.high and size % self.step == 0
        return fits and not (self.unlike and size % self.unlike == 0)

    def __str__(self) -> str:
        if self.low == self.high:
            return f"= {self.low}"
        told = f"{self.low} to {self.high}"
        told += f" in multiples of {self.step}" if self.step > 1 else ""
        return told + (f", not of {self.unlike}" if self.unlike else "")


@dataclass(frozen=True)
class ShapeBucket:
    """A span of sizes for each dimension. `rows`: the dimension of the output's rows, or ""."""

    spans: tuple[tuple[str, Span], ...]
    rows: str

    def __contains__(self, sizes: Mapping[str, int]) -> bool:
        return all(sizes.get(dim, -1) in span for dim, span in self.spans)

    def __str__(self) -> str:
        return ", ".join(f"{dim} {span}" for dim, span in self.spans)

    @cached_property
    def sizes(self) -> dict[str, int]:
        """The bucket representatives: the largest sizes."""
        return {dim: span.high for dim, span in self.spans}


def shape_bucket(declaration: Declaration, sizes: Mapping[str, int]) -> ShapeBucket:
    """Return the shape bucket of sizes of a kernel's dimensions."""
    lines, rows = alignments(declaration), declaration.rows
    spans: list[tuple[str, Span]] = []
    for dim in (dim for dim in declaration.dims if dim in sizes):
        size = sizes[dim]
        aligned = lines.get(dim, (1,))
        if dim in declaration.exact_dims or (dim == rows and is_round(size)):
            spans.append((dim, Span(size, size)))
        elif dim == rows:
            low, high = part_of(size, FINE, LEAST_ROWS)
            spans.append((dim, _fitted(low, high - is_round(high), size, aligned)))
        else:
            parts = FINE if dim in lines and size % aligned[0] == 0 else COARSE
            spans.append((dim, _fitted(*part_of(size, parts, 1), size, aligned)))
    return ShapeBucket(tuple(spans), rows)


def exact_bucket(sizes: Mapping[str, int]) -> ShapeBucket:
    """Return the bucket of these sizes alone."""
    return ShapeBucket(tuple((dim, Span(size, size)) for dim, size in sizes.items()), "")


def beside_rows(declaration: Declaration, found: ShapeBucket) -> dict[str, int]:
    """Sizes of the other dimensions for which few kernels are chosen that serve all rows. Sizes of
    a contraction axis within an octave (of one alignment) share one: it scales all kernels equally.
    """
    sizes = {dim: size for dim, size in found.sizes.items() if dim != found.rows}
    for dim in sizes.keys() - {*declaration.outer, *declaration.exact_dims}:
        size, aligned = sizes[dim], alignments(declaration).get(dim, (1,))
        sizes[dim] = _fitted(*part_of(size, 1, 1), size, aligned).high
    return sizes


def is_round(size: int) -> bool:
    quarter = max(1, (1 << (size - 1).bit_length()) // 2 // COARSE)
    return size > 0 and size % ROUND == 0 and size % quarter == 0


def part_of(size: int, parts: int, least: int) -> tuple[int, int]:
    """The first and the last size of its part of an octave, which has no fewer than `least`."""
    width = max(least, (1 << (max(1, size) - 1).bit_length()) // 2 // parts)
    high = -(-max(1, size) // width) * width
    return (0 if high == width else high - width + 1), high


def alignments(declaration: Declaration) -> dict[str, tuple[int, ...]]:
    """Of dimensions that say where rows of tensors begin: of what a size may be a multiple that
    changes how memory is accessed, the largest first.
    """
    found: dict[str, int] = {}
    kinds = (p.type for p in declaration.params)
    for kind in (k for k in kinds if isinstance(k, Tensor) and len(k.dims) > 1):
        last, width = kind.dims[-1], max(1, kind.dtype.bytes)
        if isinstance(last, str):
            found[last] = min(width, found.get(last, width))
    return {
        dim: tuple(sorted({max(1, b // width) for b in (L2_LINE, TMA_ALIGN, COPY_WORD)} | {1}))[
            ::-1
        ]
        for dim, width in found.items()
    }


def row_range(rows: int) -> tuple[int, int]:
    """The range that a number of rows is of: beyond the first, up to the second."""
    low, high = 0, FIRST
    while high < rows:
        low, high = high, high * FACTOR
    return low, high


def row_parts(low: int, high: int, parts: int = FINE) -> Iterator[tuple[int, int]]:
    """The parts of sizes beyond `low`, up to `high`, in order."""
    while low < high:
        low, top = low + 1, part_of(low + 1, parts, LEAST_ROWS)[1]
        yield low, min(top, high)
        low = top


def _fitted(low: int, high: int, size: int, aligned: tuple[int, ...]) -> Span:
    """The sizes of a part that have this one's alignment, from the first to the last of them."""
    at = next(i for i, unit in enumerate(aligned) if size % unit == 0)
    step, unlike = aligned[at], aligned[at - 1] if at else 0
    span = Span(low, high, step, unlike)
    least = next(x for x in range(-(-low // step) * step, size + 1, step) if x in span)
    most = next(x for x in range(high // step * step, size - 1, -step) if x in span)
    return Span(least, most) if least == most else Span(least, most, step, unlike)
