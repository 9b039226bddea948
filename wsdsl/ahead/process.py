"""The parent's end of a child process that compiles."""

import pickle
import threading

from wsdsl.ahead.jobs import Built, CompileJob, Failed, Job
from wsdsl.child_process import ChildProcess
from wsdsl.diagnostics import Finding


class Process(ChildProcess):
    """Runs `python -m` of the module of `compile_job`, on one job at a time."""

    def __init__(self, compile_job: CompileJob) -> None:
        self._lock = threading.Lock()
        super().__init__(compile_job.__module__)

    def run(self, job: Job) -> Built | Failed:
        with self._lock:
            try:
                self.send(job)
                result = self.receive()
            except (OSError, EOFError, pickle.UnpicklingError, ValueError):
                message = f"WS1032 the compiling process has ended (exit status {self.end()})"
                return Failed((Finding(message),))
        assert isinstance(result, Built | Failed)
        return result

    @property
    def ended(self) -> bool:
        return self.process.poll() is not None
