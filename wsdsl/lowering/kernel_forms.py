"""Other forms of a kernel's text, which take the same arrays as tensors of other types: one behind
the other, as far as its arrays lie so. `wsdsl/forms.py` says which calls they serve.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from wsdsl.artifact.artifact import IN_WORDS, ON_ONE_AXIS
from wsdsl.ir.op import Kernel
from wsdsl.lowering.one_axis import with_one_axis
from wsdsl.lowering.words import with_words

FORMS: Mapping[str, Callable[[Kernel], Kernel | None]] = {
    IN_WORDS: with_words,
    ON_ONE_AXIS: with_one_axis,
}


def forms_of(kernel: Kernel) -> tuple[str, ...]:
    """Those that a text has."""
    return tuple(name for name, form in FORMS.items() if form(kernel) is not None)
