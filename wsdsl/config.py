"""Every WSDSL_* environment variable: typed, documented, and scoped with `override`. `wsdsl doctor`
and docs/language.md list them.

    config.BACKEND.get()                          # the override in force, else the environment
    with config.override(backend="simulator"):    # this thread and this task only
        ...

A value that does not parse is a WsdslError that says what is expected. The environment is read at
each `get`, so an option that is set after the import counts too.
"""

import os
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from wsdsl.deprecation import deprecate
from wsdsl.diagnostics import WsdslError

T = TypeVar("T")
Backend = Literal["auto", "gpu", "simulator"]
NO_OVERRIDES: Mapping[str, Any] = {}
_overrides: ContextVar[Mapping[str, Any]] = ContextVar("wsdsl_config", default=NO_OVERRIDES)


@dataclass(frozen=True)
class Option(Generic[T]):
    """One environment variable; `parse` converts its text to a value or raises ValueError.
    `renamed_from`: its deprecated name, without WSDSL_, in lower case.
    """

    variable: str
    parse: Callable[[str], T]
    default: T
    expected: str
    doc: str
    find_default: Callable[[], T] | None = None
    """Returns the default, if it depends on the environment too."""
    renamed_from: str | None = None

    @property
    def name(self) -> str:
        """WSDSL_ALLOW_SPILLS -> allow_spills, the keyword of `override`."""
        return self.variable.removeprefix("WSDSL_").lower()

    @property
    def text(self) -> str:
        """Read the variable, else its deprecated name; "" if neither is set."""
        text, old = os.environ.get(self.variable, ""), f"WSDSL_{self.renamed_from}".upper()
        if not text and self.renamed_from and (text := os.environ.get(old, "")):
            deprecate(old, self.variable)
        return text

    def get(self) -> T:
        overrides = _overrides.get()
        if self.name in overrides:
            return overrides[self.name]
        if not (text := self.text):
            return self.default if self.find_default is None else self.find_default()
        try:
            return self.parse(text)
        except (ValueError, RuntimeError):  # the latter of `~` without a home
            message = f"WS0007 {self.variable} is {text!r}; expected {self.expected}"
            raise WsdslError(message, hint=f"unset {self.variable}, or correct it") from None


@contextmanager
def override(**values: Any) -> Generator[None]:
    """Set options in a block, by their lower-case names: `override(backend="gpu")`."""
    for option in OPTIONS:
        if (old := option.renamed_from) in values:
            deprecate(f"override({old}=…)", f"override({option.name}=…)")
            values[option.name] = values.pop(old)
    unknown = sorted(values.keys() - {k.name for k in OPTIONS})
    if unknown:
        known = ", ".join(k.name for k in OPTIONS)
        raise WsdslError(f"WS0008 the option {unknown[0]!r} is unknown", hint=f"use one of {known}")
    token = _overrides.set({**_overrides.get(), **values})
    try:
        yield
    finally:
        _overrides.reset(token)


def _flag(text: str) -> bool:
    known = {"1": True, "true": True, "yes": True, "on": True}
    known |= {"0": False, "false": False, "no": False, "off": False}
    if text.lower() not in known:
        raise ValueError(text)
    return known[text.lower()]


def _backend(text: str) -> Backend:
    if text == "auto" or text == "gpu" or text == "simulator":
        return text
    raise ValueError(text)


def _directory(text: str) -> Path | None:
    return None if text.lower() == "off" else Path(text).expanduser()


def _users_cache() -> Path | None:
    """As freedesktop.org has it: an absolute path counts. None for a user without a home."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    try:
        return (Path(given) if os.path.isabs(given) else Path.home() / ".cache") / "wsdsl"
    except RuntimeError:
        return None


def _mebibytes(text: str) -> int:
    if not text.isdecimal():
        raise ValueError(text)
    return int(text)


PTXAS = Option[str](
    "WSDSL_PTXAS",
    str,
    "",
    'the path of a ptxas, or "off"',
    'The ptxas to use; "off" leaves assembling to the driver. '
    "Unset: the one of the wheel nvidia-cuda-nvcc, else of PATH, else of CUDA_HOME.",
)
DUMP = Option[Path | None](
    "WSDSL_DUMP",
    _directory,
    None,
    'a directory, or "off"',
    "Write each kernel's IR after each pass, LLVM IR, PTX and SASS to this directory.",
)
BACKEND = Option[Backend](
    "WSDSL_BACKEND",
    _backend,
    "auto",
    '"auto", "gpu" or "simulator"',
    "Where kernels on NumPy arrays run: on a GPU if one is found (auto), on the GPU, simulated.",
)
ALLOW_SPILLS = Option[bool](
    "WSDSL_ALLOW_SPILLS",
    _flag,
    False,
    "0 or 1",
    "Accept kernels whose registers ptxas spills to local memory (default: a CompileError).",
)
CACHE_DIR = Option[Path | None](
    "WSDSL_CACHE_DIR",
    lambda text: (folder := _directory(text)) and folder.absolute(),
    None,
    'a directory, or "off"',
    "The directory that caches compiled kernels across processes; `wsdsl cache` lists them. "
    "Unset: wsdsl in XDG_CACHE_HOME, else in ~/.cache.",
    _users_cache,
)
CACHE_MIB = Option[int](
    "WSDSL_CACHE_MIB",
    _mebibytes,
    1024,
    "a number of MiB",
    "Limit of WSDSL_CACHE_DIR in MiB; the least recently used kernels are removed first.",
)
VERIFY = Option[bool](
    "WSDSL_VERIFY",
    _flag,
    False,
    "0 or 1",
    "Run the IR verifier after every pass, not only at the end of each level.",
)

TUNING_CACHE = Option[bool](
    "WSDSL_TUNING_CACHE",
    _flag,
    True,
    "on or off",
    "Use measured schedules (`wsdsl tuning-cache`); off: those of the cost model alone.",
    renamed_from="records",
)

OPTIONS: tuple[Option[Any], ...] = (
    PTXAS, DUMP, BACKEND, ALLOW_SPILLS, CACHE_DIR, CACHE_MIB, VERIFY, TUNING_CACHE,
)  # fmt: skip
