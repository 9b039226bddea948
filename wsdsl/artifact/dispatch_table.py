"""Dispatch of an exported kernel: which compiled kernel serves which sizes and alignments."""

from __future__ import annotations

from collections.abc import Mapping

from wsdsl.artifact.artifact import Declaration
from wsdsl.artifact.shape_bucket import Span
from wsdsl.record import record


@record
class Variant:
    """Calls that the compiled kernel of index `kernel` serves: sizes in all `spans`; of the TMA-
    incompatible tensors, threads access those in `unaligned`, those in `padded` are copied.
    """

    kernel: int
    arch: str
    spans: tuple[tuple[str, Span], ...]
    unaligned: tuple[str, ...] = ()
    padded: tuple[str, ...] = ()

    def serves(self, arch: str | None, dims: Mapping[str, int], blocked: tuple[str, ...]) -> bool:
        """Whether it serves a call whose TMA-incompatible tensors are `blocked`, in order."""
        fits = arch == self.arch and blocked == tuple(sorted((*self.unaligned, *self.padded)))
        return fits and all(dims.get(dim, -1) in span for dim, span in self.spans)


@record
class Form:
    """A kernel's declaration and variants, and its vectorized forms in the declaration's order."""

    declaration: Declaration
    variants: tuple[Variant, ...]
    forms: tuple[Form, ...] = ()
