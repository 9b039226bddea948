"""Common part of calls of kernels and of compiled kernels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from wsdsl.dynamo import F, opaque
from wsdsl.lazy import cached_property

if TYPE_CHECKING:
    from wsdsl.artifact.artifact import Access
    from wsdsl.ir import op as ir
    from wsdsl.runtime.arguments import Call
    from wsdsl.runtime.recent import Recent


def called(method: F) -> F:
    """Gives it the kernel's arguments by position, whose names go before those of options."""
    known = frozenset(getattr(method, "__kwdefaults__", None) or ())

    def arranged(named: dict[str, Any], self: Callee, *args: Any) -> tuple[Any, Any]:
        options = dict[str, Any]()
        if not known.isdisjoint(named):
            own = {param.name for param in self.params[len(args) :]}
            options = {name: named.pop(name) for name in known & named.keys() - own}
        return (self, *self.in_order(args, named)), options

    return opaque(method, arranged)


class Callee:
    """Callable of a kernel's arrays and numbers, which caches the geometry of its last calls."""

    name: str

    @cached_property
    def params(self) -> tuple[ir.Value, ...]:
        raise NotImplementedError

    @cached_property
    def access(self) -> Access:
        raise NotImplementedError

    @property
    def fixed_sizes(self) -> Mapping[str, int]:
        """Dimensions that it was compiled for."""
        return {}

    @cached_property
    def _recent(self) -> Recent:
        from wsdsl.runtime.recent import Recent

        return Recent()

    def in_order(self, args: tuple[Any, ...], named: Mapping[str, Any]) -> tuple[Any, ...]:
        """The arguments by position."""
        from wsdsl.runtime.arguments import in_order

        return in_order(self.name, self.params, self.access, args, named) if named else args

    def resolve(self, args: tuple[Any, ...]) -> Call:
        """The arguments checked, with outputs for those left out. LaunchError if they do not fit.

        An `ArrayView` is taken for the array that it describes.
        """
        from wsdsl.runtime.arguments import resolve

        return resolve(self.name, self.params, self.access, args, self.fixed_sizes)
