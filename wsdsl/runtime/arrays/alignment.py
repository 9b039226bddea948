"""Decide how TMA-incompatible tensors are accessed: by threads, or by TMA from a padded copy."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from wsdsl.artifact.artifact import Access
from wsdsl.ir.types import Tensor, Value
from wsdsl.lazy import remember
from wsdsl.runtime.arguments import Call
from wsdsl.runtime.arrays.copies import fits_in_memory
from wsdsl.runtime.arrays.packed import packed_strides
from wsdsl.runtime.arrays.padded_copies import copied_singly, padded
from wsdsl.runtime.arrays.views import ArrayView, contiguous_strides
from wsdsl.schedule import Schedule

MAX_KNOWN = 1024
OPEN_SIZE = 128
"""Replaces an unknown size: it aligns rows as TMA requires."""
Alignment = tuple[tuple[str, ...], tuple[str, ...]]
"""Tensors that threads access, and operands that are copied before the launch."""
Decide = Callable[[tuple[str, ...], tuple[str, ...], tuple[str, ...]], tuple[str, ...]]
"""Returns the tensors worth a copy. Arguments: TMA-incompatible tensors, those of them that can be
copied, and those that threads would copy element by element.
"""


class Alignments:
    """Cached decisions, by schedule, sizes and the rows of the arrays."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], Alignment] = {}

    def of(
        self, call: Call, schedule: Schedule | None, decide: Decide, *, exact: bool = True
    ) -> Alignment:
        """`exact`: whether it is decided for these very sizes, and not for their class."""
        blocked = tuple(sorted(call.tma_blocked()))
        if not blocked:
            return (), ()
        copies = {n: padded(call.views[n]) for n in blocked if n not in call.outputs}
        able = tuple(n for n, copy in copies.items() if copy is not None)
        singly = tuple(n for n in blocked if copied_singly(call.views[n]))
        asked = schedule, exact, tuple(call.dims.items()), blocked, able, singly
        found = self._known.get(asked)
        if found is None:
            copied = decide(blocked, able, singly)
            made = [copy for n in copied if (copy := copies[n]) is not None]
            if made and call.device != "cpu" and not fits_in_memory(made, call.device):
                copied = ()
            found = tuple(n for n in blocked if n not in copied), copied
            remember(self._known, asked, found, MAX_KNOWN)
        return found


def contiguous(params: Sequence[Value], access: Access, sizes: Mapping[str, int]) -> Call:
    """A call of contiguous arrays of these sizes, as far as they are known."""
    views: dict[str, ArrayView] = {}
    for param in params:
        if isinstance(kind := param.type, Tensor):
            shape = tuple(d if isinstance(d, int) else sizes.get(d, OPEN_SIZE) for d in kind.dims)
            strides = packed_strides(shape) if kind.packed else contiguous_strides(shape)
            views[param.name] = ArrayView(0, kind.dtype, shape, strides, "cpu")
    return Call({}, views, {}, sizes, tuple(n for n in views if n in access.writes))
