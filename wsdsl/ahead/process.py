"""A process that compiles, seen from the one that asks it."""

from __future__ import annotations

import pickle
import threading

from wsdsl.ahead.jobs import Failed, Job, Made
from wsdsl.child_process import ChildProcess
from wsdsl.diagnostics import Finding


class Process(ChildProcess):
    """One job at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        super().__init__("wsdsl.dispatch.compile_job")

    def run(self, job: Job) -> Made | Failed:
        with self._lock:
            try:
                self.send(job)
                found = self.receive()
            except (OSError, EOFError, pickle.UnpicklingError, ValueError):
                message = f"WS1032 the compiling process has ended (exit status {self.end()})"
                return Failed((Finding(message),))
        assert isinstance(found, Made | Failed)
        return found

    @property
    def ended(self) -> bool:
        return self.process.poll() is not None
