"""A prescribed interleaving: which warpgroup runs how far, one entry after another.

An entry is a warpgroup's key and either a number of ops, or the op that it is to run next.
"""

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import Literal

from wsdsl.ir.op import Op
from wsdsl.simulator.warpgroup import Warpgroup

Entry = tuple[str, int | Op]
Agents = Literal["eager", "lazy", "random"]
"""When async copies and MMAs advance: at once, when all warpgroups wait, or at any time."""


def check_script(script: Sequence[Entry], keys: Collection[str]) -> None:
    known = set(keys)
    for key, count in script:
        if key not in known:
            raise ValueError(f"the script names {key!r}; there are {', '.join(sorted(known))}")
        if isinstance(count, int) and count < 0:
            raise ValueError(f"the script lets {key} run {count} ops")


class Follower:
    """Follows a script as far as it goes."""

    def __init__(self, script: Sequence[Entry]) -> None:
        self._entries = deque(script)
        self._until: int | None = None
        self._op: Op | None = None

    def current(self, warpgroups: Mapping[str, Warpgroup]) -> Warpgroup | None:
        """The warpgroup that runs next; None at the script's end or at one that has not started."""
        while self._entries:
            key, count = self._entries[0]
            wg = warpgroups.get(key)
            if wg is None:
                self.stop()
                return None
            if self._until is None:
                self._op = None if isinstance(count, int) else count
                self._until = wg.times_run(self._op) + (count if isinstance(count, int) else 1)
            if not wg.done and (not self.satisfied(wg) or wg.blocked is not None):
                return wg
            self.skip()
        return None

    def satisfied(self, wg: Warpgroup) -> bool:
        """Has the warpgroup run its ops? The last may wait for warpgroups of later entries."""
        return self._until is not None and wg.times_run(self._op) >= self._until

    def skip(self) -> None:
        self._entries.popleft()
        self._until = None

    def stop(self) -> None:
        self._entries.clear()
