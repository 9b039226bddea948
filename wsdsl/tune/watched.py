"""The process that measures, seen from the one that asks. A kernel that deadlocks never returns,
and only the end of its process frees the GPU: so whoever gives no sign of life is ended.
"""

from __future__ import annotations

import os
import pickle
import queue
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from wsdsl.diagnostics import Finding, LaunchError
from wsdsl.tune.spec import Spec

ROOT = Path(__file__).parents[2]
START_SECONDS = 60.0
"""Until it has a GPU, and memory on it."""


class LostError(Exception):
    """The process is no more; `doing` is what it last said it did."""

    def __init__(self, doing: str, why: str) -> None:
        super().__init__(why)
        self.doing = doing


class FaultError(Exception):
    """What it was asked for failed, and it goes on."""


class Watched:
    """One process; `limit`: seconds without a sign of life."""

    def __init__(self, card: str, spec: Spec, limit: float) -> None:
        paths = str(ROOT), os.environ.get("PYTHONPATH", "")
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "wsdsl.tune.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))},
        )
        self._told: queue.Queue[tuple[str, Any]] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        self._limit = START_SECONDS
        try:
            self.about: dict[str, Any] = self.ask("make", card, spec)
        except (LostError, FaultError) as error:
            self.close()
            told = str(error).removeprefix("LaunchError: ")
            raise LaunchError(Finding(f"nothing can be measured: {told}")) from None
        self._limit = limit

    def ask(self, what: str, *given: Any) -> Any:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(pickle.dumps((what, given)))
            self._process.stdin.flush()
        except OSError:
            raise self._lost("", "its process has ended") from None
        doing = ""
        while True:
            try:
                kind, value = self._told.get(timeout=self._limit)
            except queue.Empty:
                raise self._lost(doing, f"no sign of life for {self._limit:.0f} s") from None
            if kind == "doing":
                doing = value
            elif kind == "done":
                return value
            elif kind == "raised":
                raise FaultError(value)
            else:
                raise self._lost(doing, "its process has ended")

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()

    def _lost(self, doing: str, why: str) -> LostError:
        self._process.kill()
        code = self._process.wait()
        return LostError(doing, f"{why} (code {code})" if "ended" in why else why)

    def _read(self) -> None:
        assert self._process.stdout is not None
        with suppress(EOFError, OSError, ValueError, pickle.UnpicklingError):
            while True:
                self._told.put(pickle.load(self._process.stdout))
        self._told.put(("ended", None))
