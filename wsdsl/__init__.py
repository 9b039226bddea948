"""wsdsl: a small tensor language compiled to warp-specialized Hopper kernels."""

from typing import TYPE_CHECKING, Any

from wsdsl import language
from wsdsl.diagnostics import (
    CompileError,
    Finding,
    LaunchError,
    Loc,
    ParseError,
    ScheduleError,
    TypeCheckError,
    VerifyError,
    WsdslError,
)
from wsdsl.dispatch.compiled import Compiled
from wsdsl.dispatch.kernel import Kernel
from wsdsl.dispatch.sources import Kernels, compile_ir, kernel, load, parse
from wsdsl.language import *  # noqa: F403
from wsdsl.language import abs as abs  # no part of `from wsdsl import *`
from wsdsl.language import max as max
from wsdsl.language import min as min
from wsdsl.language import round as round
from wsdsl.language import sum as sum
from wsdsl.schedule import Schedule
from wsdsl.version import __version__ as __version__

if TYPE_CHECKING:
    from wsdsl import kernels
    from wsdsl.dispatch.exported import load_exported as load_exported
    from wsdsl.dispatch.precompiling import precompiling as precompiling
    from wsdsl.runtime.arrays.packed import Packed as Packed


__all__ = [
    "CompileError",
    "Compiled",
    "Finding",
    "Kernel",
    "Kernels",
    "LaunchError",
    "Loc",
    "Packed",
    "ParseError",
    "Schedule",
    "ScheduleError",
    "TypeCheckError",
    "VerifyError",
    "WsdslError",
    "compile_ir",
    "kernel",
    "kernels",
    "load",
    "load_exported",
    "parse",
    "precompiling",
]
__all__ += language.__all__


def __getattr__(name: str) -> Any:
    """Import names that are not imported yet, and the deprecated `knobs`, on first use."""
    import importlib

    if name in ("kernels", "knobs"):
        return importlib.import_module(f"wsdsl.{name}")
    homes = {
        "Packed": "wsdsl.runtime.arrays.packed",
        "precompiling": "wsdsl.dispatch.precompiling",
        "load_exported": "wsdsl.dispatch.exported",
    }
    if name in homes:
        return getattr(importlib.import_module(homes[name]), name)
    raise AttributeError(f"module 'wsdsl' has no attribute {name!r}")


def __dir__() -> list[str]:
    """Also what is not imported yet."""
    return sorted({*globals(), *__all__})
