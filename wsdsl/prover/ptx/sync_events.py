"""The alphabet of synchronization traces: letters, one per event, and their numbers."""

from typing import NamedTuple

UNKNOWN = "?"
"""Of a letter that could not be decided: nothing is equal to it."""


class Letter(NamedTuple):
    """One event: the instruction, its immediates, and where in SMEM it acts."""

    kind: str
    detail: str = ""
    barrier: str = ""
    to: str = ""
    cta: str = ""
    """In whose SMEM, if in another's."""
    number: str = ""
    """Of a named barrier, if that depends on the warpgroup."""
    threads: str = ""
    """The threads that do it, if not all that come there."""

    def __str__(self) -> str:
        shown = f"{self.kind} {self.detail}".rstrip()
        shown += f" on {self.barrier}" if self.barrier else ""
        shown += f" to {self.to}" if self.to else ""
        shown += f" of CTA {self.cta}" if self.cta else ""
        shown += f" at barrier {self.number}" if self.number else ""
        return shown + (f" by threads {self.threads}" if self.threads else "")

    @property
    def decided(self) -> bool:
        return not any(UNKNOWN in part for part in self)


KINDS = frozenset(("ld.shared", "st.shared", "ld.global", "st.global"))
"""Accesses by threads. How many instructions an op has, and which are skipped, is codegen's matter:
of each event is compared which kinds of them may occur before it, after the previous event."""

Origin = int
"""Where an event comes from: a node, or a line of the PTX."""
PARITY = "parity "
EVERYWHERE = "everywhere"
EVERYBODY = -1
"""Threads are bits of an int."""
CONDITIONAL = "conditional "
"""An event that depends on more than which thread it is."""
TRY_CANCEL, QUERY = "clusterlaunchcontrol.try_cancel", "clusterlaunchcontrol.query_cancel"
IS_CANCELED, FIRST_CTA = f"{QUERY}.is_canceled", f"{QUERY}.get_first_ctaid::x"
"""The cluster of a response is read where it has one."""


def threads_told(some: int, of: int) -> str:
    """Those who do something, of those who come there."""
    if some & of == of:
        return ""
    return " ".join([str(t) for t in range(of.bit_length()) if (some & of) >> t & 1])


def array(letter: Letter) -> str:
    """The mbarriers; an event acts on one."""
    return letter.barrier.rpartition("[")[0]


class Alphabet:
    """Numbers for letters, which words are made of: a letter itself is slow to look up."""

    def __init__(self) -> None:
        self.letters: list[Letter] = []
        self.numbers: dict[Letter, int] = {}

    def number(self, letter: Letter) -> int:
        """Less than 0 for what is not decided."""
        if letter not in self.numbers:
            self.letters.append(letter)
            num = len(self.letters)
            self.numbers[letter] = num if letter.decided else -num
        return self.numbers[letter]

    def letter(self, number: int) -> Letter:
        return self.letters[abs(number) - 1]
