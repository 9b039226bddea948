"""Where in the source something stands, and the errors that users see."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import field, replace
from functools import cache
from inspect import currentframe
from typing import Any

from wsdsl.record import record


def warn(text: str, kind: type[Warning] = RuntimeWarning) -> None:
    """At the line of the user's code that runs wsdsl."""
    frame, passed = currentframe(), ("wsdsl", "contextlib", "dataclasses", "importlib")
    assert frame
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in passed:
        frame = frame.f_back
    module, line = frame.f_globals, (frame.f_code.co_filename, frame.f_lineno)
    seen = module.setdefault("__warningregistry__", {})
    warnings.warn_explicit(text, kind, *line, module.get("__name__"), seen)


warn_once = cache(warn)
"""In each process, and in a fork of it no more."""


@record
class Loc:
    """A span of source text: 1-based line and columns, `end` one past the last column."""

    file: str
    line: int
    column: int
    end: int
    text: str = field(default="", compare=False, repr=False)
    """The whole source line, for the caret."""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"

    @property
    def written(self) -> str:
        """The expression at this place, or `x` if it has no expression."""
        text, behind = self.text[self.column - 1 : self.end - 1], self.text[self.end - 1 :]
        try:
            return "x" if behind[:1] == "(" else ast.unparse(ast.parse(text, mode="eval"))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return "x"


CODE = re.compile(r"WS\d{4} ")


@record
class Finding:
    """One error: its location, its message (fact, value, limit), and a hint (imperative).

    The message's literal starts with the error's code, "WS0123 ", which `code` has then.
    """

    message: str
    loc: Loc | None = None
    hint: str = ""
    code: str = ""

    def __post_init__(self) -> None:
        if CODE.match(self.message):
            object.__setattr__(self, "code", self.message[:6])
            object.__setattr__(self, "message", self.message[7:])

    def within(self, argument: str) -> Finding:
        return replace(self, message=f"{argument}: {self.message}")

    def render(self) -> str:
        told = f"{self.code} {self.message}" if self.code else self.message
        lines = [f"{self.loc}: {told}" if self.loc else told]
        if self.loc and self.loc.text:
            number = str(self.loc.line)
            width = max(1, min(self.loc.end, len(self.loc.text) + 1) - self.loc.column)
            lines.append(f"  {number} | {self.loc.text}")
            lines.append(f"  {' ' * len(number)} | {' ' * (self.loc.column - 1)}{'^' * width}")
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)


class WsdslError(Exception):
    """Base of every error that wsdsl raises for a user's mistake.

    `findings` holds all errors once, in source order; `str()` renders them with carets. `loc` and
    `hint` are those of a text.
    """

    def __init__(
        self, findings: Finding | Sequence[Finding] | str, loc: Loc | None = None, hint: str = ""
    ) -> None:
        if isinstance(findings, str):
            findings = Finding(findings, loc, hint)
        self.findings: tuple[Finding, ...] = (
            (findings,) if isinstance(findings, Finding) else tuple(dict.fromkeys(findings))
        )
        super().__init__("\n".join(f.render() for f in self.findings))


class ParseError(WsdslError):
    """The text is not a wsdsl kernel, or not IR."""


class TypeCheckError(WsdslError):
    """A kernel parses but its names, axes or dtypes do not fit."""


class ScheduleError(WsdslError):
    """A Schedule is malformed, or does not fit the kernel or the GPU."""


class VerifyError(WsdslError):
    """IR breaks a rule of its level."""


class ProofError(VerifyError):
    """A SCHEDULED kernel can hang or race. `counterexample` has the way there; `str()` tells it."""

    def __init__(self, findings: Finding | Sequence[Finding] | str, counterexample: Any) -> None:
        super().__init__(findings)
        self.counterexample = counterexample


class CompileError(WsdslError):
    """Lowering rejects a construct, or ptxas' output is not acceptable."""


class LaunchError(WsdslError):
    """The arrays of a call do not fit the kernel; nothing has been written."""


def did_you_mean(name: str, known: Iterable[str], more: Iterable[str] = ()) -> str:
    """A hint for a name that is not among those that are known; `more` are not listed."""
    import difflib

    names = [*known]
    lower = {known.lower(): known for known in reversed([*names, *more])}
    near = difflib.get_close_matches(name.lower(), lower, n=1)
    near = [lower[match] for match in near]
    return f"did you mean `{near[0]}`?" if near else f"use one of: {', '.join(names) or 'none'}"


def unknown_names(
    given: Iterable[str], known: Iterable[str], what: str, more: Iterable[str] = ()
) -> list[Finding]:
    """One for each given name that is not known: "`what` has no `name`"."""
    names = [*known]
    wrong = [name for name in given if name not in names]
    hints = [did_you_mean(name, names, more) for name in wrong]
    return [Finding(f"{what} has no `{n}`", None, hint) for n, hint in zip(wrong, hints)]


NONE_FITS = "split the kernel into several: no schedule that the compiler tried fits"


def of_default(findings: Sequence[Finding]) -> list[Finding]:
    """The findings for a user who gave no schedule: hints are about the text, which they quote."""
    about_text = ("`" in f.hint and "Schedule." not in f.hint for f in findings)
    return [f if own else replace(f, hint=NONE_FITS) for f, own in zip(findings, about_text)]


def counted(number: int, what: str, several: str = "") -> str:
    return f"{number} {what if number == 1 else several or f'{what}s'}"
