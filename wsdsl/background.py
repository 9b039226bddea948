"""Calls in threads of their own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


class Background:
    """A call in a thread of its own; `result` gives what it returned, or raises what it raised."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._outcome: tuple[Any, BaseException | None] = None, None
        self._thread = threading.Thread(target=self._run, args=(call,), daemon=True)
        self._thread.start()

    def _run(self, call: Callable[[], Any]) -> None:
        try:
            self._outcome = call(), None
        except BaseException as error:
            self._outcome = None, error

    def outcome(self) -> BaseException | None:
        """What it raised, if it is over and did."""
        return None if self._thread.is_alive() else self._outcome[1]

    def join(self) -> None:
        self._thread.join()

    def result(self) -> Any:
        self.join()
        value, error = self._outcome
        if error is not None:
            raise error
        return value
