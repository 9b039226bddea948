"""Create kernels: `@kernel`, `load`, `parse`, `compile_ir`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FunctionType, SimpleNamespace
from typing import TYPE_CHECKING, Any, overload

from wsdsl.artifact.cache import get_or_compute
from wsdsl.artifact.versions import digest, require_compiler
from wsdsl.diagnostics import CompileError, ParseError
from wsdsl.dispatch.compiled import Compiled
from wsdsl.dispatch.kernel import Kernel
from wsdsl.frontend.kernel_source import Written
from wsdsl.schedule import Schedule, as_schedule

if TYPE_CHECKING:
    from wsdsl.ir import op as ir


@overload
def kernel(fn: FunctionType, /, *, schedule: Schedule | None = None) -> Kernel: ...
@overload
def kernel(*, schedule: Schedule) -> Callable[[FunctionType], Kernel]: ...
def kernel(fn: Any = None, /, *, schedule: Schedule | None = None) -> Any:
    """Make a Python function a kernel: it is parsed, not run. `schedule` is its calls' default."""
    import inspect

    if fn is None:
        return partial(kernel, schedule=schedule)
    if not hasattr(fn, "__name__"):
        hint = "write @kernel, or @kernel(schedule=…), above a def"
        raise ParseError(f"WS0028 @kernel is above {type(fn).__name__}, not a function", hint=hint)
    written = Written(inspect.unwrap(fn))

    def make() -> ir.Kernel:
        from wsdsl.frontend.from_source import from_function

        return from_function(written)

    fn = written.fn
    made = Kernel(fn.__name__, make, written.source, fn.__doc__, lambda: written.key)
    made._schedule = as_schedule(schedule)  # pyright: ignore[reportPrivateUsage]
    made.__module__, made.__qualname__ = fn.__module__, fn.__qualname__
    return made


def _as_text(given: Any) -> str:
    if isinstance(given, str):
        return given
    raise ParseError(f"WS0029 the source is of type {type(given).__name__}", hint="give a str")


class Kernels(SimpleNamespace):
    """The kernels of a text, by name."""


def parse(text: str, file: str = "<string>") -> Kernels:
    """Return the kernels of a text. ParseError or TypeCheckError with all errors."""
    from wsdsl.artifact.artifact import Names

    text = _as_text(text)
    made: dict[str, ir.Kernel] = {}

    def read() -> Names:
        made.update(_kernels(text, file))
        return Names(tuple(made))

    found = get_or_compute(digest("text", text), Names, read)
    return Kernels(**{name: _of_text(name, text, file, made.get(name)) for name in found.names})


def one_of(name: str, text: str, file: str) -> Kernel:
    """Return a kernel of a valid source, which is parsed on first use."""
    return _of_text(name, text, file, None)


def _of_text(name: str, text: str, file: str, made: ir.Kernel | None) -> Kernel:
    make = (lambda: _kernels(text, file)[name]) if made is None else (lambda: made)
    return Kernel(name, make, text, None, lambda: f"{name} of {text}")


def _kernels(text: str, file: str) -> dict[str, ir.Kernel]:
    require_compiler("lark")
    from wsdsl.frontend.from_source import from_text

    return from_text(text, file)


def load(path: str | Path) -> Kernels:
    """The kernels of a `.ws` file."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CompileError(f"WS0030 cannot read {path}: {error}") from None
    return parse(text, str(path))


def compile_ir(text: str, file: str = "<ir>") -> Compiled:
    """Compile a dumped (perhaps edited) kernel of any level. ParseError or VerifyError."""
    require_compiler("lark")
    from wsdsl.ir.parser import parse_kernel

    return Compiled(parse_kernel(_as_text(text), file), key=digest("ir", text))
