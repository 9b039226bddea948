"""What a kernel does to its tensors: which it reads, writes, and by which means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

NO_ALIGNMENT: Mapping[str, int] = {}


@dataclass(frozen=True, slots=True)
class Access:
    """Names of tensor parameters. `alignment`: bytes of which address and row strides must be
    multiples, where several elements are accessed together.
    """

    reads: frozenset[str] = frozenset()
    writes: frozenset[str] = frozenset()
    mapped: frozenset[str] = frozenset()
    """Accessed by TMA, through a tensor map."""
    alignment: Mapping[str, int] = field(default_factory=lambda: dict(NO_ALIGNMENT))
    whole: Mapping[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    """What is written whole, unless one of these dimensions is empty. A SCHEDULED kernel does not
    tell: of it nothing is known to be.
    """

    @property
    def only_written(self) -> frozenset[str]:
        """What a call may leave out, since nothing of it is read."""
        return self.writes - self.reads

    def writes_whole(self, name: str, dims: Mapping[str, int]) -> bool:
        """Whether, at these sizes, no element of a tensor stays as it was."""
        return name in self.whole and all(dims[d] for d in self.whole[name])
