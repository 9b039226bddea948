"""Where kernels come from: `@kernel`, `load`, `parse`, `compile_ir`."""

from __future__ import annotations

from pathlib import Path
from types import FunctionType, SimpleNamespace
from typing import Any

from wsdsl.compiled import Compiled
from wsdsl.compiler import Kernel
from wsdsl.diagnostics import CompileError, Finding, ParseError
from wsdsl.ir import op as ir


def kernel(fn: FunctionType) -> Kernel:
    """Make a Python function a kernel. It is parsed, not run, when it is first needed."""
    import inspect

    fn = inspect.unwrap(fn)

    def make() -> ir.Kernel:
        from wsdsl.frontend import from_function

        return from_function(fn)

    try:
        source = inspect.getsource(fn)
    except (OSError, TypeError):
        source = ""
    made = Kernel(fn.__name__, make, source, fn.__doc__)
    made.__module__, made.__qualname__ = fn.__module__, fn.__qualname__
    return made


def _as_text(given: Any) -> str:
    if isinstance(given, str):
        return given
    raise ParseError(Finding(f"{type(given).__name__} is no text", hint="give a str"))


class Kernels(SimpleNamespace):
    """The kernels of a text, by name."""


def parse(text: str, file: str = "<string>") -> Kernels:
    """The kernels of a text. ParseError or TypeCheckError with all that is wrong."""
    from wsdsl.frontend import from_text

    text = _as_text(text)
    return Kernels(
        **{name: _made(name, made, text) for name, made in from_text(text, file).items()}
    )


def load(path: str | Path) -> Kernels:
    """The kernels of a `.ws` file."""
    try:
        text = Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise CompileError(Finding(f"can not read {path}: {error}")) from None
    return parse(text, str(path))


def _made(name: str, made: ir.Kernel, source: str) -> Kernel:
    return Kernel(name, lambda: made, source)


def compile_ir(text: str, file: str = "<ir>") -> Compiled:
    """Compile a dumped (perhaps edited) kernel of any level. ParseError or VerifyError."""
    from wsdsl.ir.parser import parse_kernel

    return Compiled(parse_kernel(_as_text(text), file))
