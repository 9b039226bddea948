"""The process that measures: `python -m wsdsl.tune.child`. It reads which `Card` to make, of what,
and then one question after the other from its input; a kernel that hangs costs this process alone.
"""

from __future__ import annotations

import importlib
import os
import pickle
import sys
from contextlib import suppress
from typing import Any


def main() -> None:
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # prints go where errors go

    def tell(kind: str, value: Any) -> None:
        pickle.dump((kind, value), answers)
        answers.flush()

    def doing(text: str) -> None:
        tell("doing", text)

    with suppress(EOFError, BrokenPipeError, KeyboardInterrupt):
        card: Any = None
        while True:
            what, given = pickle.load(sys.stdin.buffer)
            try:
                if what == "make":
                    module, _, name = given[0].partition(":")
                    card = getattr(importlib.import_module(module), name)(given[1])
                    tell("done", card.about())
                elif what in ("add", "check", "bursts", "sustained"):
                    tell("done", getattr(card, what)(*given, doing))
                else:
                    tell("done", getattr(card, what)(*given))
            except Exception as error:
                tell("raised", f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
