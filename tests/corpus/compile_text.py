"""The one place of the corpus that knows how this checkout compiles.

A worker takes this file from the checkout that it asks, so it changes together with the compiler.
What is called, with which arguments, and what comes back, stay as they are.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import wsdsl
from wsdsl.ir.types import Tensor


@cache
def _kernel(text: str) -> Any:
    return [*vars(wsdsl.parse(text)).values()][-1]


def ptx_of(*entry: Any) -> str:
    """Emit the PTX of the last kernel of a text, not assembled and not proved; see `Entry`."""
    return lowered(*entry).ptx


def lowered(
    text: str,
    schedule: wsdsl.Schedule | None,
    sizes: Mapping[str, int],
    threads: str | Sequence[str],
    padded: Sequence[str],
    packed: Sequence[str] = (),
) -> Any:
    """Lower the last kernel of a text, without the PTX."""
    kernel = _kernel(text).packed(*packed)
    if threads == "all":
        threads = [p.name for p in kernel.tile_ir.params if isinstance(p.type, Tensor)]
    held = () if threads == "none" else tuple(threads)
    return kernel._compile(schedule, sizes, held, tuple(padded))
