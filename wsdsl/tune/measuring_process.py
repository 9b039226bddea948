"""Measure schedules in a child process, and survive its crashes and hangs."""

import pickle
import queue
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from wsdsl.child_process import ChildProcess
from wsdsl.diagnostics import LaunchError
from wsdsl.tune.call_description import CallDescription

T = TypeVar("T")
LIMIT_SECONDS = 20.0
CUDA = "wsdsl.tune.cuda_device:CudaDevice"


class MeasuringProcess:
    """Schedules by name. A schedule that hangs or ends the process fails, and is reported to
    `failed`; the other schedules enter a new process.
    """

    def __init__(
        self,
        spec: CallDescription,
        failed: Callable[[str, str], None],
        card: str = CUDA,
        limit: float = LIMIT_SECONDS,
    ) -> None:
        self._spec, self._failed, self._card, self._limit = spec, failed, card, limit
        self._entered: dict[str, bytes] = {}
        self._process = WatchedProcess(card, spec, limit)

    @property
    def about(self) -> dict[str, Any]:
        return self._process.about

    def enter(self, name: str, entry: bytes) -> bool:
        """Add a compiled schedule; return whether it runs with a correct result."""
        fault = self._of_one(name, lambda: self._process.ask("add", name, entry))
        if fault is None:
            return False
        if fault:
            self._fail(name, fault)
            return False
        self._entered[name] = entry
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
        except (ProcessLostError, FaultError):
            self._process.close()
            self._restart()

    def bursts(self, names: Sequence[str], rounds: int) -> dict[str, list[float]]:
        """Return the times of schedules that do not fail."""
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
            except ProcessLostError as error:
                self._fail(error.progress if error.progress in left else left[-1], str(error))
                self._restart()
            except FaultError as error:
                # The schedule is unknown: CUDA may report the error of an earlier launch.
                self._fail(left[-1], str(error))
                self._process.close()
                self._restart()

    def _of_one(self, name: str, work: Callable[[], str]) -> str | None:
        """Run a request about one schedule; None if it failed."""
        try:
            return work()
        except ProcessLostError as error:
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
        self._process = WatchedProcess(self._card, self._spec, self._limit)
        for name, entry in entered.items():
            self.enter(name, entry)


# The process that measures, under a watchdog.
ENDED = "the measuring process has ended"
START_SECONDS = 60.0
"""Limit for the initialization of the GPU and its memory."""


class ProcessLostError(Exception):
    """The process has ended; `doing` is its last report."""

    def __init__(self, progress: str, why: str) -> None:
        super().__init__(why)
        self.progress = progress


class FaultError(Exception):
    """A request failed, and the process continues."""


class WatchedProcess(ChildProcess):
    """One process; `limit`: seconds without a report."""

    def __init__(self, card: str, spec: CallDescription, limit: float) -> None:
        super().__init__("wsdsl.tune.measuring_child")
        self._told: queue.Queue[tuple[str, Any]] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        self._limit = START_SECONDS
        try:
            self.about: dict[str, Any] = self.ask("make", card, spec)
        except (ProcessLostError, FaultError) as error:
            self.close()
            message = str(error).removeprefix("LaunchError: ")
            raise LaunchError(f"WS1034 schedules cannot be measured: {message}") from None
        self._limit = limit

    def ask(self, what: str, *given: Any) -> Any:
        try:
            self.send((what, given))
        except OSError:
            raise self._lost("", ENDED) from None
        progress = ""
        while True:
            try:
                kind, value = self._told.get(timeout=self._limit)
            except queue.Empty:
                raise self._lost(progress, f"the GPU hung for {self._limit:.0f} s") from None
            if kind == "doing":
                progress = value
            elif kind == "done":
                return value
            elif kind == "raised":
                raise FaultError(value)
            else:
                raise self._lost(progress, ENDED)

    def _lost(self, progress: str, why: str) -> ProcessLostError:
        code = self.end()
        return ProcessLostError(progress, f"{why} (exit status {code})" if why == ENDED else why)

    def _read(self) -> None:
        with suppress(EOFError, OSError, ValueError, pickle.UnpicklingError):
            while True:
                self._told.put(self.receive())
        self._told.put(("ended", None))
