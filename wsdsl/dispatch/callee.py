"""Common part of calls of kernels and of compiled kernels."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from wsdsl.dynamo import F, followed, is_compiling, marked, opaque
from wsdsl.lazy import cached_property

if TYPE_CHECKING:
    from wsdsl.artifact.artifact import Access
    from wsdsl.ir import op as ir
    from wsdsl.runtime.arguments import Call
    from wsdsl.runtime.recent import Recent


def called(method: F) -> F:
    """Pass a kernel's arguments by position; their names precede those of options."""
    known = frozenset(getattr(method, "__kwdefaults__", None) or ())

    def arranged(named: dict[str, Any], self: Callee, *args: Any) -> tuple[Any, Any]:
        options = dict[str, Any]()
        if not known.isdisjoint(named):
            own = {param.name for param in self.params[len(args) :]}
            options = {name: named.pop(name) for name in known & named.keys() - own}
        return (self, *self.in_order(args, named)), options

    return opaque(method, arranged)


def repeated(method: F, traced: bool = False) -> F:
    """Have native code repeat known calls of a method; `self` has `_recent` and `positional`, the
    names of its positional parameters. Dynamo follows it if it may be `traced`.
    """

    @functools.wraps(method)
    def run(self: Any, /, *args: Any, **named: Any) -> Any:
        if traced and "torch._dynamo" in sys.modules and is_compiling():
            return method(self, *args, **named)
        repeater = self._recent.repeater
        if (launch := repeater.launch) is not None and (
            not repeater.recordings or repeater.recorder.launches is None
        ):
            result = launch(*args, **named)
            if result is not NotImplemented:
                return result
        if not traced and "torch._dynamo" in sys.modules and followed():
            return method(self, *args, **named)
        result = repeater.run(partial(method, self, *args, **named), self.positional, args, named)
        if type(self).__call__ is run and not traced:
            repeater.answer(self)
        return result

    return run if traced else marked(run, skipped=True)  # pyright: ignore[reportReturnType]


def repeated_function(call: F) -> F:
    """Have native code repeat known calls of a function that launches one kernel."""
    from wsdsl.runtime.native.repeated_calls import Repeater

    names, repeater = tuple(inspect.signature(call).parameters), Repeater()
    recorder = repeater.recorder

    @functools.wraps(call)
    def run(*args: Any, **named: Any) -> Any:
        if "torch._dynamo" in sys.modules and is_compiling():
            return call(*args, **named)
        if (launch := repeater.launch) is not None and recorder.launches is None:
            result = launch(*args, **named)
            if result is not NotImplemented:
                return result
        return repeater.run(partial(call, *args, **named), names, args, named)

    return run  # pyright: ignore[reportReturnType]


def repeated_with_weights(call: F) -> F:
    """Have native code repeat known calls of a function of x and weights with `arrays`."""
    names = tuple(inspect.signature(call).parameters)[2:]

    @functools.wraps(call)
    def run(x: Any, weights: Any, *args: Any, **named: Any) -> Any:
        if "torch._dynamo" in sys.modules and is_compiling():
            return call(x, weights, *args, **named)
        repeater, arrays = getattr(weights, "arrays", (None, {}))
        given = x, *arrays.values(), *args
        if repeater and repeater.launch is not None and repeater.recorder.launches is None:
            result = repeater.launch(*given, **named)
            if result is not NotImplemented:
                return result
        made = partial(call, x, weights, *args, **named)
        return repeater.run(made, ("x", *arrays, *names), given, named) if repeater else made()

    return run  # pyright: ignore[reportReturnType]


class Callee:
    """Callable of a kernel's arrays and numbers, which caches the geometry of its last calls."""

    __slots__ = ("__dict__", "__weakref__", "_native")
    name: str

    def __call__(self, *args: Any, **named: Any) -> Any:
        raise NotImplementedError

    @cached_property
    def params(self) -> tuple[ir.Value, ...]:
        raise NotImplementedError

    @cached_property
    def access(self) -> Access:
        raise NotImplementedError

    @cached_property
    def positional(self) -> tuple[str, ...]:
        """Names of the parameters."""
        return tuple(param.name for param in self.params)

    @property
    def fixed_sizes(self) -> Mapping[str, int]:
        """Dimensions that it was compiled for."""
        return {}

    @cached_property
    def _recent(self) -> Recent:
        from wsdsl.runtime.recent import Recent

        return Recent()

    def _forget(self) -> None:
        """Clear the cache of calls."""
        if (recent := vars(self).pop("_recent", None)) is not None:
            recent.repeater.forget()

    def in_order(self, args: tuple[Any, ...], named: Mapping[str, Any]) -> tuple[Any, ...]:
        """The arguments by position."""
        from wsdsl.runtime.arguments import in_order

        return in_order(self.name, self.params, self.access, args, named) if named else args

    def resolve(self, args: tuple[Any, ...]) -> Call:
        """Check arguments and allocate missing outputs. LaunchError for illegal arguments.

        An `ArrayView` represents the array that it describes.
        """
        from wsdsl.runtime.arguments import resolve

        return resolve(self.name, self.params, self.access, args, self.fixed_sizes)
