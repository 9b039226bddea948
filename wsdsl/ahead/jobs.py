"""Compile jobs, their results, and the interfaces by which a job reaches the compiler."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from wsdsl import config
from wsdsl.artifact.artifact import Representatives
from wsdsl.diagnostics import CompileError, Finding, ScheduleError, WsdslError
from wsdsl.ir.op import Kernel
from wsdsl.records import card
from wsdsl.schedule import Schedule


def current_config() -> dict[str, Any]:
    """Return the values of all options, without `dump`: other processes dump nothing."""
    return {option.name: option.get() for option in config.OPTIONS} | {"dump": None}


@dataclass(frozen=True)
class Job:
    """A kernel (`text` at the level TILE; `key` is the cache key of the source) to compile for
    these sizes, or, if not `exact`, for their shape bucket.
    """

    text: str
    key: str | None
    schedule: Schedule | None
    sizes: tuple[tuple[str, int], ...]
    unaligned: tuple[str, ...]
    padded: tuple[str, ...]
    exact: bool = False
    shared: Schedule | None = None
    """The complete schedule, where several shape buckets share one kernel."""
    config: Mapping[str, Any] = field(default_factory=current_config)
    gpus: tuple[str, ...] = field(default_factory=card.queried)
    num_processes: int = 1
    tile: Kernel | None = None
    """The kernel of the text, which need not be parsed then."""


@dataclass(frozen=True)
class Built:
    """`entry` is the serialized choice and artifact, `sizes` are the sizes of the choice;
    `shared`: its schedule, if several buckets share it, with the `representatives` of the buckets.
    """

    sizes: tuple[tuple[str, int], ...]
    entry: bytes
    shared: Schedule | None = None
    representatives: Representatives | None = None


@dataclass(frozen=True)
class Failed:
    """The findings of a compile that failed."""

    findings: tuple[Finding, ...]
    by_schedule: bool = False

    def error(self) -> WsdslError:
        return (ScheduleError if self.by_schedule else CompileError)(self.findings)


CompileJob = Callable[[Job], Built | Failed]
"""A function that compiles; `python -m` of its module serves jobs in a child process."""


class Variants(Protocol):
    """The compiled variants of one kernel."""

    def is_built(self, job: Job) -> bool:
        """Check whether a job's kernel is built, in this process or on disk."""
        ...

    def adopt_result(self, job: Job, result: Built) -> None:
        """Adopt the kernel that another process compiled."""
        ...
