"""Source text -> TILE: parse, check (all errors at once), convert, settle tile sizes."""

from wsdsl.diagnostics import Finding, ParseError, TypeCheckError
from wsdsl.frontend.check import check
from wsdsl.frontend.entities import Scope
from wsdsl.frontend.kernel_source import Written
from wsdsl.frontend.parse import parse, too_deep
from wsdsl.frontend.python import definition_of
from wsdsl.frontend.settled_tile_sizes import settle_tile_sizes
from wsdsl.frontend.source import Source
from wsdsl.frontend.syntax import Definition
from wsdsl.frontend.to_ir import to_ir
from wsdsl.ir.op import Kernel, Region, regions

__all__ = ["from_function", "from_text"]


def from_text(text: str, file: str = "<string>") -> dict[str, Kernel]:
    """The kernels of a text, by name. ParseError, or TypeCheckError with all that is wrong."""
    scope = Scope(parse(Source(file, text)))
    kernels: dict[str, Kernel] = {}
    findings: list[Finding] = []
    for name, definition in scope.module.definitions.items():
        if definition.kind != "kernel":
            continue
        try:
            kernels[name] = _convert(definition, scope)
        except TypeCheckError as error:
            findings += error.findings
    if findings:
        raise TypeCheckError(findings)
    if not kernels:
        raise ParseError(f"WS0103 {file} has no kernel", hint="write @kernel above a def")
    return kernels


def from_function(written: Written) -> Kernel:
    """The kernel that a Python function describes; the function is never run."""
    return _convert(*definition_of(written, "kernel"))


MAX_REGIONS = 90
"""In each other, so that the text of the kernel parses back."""


def _with_depth(kernel: Kernel, region: Region, left: int) -> Kernel:
    if not left:
        raise RecursionError
    for inner in (inner for op in region for inner in regions(op)):
        _with_depth(kernel, inner, left - 1)
    return kernel


def _convert(definition: Definition, scope: Scope) -> Kernel:
    try:
        made = settle_tile_sizes(to_ir(check(definition, scope)))
        return _with_depth(made, made.body, MAX_REGIONS)
    except RecursionError:
        raise TypeCheckError(too_deep(definition.loc.file, definition.loc)) from None
