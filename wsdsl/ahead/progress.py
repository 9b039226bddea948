"""Progress on stderr by tqdm, an optional dependency (extra `progress`)."""

import importlib
import sys
from typing import Any


class Bar:
    """Progress of `total` kernels; without tqdm, one line at the end."""

    def __init__(self, name: str, total: int) -> None:
        self._name, self._total, self._done = name, total, 0
        try:
            self._bar: Any = importlib.import_module("tqdm").tqdm(
                desc=name, total=total, unit="kernel"
            )
        except ImportError:
            self._bar = None

    def step(self, note: str = "") -> None:
        self._done += 1
        if self._bar is not None:
            self._bar.set_postfix_str(note, refresh=False)
            self._bar.update()

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
        else:
            print(f"{self._name}: {self._done} of {self._total} kernels", file=sys.stderr)
