"""Cache of resolved calls by the signatures of their arrays (types, shapes, strides): a later call
with equal signatures checks for overlap only, and launches at the new addresses.

Signatures of three torch arrays take 2 µs, resolving a call takes 200 µs (on an H200's host).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from wsdsl.artifact.signature import ScalarArgument
from wsdsl.diagnostics import LaunchError
from wsdsl.ir.hardware.tma_box import TMA_ALIGN
from wsdsl.ir.types import DType
from wsdsl.runtime.arguments import Call, as_scalar
from wsdsl.runtime.arrays import interop
from wsdsl.runtime.arrays.interop import allocator, count_writes, describe, is_transformed, look_of
from wsdsl.runtime.arrays.streams import given_stream
from wsdsl.runtime.arrays.views import adapt, byte_range
from wsdsl.runtime.device import current_context_id
from wsdsl.runtime.launcher import Launcher
from wsdsl.runtime.native.recorded_launches import Launched, Used, recorder
from wsdsl.runtime.native.repeated_calls import Repeater
from wsdsl.runtime.prepared import Prepared

MAX_KNOWN = 256
MAX_PLACES = 64
"""Maximum number of calls per signature, by the addresses of their arrays."""
NUMBERS = (int, float)
Maker = Callable[[], Any]
Places = tuple[Any, ...]
Start = Callable[[Launcher, Call], None]
"""Runs a call that has been resolved."""


@dataclass(slots=True)
class Known:
    """The resolved call of arguments with equal signatures. Indices refer to the arguments, then to
    the outputs that the call leaves out, which `makers` allocate.
    """

    first: Prepared
    tensors: tuple[Used, ...]
    scalars: tuple[tuple[str, int, DType], ...]
    makers: tuple[Maker, ...]
    results: tuple[int, ...]
    counted: tuple[int, ...]
    """Results that are arguments and torch tensors."""
    calls: dict[Places, Prepared] = field(default_factory=dict)

    def launched(self, prepared: Prepared, pointers: Any, scalars: Any) -> Launched:
        """Describe a launch of these arguments."""
        dtypes = {name: dtype for name, _, dtype in self.scalars}
        return Launched(self.tensors, pointers, dtypes, scalars, prepared.repeatable)


class Look(NamedTuple):
    """A call's arguments: `key` is their signature, `places` are their addresses (of numbers: their
    values).
    """

    key: tuple[Any, ...]
    places: Places
    given: tuple[Any, ...]
    stream: int | None
    known: Known | None


class Recent:
    """The calls of one kernel. Threads may share it. It references no array."""

    def __init__(self, is_operator: bool = False) -> None:
        self._known: dict[tuple[Any, ...], Known] = {}
        self._lock = threading.Lock()
        self.repeater = Repeater(is_operator)

    def __reduce__(self) -> tuple[type[Recent], tuple[bool]]:
        """Pickle without the calls."""
        return Recent, (self.repeater.is_operator,)

    def look(
        self, given: tuple[Any, ...], options: object, schedule: object, stream: Any
    ) -> Look | None:
        """Return a call's signature and addresses; None for calls that are resolved each time:
        arrays of NumPy and JAX, invalid arguments, and `precompiling` blocks.
        """
        if recorder.calls is not None:
            return None
        looks: list[Any] = []
        places: list[Any] = []
        try:
            for x in given:
                if x is None:
                    look, place = None, None
                elif (looker := interop.lookers.get(type(x))) is not None:
                    look, place = looker(x)
                elif type(x) in NUMBERS:
                    # 0.0 == -0.0, but they differ. A number that is not positive may be rejected,
                    # so that the sign is part of the signature.
                    look, place = (type(x), x > 0), x or repr(x)
                else:
                    look, place = look_of(x)
                looks.append(look)
                places.append(place)
            handle = None if stream is None else given_stream(stream)
            context = 0 if is_transformed() else current_context_id()
            key = (context, handle, schedule, options, *looks)
            known = self._known.get(key)
        except Exception:  # `resolve` reports it
            return None
        return Look(key, tuple(places), given, handle, known) if context else None

    def again(self, look: Look | None) -> tuple[Any] | None:
        """Run a known call and return its results in a tuple; None for other calls."""
        if look is None or look.known is None:
            return None
        known, given, places = look.known, look.given, look.places
        if known.makers and not known.first.movable:
            return None
        if known.makers:
            made = tuple([make() for make in known.makers])
            given, places = given + made, places + tuple([look_of(x)[1] for x in made])
        prepared = known.calls.get(places) or self._moved(known, places, given)
        if prepared is None:
            return None
        prepared()
        if recorder.launches is not None:
            pointers = {t.param: places[t.argument] for t in known.tensors}
            scalars = {name: given[i] for name, i, _ in known.scalars}
            recorder.launches.append(known.launched(prepared, pointers, scalars))
        results = known.results
        if known.counted:
            count_writes([given[i] for i in known.counted])
        return (given[results[0]] if len(results) == 1 else tuple([given[i] for i in results]),)

    def first(
        self,
        look: Look,
        launcher: Launcher,
        call: Call,
        sources: Mapping[str, int] | None = None,
        makers: Mapping[str, Maker] | None = None,
    ) -> None:
        """Run a call that `resolve` has checked, and cache it. `sources`: the argument of each
        parameter, if not that of `resolve`. Outputs without an argument have been allocated, by
        `makers` or as the kernel declares them.
        """
        sources = call.sources if sources is None else sources
        views = call.views
        prepared = launcher.prepare(
            views, call.scalars, call.dims, look.stream, call.zeroed, keepalive=False
        )
        prepared()
        like = next(view for name, view in views.items() if name in sources)
        missing = [name for name in views if name not in sources]
        if makers is None:
            # The type of the allocation: a kernel may view it as another type.
            kinds = {n: adapt(describe(call.arrays[n]), views[n].dtype) for n in missing}
            makers = {n: allocator(like, kind.shape, kind.dtype) for n, kind in kinds.items()}
        index = {**sources, **{name: len(look.given) + i for i, name in enumerate(missing)}}
        tensors: list[Used] = []
        for name, view in views.items():
            low, high = (at - view.pointer for at in byte_range(view))
            tensors.append(Used(name, index[name], low, high, name in call.outputs))
        used = [a for a in launcher.signature.arguments if isinstance(a, ScalarArgument)]
        dtypes = {**call.dtypes, **{a.name: a.dtype for a in used}}
        known = look.known or Known(
            prepared,
            tuple(tensors),
            tuple((name, index[name], dtype) for name, dtype in dtypes.items()),
            tuple(makers[name] for name in missing),
            tuple(index[name] for name in call.outputs),
            tuple(
                sources[n] for n in call.outputs if n in sources and views[n].framework == "torch"
            ),
        )
        places = look.places + tuple(views[name].pointer for name in missing)
        if recorder.launches is not None:
            pointers = {name: view.pointer for name, view in views.items()}
            recorder.launches.append(known.launched(prepared, pointers, call.scalars))
        with self._lock:
            _put(known.calls, places, prepared, MAX_PLACES)
            _put(self._known, look.key, known, MAX_KNOWN)

    def _moved(self, known: Known, places: Places, given: Sequence[Any]) -> Prepared | None:
        """Return the call at other addresses; None if outputs may share memory, or more differs."""
        if any(at % TMA_ALIGN for at in places[len(places) - len(known.makers) :]):
            return None
        spans = [(places[t.argument] + t.low, places[t.argument] + t.high) for t in known.tensors]
        for used, (low, high) in zip(known.tensors, spans, strict=True):
            # `spans` includes that of `used`.
            if used.written and sum(start < high and low < end for start, end in spans) > 1:
                return None
        try:
            numbers = {name: as_scalar(given[i], dtype) for name, i, dtype in known.scalars}
            pointers = {t.param: places[t.argument] for t in known.tensors}
            prepared = known.first.moved(pointers, numbers)
        except LaunchError:  # `resolve` reports it in detail
            return None
        if prepared is not None:
            with self._lock:
                _put(known.calls, places, prepared, MAX_PLACES)
        return prepared


def _put(held: dict[Any, Any], key: Any, value: Any, most: int) -> None:
    """Add to a cache, which drops its oldest entry at the limit."""
    if key not in held and len(held) >= most:
        del held[next(iter(held))]
    held[key] = value
