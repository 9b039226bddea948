"""A process that compiles: `python -m wsdsl.ahead.child` reads jobs from its input, and writes what
it made, until the input ends. Nothing else gets into its output: prints go where errors go.
"""

from __future__ import annotations

import os
import pickle
import sys
from contextlib import suppress

from wsdsl.ahead.jobs import run


def main() -> None:
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    with suppress(EOFError, BrokenPipeError, KeyboardInterrupt):
        while True:
            pickle.dump(run(pickle.load(sys.stdin.buffer)), answers)
            answers.flush()


if __name__ == "__main__":
    main()
