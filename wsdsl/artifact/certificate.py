"""What was proved of a kernel."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Certificate:
    """What was proved of a kernel (`digest` of its text), and how far one had to look."""

    kernel: str
    digest: str
    proved: tuple[str, ...]
    how: str
    ctas: int
    warpgroups: int
    barriers: int
    states: int
    steps: int

    def __str__(self) -> str:
        together = f"{self.ctas} CTAs together" if self.ctas > 1 else "one CTA stands for all"
        lines = [
            f"{self.kernel}: proved, for all sizes",
            *(f"  {line}" for line in self.proved),
            f"  how: {self.how}",
            f"  {self.warpgroups} warpgroups and {self.barriers} mbarriers a CTA ({together}); "
            f"{self.states} states, {self.steps} steps",
        ]
        return "\n".join(lines)
