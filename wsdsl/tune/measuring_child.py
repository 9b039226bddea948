"""`python -m wsdsl.tune.measuring_child`: the process that measures. It reads the class of a
device and a call description, then requests. A kernel that hangs blocks this process
only.
"""

import importlib
from typing import Any

from wsdsl.child_process import Tell, serve
from wsdsl.diagnostics import CODE

_card: list[Any] = []


def answer(request: tuple[str, Any], tell: Tell) -> None:
    what, given = request
    try:
        if what == "make":
            module, _, name = given[0].partition(":")
            _card[:] = [getattr(importlib.import_module(module), name)(given[1])]
            tell(("done", _card[0].about()))
            return
        if what in ("add", "check", "bursts", "sustained"):
            given = *given, lambda text: tell(("doing", text))
        tell(("done", getattr(_card[0], what)(*given)))
    except Exception as error:
        tell(("raised", f"{type(error).__name__}: {CODE.sub('', str(error))}"))


if __name__ == "__main__":
    serve(answer)
