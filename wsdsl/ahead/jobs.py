"""What a process that compiles is asked for, and what it gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from wsdsl import config
from wsdsl.artifact.artifact import Artifact, Choice, StandIns
from wsdsl.artifact.serialization import Entry, from_bytes, to_bytes
from wsdsl.background import num_processes
from wsdsl.diagnostics import CompileError, Finding, ScheduleError, WsdslError
from wsdsl.dispatch.compiled import Compiled
from wsdsl.dispatch.variants import Variants
from wsdsl.gc_pause import held_back
from wsdsl.ir.op import Kernel
from wsdsl.records import card
from wsdsl.schedule import Schedule


def knobs_now() -> dict[str, Any]:
    """Nothing is dumped by other processes."""
    return {knob.name: knob.get() for knob in config.KNOBS} | {"dump": None}


@dataclass(frozen=True)
class Job:
    """A kernel (its text at the level TILE; `key` is that of what is kept of it) for these sizes,
    or, if not `exact`, for their class.
    """

    text: str
    key: str | None
    schedule: Schedule | None
    sizes: tuple[tuple[str, int], ...]
    unaligned: tuple[str, ...]
    padded: tuple[str, ...]
    exact: bool = False
    shared: Schedule | None = None
    """The whole schedule, where `exact` sizes are those that a kernel of several classes has."""
    knobs: Mapping[str, Any] = field(default_factory=knobs_now)
    gpus: tuple[str, ...] = field(default_factory=card.queried)
    num_processes: int = 1
    tile: Kernel | None = None
    """The kernel of the text, which need not be parsed then."""

    def built(self, variants: Variants) -> Compiled | None:
        """Return the compiled kernel if it is built, in this process or on disk."""
        given = self.schedule, dict(self.sizes), self.unaligned, self.padded
        if not self.exact:
            return variants.found(*given)
        return variants.at_hand(variants.asked(*given, shared=self.shared))


@dataclass(frozen=True)
class Made:
    """`kept` is the serialized choice and artifact; `sizes`: those for which it was chosen;
    `shared`: its schedule, if several buckets share it, with the `representatives` of these.
    """

    sizes: tuple[tuple[str, int], ...]
    kept: bytes
    shared: Schedule | None = None
    representatives: StandIns | None = None

    def adopt(self, variants: Variants, job: Job) -> None:
        choice, artifact = from_bytes(job.text, self.kept).value
        if self.representatives:
            bucket = job.schedule, dict(job.sizes), job.unaligned, job.padded
            variants.stand_ins(*bucket, adopted=self.representatives)
        given = job.schedule, dict(self.sizes), job.unaligned, job.padded
        variants.adopt(variants.asked(*given, shared=self.shared), choice, artifact)


@dataclass(frozen=True)
class Failed:
    """Why nothing was made."""

    findings: tuple[Finding, ...]
    by_schedule: bool = False

    def error(self) -> WsdslError:
        return (ScheduleError if self.by_schedule else CompileError)(self.findings)


def run(job: Job) -> Made | Failed:
    num_processes.set(job.num_processes)
    card.inherited.set(job.gpus)
    try:
        with held_back(), config.override(**job.knobs):
            return _made(job)
    except WsdslError as error:
        return Failed(error.findings, isinstance(error, ScheduleError))
    except Exception as error:
        return Failed((Finding(f"WS1030 {type(error).__name__}: {error}"),))


def _made(job: Job) -> Made:
    variants, sizes = _variants(job.text, job.key, job.tile), dict(job.sizes)
    given = job.schedule, sizes, job.unaligned, job.padded
    asked = variants.asked(*given, shared=job.shared) if job.exact else variants.serving(*given)
    made = variants.made(asked)
    choice = Choice(made.source.schedule or Schedule(), made.notes)
    held: tuple[Choice, Artifact] = choice, made.artifact
    shared = variants.stand_ins(*given) if asked.shared and not job.exact else None
    return Made(asked.sizes, to_bytes(Entry(job.text, "", held)), asked.shared, shared)


@lru_cache(maxsize=64)
def _variants(text: str, key: str | None, tile: Kernel | None) -> Variants:
    if tile is None:
        from wsdsl.ir.parser import parse_kernel

        tile = parse_kernel(text)
    return Variants(key, lambda: tile)
