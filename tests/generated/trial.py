"""Requirements on every generated program.

It is rejected by an allowed error with a location in the text (none for a schedule that does not
fit), or: the reference is consistent under any tile sizes, the scheduled kernel is proved, and
the simulator agrees with the reference within the bound of noise.py.
"""

from __future__ import annotations

import re
import signal
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np

import wsdsl
from tests.generated import draws, noise
from wsdsl import Schedule
from wsdsl.diagnostics import CompileError, ParseError, ScheduleError, TypeCheckError, WsdslError
from wsdsl.ir.types import Tensor

REFUSALS = (ParseError, TypeCheckError, CompileError, ScheduleError)


@dataclass(frozen=True)
class Outcome:
    kind: str
    """`ok`, `refused`, `schedule`; `wrong` and `crash` are failures."""
    reason: str = ""
    """The message, with what is particular to the program left out."""
    detail: str = ""

    @property
    def failed(self) -> bool:
        return self.kind in ("wrong", "crash")


OK = Outcome("ok")
LIMIT = 60
"""Seconds for a program under all of its schedules."""


class TooSlow(BaseException):
    """Raised wherever it is, and taken for a failure there."""


def _too_slow(*_: object) -> None:
    raise TooSlow(f"takes more than {LIMIT} s")


def attempts(
    text: str,
    seed: int,
    schedules: int = 3,
    ptx: bool = False,
    given: Sequence[Schedule | None] = (),
) -> list[Outcome]:
    """One outcome for the text if it is refused or fails, else one for each of the schedules: those
    that are `given`, or as many at random, and of products one for cards with tensor memory.
    """
    before = signal.signal(signal.SIGALRM, _too_slow)
    signal.alarm(LIMIT)
    try:
        return _attempts(text, seed, schedules, ptx, given)
    except TooSlow as error:
        return [_of_failure(error, f"seed {seed}")]
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _attempts(
    text: str, seed: int, count: int, ptx: bool, schedules: Sequence[Schedule | None]
) -> list[Outcome]:
    rng = Random(seed)
    try:
        kernel = vars(wsdsl.parse(text))["made"]
        _ = kernel.tile_ir
    except Exception as error:
        return [_of_error(error, "parsing")]
    found: list[Outcome] = []
    dims = draws.sizes(kernel, rng)
    given = draws.arrays(kernel, dims, seed)
    tiles = [draws.tile_sizes(kernel, dims, rng) for _ in range(3)]
    samples: list[dict[str, Any]] | None = None
    for i in range(len(schedules) or count + draws.multiplies(kernel)):
        draw = draws.schedule if i < count else draws.on_tensor_memory
        schedule = schedules[i] if schedules else draw(kernel, rng) if i else None
        what = f"sizes {dims}, schedule={schedule!r}, seed {seed}"
        call_arrays = noise.copied(given)
        call = compiled = None
        try:
            call = kernel.resolve(tuple(call_arrays.values()))
            alignment = kernel._alignment(call, schedule)
            compiled = kernel._compile(schedule, call.dims, *alignment)
        except Exception as error:
            outcome = _of_error(error, f"compiling, {what}")
            found.append(outcome)
            if outcome.kind == "schedule":
                continue
            if outcome.failed or samples is not None:
                return found
        try:
            if samples is None:
                # Of what is refused, too: the language has more than is lowered.
                samples = noise.moved(kernel.tile_ir, given, seed)
                for tile in tiles:
                    told = _differs(kernel, noise.evaluated(kernel.tile_ir, given, tile), samples)
                    if told:
                        return [Outcome("wrong", "tiles", f"under tiles {tile}: {told}; {what}")]
            if compiled is None:
                return found
            _ = compiled.certificate
            if ptx:
                _ = compiled.ptx
            with np.errstate(all="ignore"):
                compiled.simulate_call(call, seed)
        except Exception as error:
            return [*found, _of_failure(error, what)]
        told = _differs(kernel, call_arrays, samples)
        if told:
            return [*found, Outcome("wrong", "simulator", f"{told}; {what}")]
        found.append(OK)
    return found


def _tensors(kernel: wsdsl.Kernel) -> list[tuple[str, str]]:
    return [
        (p.name, p.type.dtype.name)
        for p in kernel.tile_ir.params
        if isinstance(p.type, Tensor) and p.name in kernel.access.writes
    ]


def _differs(kernel: wsdsl.Kernel, got: dict[str, Any], samples: list[dict[str, Any]]) -> str:
    for name, dtype in _tensors(kernel):
        if told := noise.difference(got[name], [s[name] for s in samples], dtype):
            return f"{name}: {told}"
    return ""


def _of_error(error: Exception, what: str) -> Outcome:
    known = isinstance(error, CompileError) or type(error) in REFUSALS
    if known and isinstance(error, WsdslError) and error.findings:
        reason = grouped(error.findings[0].message)
        if isinstance(error, ScheduleError):
            return Outcome("schedule", reason, f"{error}\n{what}")
        if all(f.loc for f in error.findings):
            return Outcome("refused", reason, f"{error}\n{what}")
        return Outcome("crash", f"no place: {reason}", f"{error}\n{what}")
    return _of_failure(error, what)


def _of_failure(error: BaseException, what: str) -> Outcome:
    where = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{where.filename.rsplit('/', 2)[-1]}:{where.name}"
    first = grouped(str(error).splitlines()[0] if str(error) else "")
    last = "\n".join(str(error).splitlines()[:12])
    return Outcome("crash", f"{type(error).__name__} in {place}: {first}", f"{last}\n{what}")


def grouped(message: str) -> str:
    """Without names and numbers, so that equal reasons are counted together."""
    return re.sub(r"\d+", "#", re.sub(r"`[^`]*`", "`…`", message))
