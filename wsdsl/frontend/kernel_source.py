"""Read the source of a @kernel or @function, and the Python values of the names in it.

Both are read once, so that a kernel's key on disk and the frontend's IR are of one source and equal
numbers, even if the file or global variables change meanwhile.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Mapping
from numbers import Integral, Real
from types import FunctionType
from typing import Any

from wsdsl import annotations, language
from wsdsl.lazy import cached_property

IDENTIFIER = re.compile(r"[^\W\d]\w*")


class Written:
    """`text` begins with the line `def`, which is the file's line `first_line`; it is empty where
    Python has no source; `odd_line` is the first line of a source without a def.
    """

    def __init__(self, fn: FunctionType, known: dict[int, Written] | None = None) -> None:
        import inspect

        self.fn = fn
        self._known = {} if known is None else known
        self.source, self.text, self.odd_line, self.file = "", "", "", "<python>"
        self.first_line = 1
        try:
            lines, first = inspect.getsourcelines(fn)
        except (OSError, TypeError):
            return
        self.source = "".join(lines)
        self.file = inspect.getsourcefile(fn) or self.file
        skipped = next((i for i, x in enumerate(lines) if x.lstrip().startswith("def ")), None)
        self.first_line = max(first, 1) + (skipped or 0)
        if skipped is None:
            self.odd_line = lines[0].rstrip("\n")
        else:
            self.text = "".join(lines[skipped:])

    @cached_property
    def names(self) -> Mapping[str, Any]:
        """Python values by identifier of the source, including identifiers in its comments."""
        found: dict[str, Any] = {}
        places = _closure(self.fn), self.fn.__globals__, vars(builtins)
        for word in dict.fromkeys(IDENTIFIER.findall(self.text)):
            holder = next((place for place in places if word in place), None)
            if holder is not None:
                found[word] = holder[word]
        return found

    def function(self, held: language.Function[Any, Any]) -> Written:
        """A @function that the text names."""
        fn: Any = held.python
        if id(held) not in self._known:
            self._known[id(held)] = Written(fn, self._known)
        return self._known[id(held)]

    @cached_property
    def key(self) -> str | None:
        """Equal for what the frontend makes the same kernel of; None without a text."""
        found = _described(self, {})
        return None if found is None else repr(found)


def _closure(fn: FunctionType) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or ()):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    return found


def _described(written: Written, seen: dict[int, int]) -> Any:
    """By plain values. A function that is met again is the number under which it was met first."""
    if id(written) in seen:
        return "function", seen[id(written)]
    seen[id(written)] = len(seen)
    if not written.text:
        return None
    found: list[Any] = [written.fn.__name__, written.text]
    # Where dimensions are local variables around a function, its annotations alone know them.
    for name, held in written.fn.__annotations__.items():
        found.append((name, held if isinstance(held, str) else _meaning(held)))
    for word, held in written.names.items():
        if isinstance(held, language.Function):
            function = _described(written.function(held), seen)
            if function is None:
                return None
            found.append((word, function))
        else:
            found.append((word, _meaning(held)))
    return tuple(found)


def _meaning(held: Any) -> Any:
    """A value that is equal for Python objects with one meaning to the frontend, or with none."""
    if isinstance(held, annotations.Dim | annotations.TensorType):
        return type(held).__name__, repr(held)
    if isinstance(held, type) and issubclass(held, annotations.Tile):
        return "type", held.__name__
    if isinstance(held, bool):
        return held
    if isinstance(held, Integral):
        return int(held)
    if isinstance(held, Real):
        return float(held)
    module = getattr(held, "__module__", "")
    known = module in (language.__name__, builtins.__name__)
    return (module, getattr(held, "__name__", "")) if known else ()
