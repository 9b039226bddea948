"""A process of wsdsl's own that is asked and answers, both in pickles.

It is started anew and not forked, so it has no part in this one's threads, its CUDA contexts or its
`__main__`. It ends when this one does, since its input does.
"""

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
Tell = Callable[[Any], None]


class ChildProcess:
    """One that runs a module, which calls `serve`."""

    def __init__(self, module: str) -> None:
        paths = str(ROOT), os.environ.get("PYTHONPATH", "")
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))},
        )

    def send(self, what: Any) -> None:
        """All of it: a pipe may take a part at a time. OSError if the process has ended."""
        assert self.process.stdin is not None
        left = memoryview(pickle.dumps(what))
        while left:
            left = left[os.write(self.process.stdin.fileno(), left) :]

    def receive(self) -> Any:
        """EOFError, or what reading half of an answer raises, if the process has ended."""
        assert self.process.stdout is not None
        return pickle.load(self.process.stdout)

    def end(self) -> int:
        """Its exit status."""
        self.process.kill()
        return self.process.wait()

    def close(self) -> None:
        self.end()
        self.forget()

    def forget(self) -> None:
        """Close this process' ends of the pipes: another one has them too."""
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()


def serve(answer: Callable[[Any, Tell], None]) -> None:
    """Have each question answered until the input ends. Prints go where errors go."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)

    def tell(what: Any) -> None:
        pickle.dump(what, answers)
        answers.flush()

    with suppress(EOFError, BrokenPipeError, KeyboardInterrupt):
        while True:
            answer(pickle.load(sys.stdin.buffer), tell)
