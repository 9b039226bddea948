"""Measure schedules in a child process, and survive its crashes and hangs."""

from __future__ import annotations

import pickle
import queue
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from wsdsl.child_process import ChildProcess
from wsdsl.diagnostics import LaunchError
from wsdsl.tune.call_description import Spec

T = TypeVar("T")
LIMIT_SECONDS = 20.0
CUDA = "wsdsl.tune.cuda_card:CudaCard"


class Arena:
    """Schedules by name. One that hangs or ends the process fails, and is reported to `failed`; the
    others enter a new process.
    """

    def __init__(
        self,
        spec: Spec,
        failed: Callable[[str, str], None],
        card: str = CUDA,
        limit: float = LIMIT_SECONDS,
    ) -> None:
        self._spec, self._failed, self._card, self._limit = spec, failed, card, limit
        self._entered: dict[str, bytes] = {}
        self._process = Watched(card, spec, limit)

    @property
    def about(self) -> dict[str, Any]:
        return self._process.about

    def enter(self, name: str, kept: bytes) -> bool:
        """Whether it runs, and its result is right."""
        fault = self._of_one(name, lambda: self._process.ask("add", name, kept))
        if fault is None:
            return False
        if fault:
            self._fail(name, fault)
            return False
        self._entered[name] = kept
        return True

    def check(self, name: str) -> bool:
        fault = self._of_one(name, lambda: self._process.ask("check", name))
        if fault:
            self._fail(name, fault)
        return fault == ""

    def leave(self, names: Sequence[str]) -> None:
        gone = [name for name in names if self._entered.pop(name, None) is not None]
        try:
            self._process.ask("drop", gone)
        except (LostError, FaultError):
            self._process.close()
            self._restart()

    def bursts(self, names: Sequence[str], rounds: int) -> dict[str, list[float]]:
        """Of those that do not fail meanwhile."""
        return self._of_all("bursts", names, rounds)

    def sustained(self, names: Sequence[str], seconds: float) -> dict[str, float]:
        return self._of_all("sustained", names, seconds)

    def close(self) -> None:
        self._process.close()

    def _of_all(self, what: str, names: Sequence[str], length: float) -> dict[str, Any]:
        while True:
            left = [name for name in names if name in self._entered]
            try:
                return self._process.ask(what, left, length)
            except LostError as error:
                self._fail(error.doing if error.doing in left else left[-1], str(error))
                self._restart()
            except FaultError as error:
                # Which of them it was is not known: an error of CUDA may be an earlier one's.
                self._fail(left[-1], str(error))
                self._process.close()
                self._restart()

    def _of_one(self, name: str, work: Callable[[], str]) -> str | None:
        """None where it failed."""
        try:
            return work()
        except LostError as error:
            why = str(error)
        except FaultError as error:
            # The state of the CUDA context is unknown.
            why = str(error)
            self._process.close()
        self._fail(name, why)
        self._restart()
        return None

    def _fail(self, name: str, why: str) -> None:
        is_incumbent = not self._entered or name == next(iter(self._entered))
        self._entered.pop(name, None)
        self._failed(name, why)
        if is_incumbent:
            self._process.close()
            raise LaunchError(f"WS1033 the incumbent schedule cannot be measured: {why}")

    def _restart(self) -> None:
        entered, self._entered = self._entered, {}
        self._process = Watched(self._card, self._spec, self._limit)
        for name, kept in entered.items():
            self.enter(name, kept)


# The process that measures, under a watchdog.
ENDED = "the measuring process has ended"
START_SECONDS = 60.0
"""Until it has a GPU, and memory on it."""


class LostError(Exception):
    """The process has ended; `doing` is its last report."""

    def __init__(self, doing: str, why: str) -> None:
        super().__init__(why)
        self.doing = doing


class FaultError(Exception):
    """A request failed, and the process continues."""


class Watched(ChildProcess):
    """One process; `limit`: seconds without a sign of life."""

    def __init__(self, card: str, spec: Spec, limit: float) -> None:
        super().__init__("wsdsl.tune.measuring_child")
        self._told: queue.Queue[tuple[str, Any]] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        self._limit = START_SECONDS
        try:
            self.about: dict[str, Any] = self.ask("make", card, spec)
        except (LostError, FaultError) as error:
            self.close()
            told = str(error).removeprefix("LaunchError: ")
            raise LaunchError(f"WS1034 schedules cannot be measured: {told}") from None
        self._limit = limit

    def ask(self, what: str, *given: Any) -> Any:
        try:
            self.send((what, given))
        except OSError:
            raise self._lost("", ENDED) from None
        doing = ""
        while True:
            try:
                kind, value = self._told.get(timeout=self._limit)
            except queue.Empty:
                raise self._lost(doing, f"the GPU hung for {self._limit:.0f} s") from None
            if kind == "doing":
                doing = value
            elif kind == "done":
                return value
            elif kind == "raised":
                raise FaultError(value)
            else:
                raise self._lost(doing, ENDED)

    def _lost(self, doing: str, why: str) -> LostError:
        code = self.end()
        return LostError(doing, f"{why} (exit status {code})" if why == ENDED else why)

    def _read(self) -> None:
        with suppress(EOFError, OSError, ValueError, pickle.UnpicklingError):
            while True:
                self._told.put(self.receive())
        self._told.put(("ended", None))
