"""Which calls of functions give the same, so that functions that call others twice, which do so in
their turn, are not inlined 2^n times.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from wsdsl.frontend import syntax as s
from wsdsl.frontend import typed
from wsdsl.frontend.entities import Argument, Literal


def same_call(definition: s.Definition, args: Sequence[Argument], block: int) -> Hashable | None:
    """Equal for two calls in one block, of the same variables and numbers; None of what else is
    given. (Variables are told by their ids: who keeps this keeps the arguments, too.)
    """
    told: list[Hashable] = [definition.loc, block]
    for arg in args:
        match arg.entity:
            case typed.Ref():
                told.append(id(arg.entity.var))
            case Literal():
                told.append((type(arg.entity.value), repr(arg.entity.value)))
            case _:
                return None
    return tuple(told)
