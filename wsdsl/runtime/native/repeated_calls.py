"""Functions whose known calls native code repeats: kernels, and library functions of one launch.

A call that no entry matches runs as always, and its launches are recorded. If it was one launch,
and all its arrays are arguments or results, calls that look the same are repeated from then on.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from wsdsl.runtime.native.launch_stub import KINDS, Calls, Repetition, TorchApi, answer, torch_api
from wsdsl.runtime.native.launch_table import Site
from wsdsl.runtime.native.recorded_launches import (
    Launched,
    Repeatable,
    recorded,
    recorder,
    recordings,
)

NUMBERS = int, float


class Repeater:
    """The known calls of one function. `launch` repeats one, or returns NotImplemented.

    is_operator: whether the function is an operator of torch, which autocast changes
    """

    launch: Callable[..., Any] | None = None
    recorder, recordings = recorder, recordings

    def __init__(self, is_operator: bool = True) -> None:
        self._calls: Calls | None = None
        self.is_operator, self._times_forgotten = is_operator, 0
        _repeaters[id(self)] = self

    def __reduce__(self) -> tuple[type[Repeater], tuple[bool]]:
        """A copy, in another process, too, is empty."""
        return Repeater, (self.is_operator,)

    def forget(self) -> None:
        if self._calls is not None:
            self._calls.site[Site.FIRST] = 0
        self._calls = self.launch = None
        self._times_forgotten += 1

    def answer(self, callee: Any) -> None:
        """Have native code answer the calls of the object whose calls these are."""
        if (calls := self._calls) is None or callee._recent.repeater is not self:
            return
        if getattr(callee, "_native", None) is not calls.own:
            answer(callee, calls)

    def run(
        self,
        call: Callable[[], Any],
        names: Sequence[str],
        args: tuple[Any, ...],
        named: Mapping[str, Any],
    ) -> Any:
        """Run `call`, and learn its launch by these arguments; `names` of the positional ones."""
        if "torch" not in sys.modules:
            return call()
        whole = named
        args, named = _without_parts(names, args, named)
        if named is not whole and self.launch is not None and recorder.launches is None:
            result = self.launch(*args, **named)
            if result is not NotImplemented:
                return result
        before = self._times_forgotten
        with recorded() as launches:
            result = call()
        if len(launches) == 1 and self._times_forgotten == before:
            self._learn(names, args, named, result, launches[0])
        return result

    def _learn(
        self,
        names: Sequence[str],
        args: tuple[Any, ...],
        named: Mapping[str, Any],
        result: Any,
        launched: Launched,
    ) -> None:
        api, calls = torch_api(), self._calls
        if calls and calls.is_known(args, named, 0):
            return
        call = launched.repeatable()
        if api is None or call is None or (calls and calls.is_known(args, named, call.stream_id)):
            return
        values, names = (*args, *named.values()), (*names[: len(args)], *named)
        known = _repetition(api, call, names, values, result, launched)
        if known is None:
            return
        if calls is None or calls.is_full:
            self.forget()
            calls = self._calls = Calls(api, self.is_operator)
        calls.add(args, named, known)
        if self._calls is calls:
            self.launch = calls.launch
        else:  # forgotten by another thread
            calls.site[Site.FIRST] = 0


_repeaters = weakref.WeakValueDictionary[int, Repeater]()


def forget_all() -> None:
    """Have all functions choose their schedules anew."""
    for reference in _repeaters.valuerefs():  # a copy: other threads may add some
        if (repeater := reference()) is not None:
            repeater.forget()


def _repetition(
    api: TorchApi,
    call: Repeatable,
    names: Sequence[str],
    values: Sequence[Any],
    result: Any,
    launched: Launched,
) -> Repetition | None:
    """How to repeat a call; None if more than the launch belongs to it."""
    pointers, given, tensors = launched.pointers, launched.scalars, api.tensors
    index, makers, results = dict[int, int](), list[Callable[[], Any]](), list[int]()
    for i, x in enumerate(values):
        if type(x) in tensors:
            if index.setdefault(x.data_ptr(), i) != i:
                return None
        elif not _is_constant(x, api.constants):
            return None
    for x in result if isinstance(result, tuple) else (result,):
        if type(x) not in tensors:
            return None
        at = next((i for i, value in enumerate(values) if value is x), len(values) + len(makers))
        if at >= len(values):
            if not x.is_contiguous() or index.setdefault(x.data_ptr(), at) != at:
                return None
            empty: Any = sys.modules["torch"].empty
            makers.append(partial(empty, tuple(x.shape), dtype=x.dtype, device=x.device))
        results.append(at)
    places = {t.param: index.get(pointers[t.param], -1) for t in launched.tensors}
    used = [(places[t.param], t.low, t.high, t.written) for t in launched.tensors]
    scalars = [
        (names.index(name), name, dtype.name)
        for name, dtype in launched.dtypes.items()
        if name in names and values[names.index(name)] == given[name] and dtype.name in KINDS
    ]
    needed = {i for i, x in enumerate(values) if type(x) in (*tensors, *NUMBERS)}
    needed |= {len(values) + i for i in range(len(makers))}
    if needed != {*places.values(), *(i for i, _, _ in scalars)}:
        return None
    counted = sorted({i for i, _, _, written in used if written and i < len(values)})
    return Repetition(call, places, used, scalars, makers, results, counted)


def _without_parts(
    names: Sequence[str], args: tuple[Any, ...], named: Mapping[str, Any]
) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    """Name the elements of pairs of arrays, as `scales[0]`, and the data of packed arrays: equal
    arguments have one name, by which native code compares them.
    """
    at = next((i for i, x in enumerate(args) if _parts(x)), len(args))
    whole = at == len(args) and not any(map(_parts, named.values()))
    if whole or len(args) > len(names) or not named.keys().isdisjoint(names[: len(args)]):
        return args, named
    found = dict[str, Any]()
    for name, x in (*zip(names[at:], args[at:]), *named.items()):
        parts = _parts(x).items()
        found |= {sys.intern(f"{name}[{i}]"): part for i, part in parts} or {name: x}
    return args[:at], found


def _parts(value: Any) -> dict[Any, Any]:
    """The arrays of a pair, and of a packed array by its geometry."""
    if type(value) in (tuple, list):
        return {} if all(type(x) is str for x in value) else dict(enumerate(value))
    packed = type(value).__name__ == "Packed"
    return {f"{value.dtype}, {value.shape}": value.data} if packed else {}


def _is_constant(value: Any, constants: tuple[type, ...]) -> bool:
    if type(value) is tuple:
        return all(type(x) is str for x in value)
    return type(value) in (*NUMBERS, *constants)
