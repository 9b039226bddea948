"""What a call asks for, in all that its kernel is chosen by."""

from __future__ import annotations

from typing import NamedTuple

from wsdsl.records.row import Row
from wsdsl.schedule import Schedule

Sizes = tuple[tuple[str, int], ...]


class Asked(NamedTuple):
    """Of tensors that TMA can not take, `padded` ones are copied in front of a launch, and threads
    access the `unaligned`. `num_sms`: of the device, where that has fewer than the card that
    kernels are chosen for, and too few for what was chosen. A `record` fills in what `schedule`
    leaves open, and so does a `shared` one, of a kernel that serves several classes of sizes.
    """

    schedule: Schedule | None
    sizes: Sizes
    unaligned: tuple[str, ...]
    padded: tuple[str, ...]
    num_sms: int | None = None
    record: Row | None = None
    shared: Schedule | None = None

    @property
    def whole(self) -> Schedule | None:
        return self.record.whole if self.record else self.shared

    @property
    def by_itself(self) -> Asked:
        """Where the schedule that was filled in is refused: of another version, or it spills."""
        return self._replace(record=None, shared=None)
