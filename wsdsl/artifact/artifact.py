"""Results of compilation: plain data, from which a kernel is launched in any process."""

from __future__ import annotations

import zlib
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field

from wsdsl.artifact.signature import Signature
from wsdsl.ir.types import Tensor, Value
from wsdsl.lazy import cached_property
from wsdsl.record import record
from wsdsl.schedule import Schedule


@record
class Versions:
    """Versions of an artifact's tools. `emitter`: of the sources that determine code, and LLVM."""

    wsdsl: str
    emitter: str
    ptxas: str


@dataclass(frozen=True, eq=False)
class Artifact:
    """A kernel of one schedule: its code, what it takes, and what was proved of it.

    `sizes` are dimensions that are fixed at compile time. Without a `cubin` (and `resources`) there
    was no ptxas, and the driver assembles the PTX. Texts are held deflated.
    """

    name: str
    params: tuple[Value, ...]
    sizes: tuple[tuple[str, int], ...]
    schedule: Schedule
    signature: Signature
    access: Access
    certificate: Certificate
    deflated_ir: bytes
    """The SCHEDULED IR, which the certificate is about."""
    deflated_ptx: bytes
    cubin: bytes | None
    resources: Resources | None
    log: str
    """ptxas' own output."""
    versions: Versions

    @property
    def image(self) -> bytes | str:
        """Cubin or PTX that the driver loads."""
        return self.ptx if self.cubin is None else self.cubin

    @cached_property
    def ptx(self) -> str:
        return zlib.decompress(self.deflated_ptx).decode()

    @property
    def assembled(self) -> Assembled | None:
        if self.cubin is None or self.resources is None:
            return None
        return Assembled(self.cubin, self.resources, self.log, self.ptx)


def deflated(text: str) -> bytes:
    return zlib.compress(text.encode(), 6)


IN_WORDS, ON_ONE_AXIS = "in words", "on one axis"
"""Forms of a kernel."""


@dataclass(frozen=True)
class Declaration:
    """Properties of a kernel's source that its calls need. `whole_dims`: dimensions that are not
    tiled, so that a compiled kernel is for one size of each. `rows`: the dimension of the first
    loop over tiles, or "". `digest`: of the source at the level TILE, without the kernel's name.
    `outer`: the dimensions of the output's loops. `held_dims`: dimensions along register-resident
    rows, or that offset accesses: kernels are compiled for their sizes where these are known.
    `forms`: the source's other forms (`wsdsl/dispatch/vectorized_variants.py`).
    """

    params: tuple[Value, ...]
    access: Access
    whole_dims: tuple[str, ...]
    rows: str = ""
    digest: str = ""
    outer: tuple[str, ...] = ()
    held_dims: tuple[str, ...] = ()
    forms: tuple[str, ...] = ()

    @cached_property
    def exact_dims(self) -> tuple[str, ...]:
        """Dimensions with one kernel per size."""
        return tuple(sorted({*self.whole_dims, *self.held_dims}))

    @cached_property
    def dims(self) -> tuple[str, ...]:
        """Names of the dimensions, in order of appearance."""
        tensors = [p.type for p in self.params if isinstance(p.type, Tensor)]
        return tuple(dict.fromkeys(d for t in tensors for d in t.dims if isinstance(d, str)))


@record
class Choice:
    """Choice for a call of a kernel: the whole schedule, and the notes of `explain`."""

    schedule: Schedule
    notes: tuple[str, ...] = ()


@record
class Rejection:
    """Reason to reject the code of a schedule: registers of operands are `overwritten`, or a number
    of bytes are `spilled`.
    """

    message: str
    overwritten: bool = False
    spilled: int = 0


@record
class Representatives:
    """The kernels that serve a range of rows greater than `low`. Row counts up to `ends[i]`, and
    greater than the end before, are served by the kernel of index `served[i]`, which has one of the
    `schedules` and was chosen for one of the `sizes`. `longer`: their mean slowdown versus the best
    of all candidates, by the cost model.
    """

    low: int
    ends: tuple[int, ...]
    served: tuple[int, ...]
    sizes: tuple[int, ...]
    schedules: tuple[Schedule, ...]
    longer: str = ""

    def of(self, rows: int) -> int:
        """The number of the kernel."""
        return self.served[bisect_left(self.ends, rows)]

    def spans(self, kernel: int) -> list[tuple[int, int]]:
        """Of rows that it serves, the first and the last."""
        begins = [self.low + 1, *(end + 1 for end in self.ends)]
        pairs = zip(begins, self.ends, self.served, strict=False)
        return [(begin, end) for begin, end, own in pairs if own == kernel]


@record
class Names:
    """Names of the kernels in a valid source, or of a kernel's tensors."""

    names: tuple[str, ...]


@record
class Resources:
    """Resources of the machine code: registers, stack and spills per thread, SMEM per CTA. ptxas
    reports the static part of SMEM; the signature has the dynamic part."""

    registers: int
    smem_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int
    stack_bytes: int
    ptxas_version: str


@record
class Assembled:
    cubin: bytes
    resources: Resources
    log: str
    """ptxas' own output."""
    ptx: str


@record
class Certificate:
    """Proved properties of a kernel (`digest` of its text), and the size of the exploration."""

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
        together = f"{self.ctas} CTAs together" if self.ctas > 1 else "one CTA represents all"
        lines = [
            f"{self.kernel}: proved, for all sizes",
            *(f"  {line}" for line in self.proved),
            f"  not proved: {NOT_PROVED}",
            f"  how: {self.how}",
            f"  {self.warpgroups} warpgroups and {self.barriers} mbarriers per CTA ({together}); "
            f"{self.states} states, {self.steps} steps",
        ]
        return "\n".join(lines)


NO_ALIGNMENT: Mapping[str, int] = {}


NOT_PROVED = (
    "values (arithmetic, coordinates, swizzles, the part of K that an MMA covers), and the "
    "assumptions of docs/prover.md"
)


@record
class Access:
    """Names of tensor parameters. `alignment`: bytes that divide address and row strides, where
    several elements are accessed together.
    """

    reads: frozenset[str] = frozenset()
    writes: frozenset[str] = frozenset()
    mapped: frozenset[str] = frozenset()
    """Accessed by TMA, through a tensor map."""
    alignment: Mapping[str, int] = field(default_factory=lambda: dict(NO_ALIGNMENT))
    whole: Mapping[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    """Tensors that are written completely, unless one of these dimensions is empty. Unknown for a
    SCHEDULED kernel, and so empty.
    """
    positive: tuple[str, ...] = ()
    """Scalars that must be positive, or the size of tiles would show."""

    @property
    def only_written(self) -> frozenset[str]:
        """Tensors that a call may leave out, since the kernel does not read them."""
        return self.writes - self.reads

    def writes_whole(self, name: str, dims: Mapping[str, int]) -> bool:
        """Whether, at these sizes, no element of a tensor stays as it was."""
        return name in self.whole and all(dims[d] for d in self.whole[name])
