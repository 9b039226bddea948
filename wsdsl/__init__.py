"""wsdsl: a small tensor language compiled to warp-specialised Hopper kernels."""

from wsdsl import language
from wsdsl.compiled import Compiled
from wsdsl.compiler import Kernel, Kernels, compile_ir, kernel, load, parse
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
from wsdsl.language import *  # noqa: F403
from wsdsl.schedule import Schedule

__version__ = "0.1.0"

__all__ = [
    "CompileError",
    "Compiled",
    "Finding",
    "Kernel",
    "Kernels",
    "LaunchError",
    "Loc",
    "ParseError",
    "Schedule",
    "ScheduleError",
    "TypeCheckError",
    "VerifyError",
    "WsdslError",
    "compile_ir",
    "kernel",
    "load",
    "parse",
]
__all__ += language.__all__
