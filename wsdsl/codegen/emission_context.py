"""The state of a conversion: the text so far, what each IR value became, and who is executing."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TypeVar

from wsdsl.codegen import value_registers as h
from wsdsl.codegen.wgmma_group import Group
from wsdsl.codegen.writer import Writer
from wsdsl.ir.op import Makers, Op, Region, Value
from wsdsl.ir.types import I32, Tile

KindT = TypeVar("KindT")


@dataclass(frozen=True, slots=True)
class Threads:
    """Indices of a thread; computed once, at the kernel's start.

    `warpgroup` and `warp` (of the warpgroup) are results of a shuffle, so that ptxas treats them as
    uniform: branches and smem descriptors computed from them stay uniform.
    """

    tid: str
    lane: str
    warp: str
    warpgroup: str
    row: str
    """First row of the thread in a fragment: 16 * warp + lane / 4."""
    column: str
    """First column of the thread in a fragment: 2 * (lane % 4)."""
    first_lane: str
    """i1: lane 0 of its warp."""
    first_thread: str
    """i1: thread 0 of its warpgroup."""


@dataclass(frozen=True, slots=True)
class Place:
    """The partition that executes: its warpgroups, which of their warps elects, whether one elected
    thread runs alone, and the registers that a thread has, where it was given them."""

    first_warpgroup: int = 0
    warp: int = 0
    inside: bool = False
    elected: bool = False
    registers: int = 0


def _typed(kind: type[KindT]) -> Callable[[Context, Value], KindT]:
    def held(c: Context, value: Value) -> KindT:
        """The registers or address of a value that is known to be of this kind."""
        result = c.values[value]
        assert isinstance(result, kind), value
        return result

    return held


@dataclass
class Context:
    w: Writer
    threads: Threads
    smem: str
    """The address of dynamic SMEM, i32."""
    convert: Callable[[Context, Region], tuple[Value, ...]]
    """Converts a region and returns what it yields."""
    stored: frozenset[str]
    """Tensors that change while it runs; the others can be read through the texture path."""
    fragments: frozenset[str]
    """Tensors that lie in the order of registers, see `allocate_global`."""
    unaligned: frozenset[str]
    """Tensors whose lines may begin anywhere."""
    sizes: Mapping[str, h.Scalar]
    strides: Mapping[tuple[str, int], str]
    maps: Iterator[h.Pointer]
    never: str
    """i1: false, which LLVM and ptxas cannot fold. A wgmma that by this adds nothing still takes
    over the registers of its accumulator; by a literal it would get others, and accumulators that
    are read before would stay in these for longer.
    """
    zero: str
    """i32: 0, of 16 bits at the most, which neither knows either."""
    apart: str
    """i64: 0 in every lane, which LLVM and ptxas cannot fold. A load ahead of its use from an
    address to which it is added stays in a register: ptxas moves a value that all lanes load to a
    uniform register, and waits for it there.
    """
    before_fences: Mapping[int, tuple[Value, ...]] = field(
        default_factory=dict[int, tuple[Value, ...]]
    )
    """By the id of a wgmma_fence: fragments that must be in their registers when it runs."""
    named: Mapping[Value, Value] = field(default_factory=dict[Value, Value])
    """By accumulators that have names of their own in PTX the one that they began as."""
    zeroed: Mapping[Value, Value] = field(default_factory=dict[Value, Value])
    """The named accumulator by its fragment, where only a `zero_unless` reads the fragment."""
    group: Group | None = None
    """Products whose width the launch says, since the last commit."""
    narrower: str = "%narrower"
    """i32: by how many columns the tiles of this launch are narrower than the widest."""
    definers: Makers = field(default_factory=dict[Value, Op])
    """The op that defines a value."""
    values: dict[Value, h.Storage] = field(default_factory=dict[Value, h.Storage])
    place: Place = field(default_factory=Place)

    @contextmanager
    def at(
        self, *, first_warpgroup: int | None = None, warp: int = 0, elected: bool | None = None
    ) -> Generator[None]:
        outer = self.place
        if first_warpgroup is not None:
            self.place = Place(first_warpgroup, warp, inside=True)
        if elected is not None:
            self.place = replace(self.place, elected=elected)
        try:
            yield
        finally:
            self.place = outer

    scalar = _typed(h.Scalar)
    state = _typed(h.StateAt)
    shared = _typed(h.SharedAt)
    columns = _typed(h.ColumnsAt)
    descriptor = _typed(h.Descriptor)
    pointer = _typed(h.Pointer)

    def registers(self, value: Value) -> h.Registers:
        """A fragment, or a scalar as a fragment of one row and column."""
        operand = self.values[value]
        if isinstance(operand, h.Scalar):
            return h.Registers(operand.dtype, *h.Shape(1, 1), (operand.text,))
        assert isinstance(operand, h.Registers), value
        return operand

    def define(self, result: Value, registers: h.Registers) -> None:
        """Define a result; a fragment of one element is a scalar."""
        is_scalar = isinstance(result.type, Tile)
        dtype, texts = registers.dtype, registers.texts
        self.values[result] = h.Scalar(texts[0], dtype) if is_scalar else registers

    def one_thread(self, pred: str | None = None) -> str | None:
        """The predicate of an op that one thread of the warpgroup, or of the CTA outside of
        partitions, executes where `pred` holds.
        """
        if self.place.elected:
            return pred
        w, threads = self.w, self.threads
        one = threads.first_thread if self.place.inside else w.compare("eq", threads.tid, 0)
        return one if pred is None else w.binary("and", "i1", one, pred)

    def size(self, dim: str | int) -> h.Scalar:
        """The size of a dimension."""
        if isinstance(dim, str):
            return self.sizes[dim]
        return h.Scalar(str(dim), I32, dim, nonnegative=True)

    def own_warpgroup(self) -> str:
        """Of the partition."""
        first, number = self.place.first_warpgroup, self.threads.warpgroup
        return self.w.binary("sub", "i32", number, first) if first else number

    def item(self, shared: h.SharedAt, index: str) -> str:
        """The address of item `index`, short of the array's own (constant) offset."""
        if shared.num == 1:
            return self.smem
        return self.w.add(self.smem, self.w.multiply(index, shared.bytes))
