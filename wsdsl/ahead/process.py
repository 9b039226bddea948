"""A process that compiles, seen from the one that asks it.

It is started anew and not forked, so it has no part in this one's threads, its CUDA contexts or its
`__main__`. It ends when this one does, since its input does, or with `close`.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

from wsdsl.ahead.jobs import Failed, Job, Made
from wsdsl.diagnostics import Finding

ROOT = Path(__file__).parents[2]


class Process:
    """One job at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        paths = str(ROOT), os.environ.get("PYTHONPATH", "")
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "wsdsl.ahead.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))},
        )

    def run(self, job: Job) -> Made | Failed:
        assert self._process.stdin is not None and self._process.stdout is not None
        with self._lock:
            try:
                _write(self._process.stdin.fileno(), pickle.dumps(job))
                found = pickle.load(self._process.stdout)
            except (OSError, EOFError, pickle.UnpicklingError, ValueError):
                self._process.kill()
                code = self._process.wait()
                return Failed((Finding(f"the process that compiles has ended (code {code})"),))
        assert isinstance(found, Made | Failed)
        return found

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self.forget()

    def forget(self) -> None:
        """Close this process' ends of the pipes: another one has them too."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()


def _write(pipe: int, data: bytes) -> None:
    """All of it: an unbuffered file may write a part."""
    left = memoryview(data)
    while left:
        left = left[os.write(pipe, left) :]
