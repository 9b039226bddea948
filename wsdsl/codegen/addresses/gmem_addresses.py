"""Addresses of the elements of a direct access to GMEM, and their bounds checks.

Most elements of a thread differ from its first one by constants. An address is the base plus terms,
ordered from those that all elements share to those of one element. Each partial address is computed
once, and constants are offsets in the instruction. Bounds are compared in the same order.
"""

from dataclasses import dataclass, field

from wsdsl.codegen.emission_context import Context
from wsdsl.codegen.fragment_registers import elements, resized, source_element
from wsdsl.codegen.inline_ptx import Global
from wsdsl.codegen.value_registers import Affine, Registers, Scalar, Shape, Storage, nonnegative
from wsdsl.ir.types import DTYPES, I32, Value

Key = tuple[int, str, int]
ONLY = -1
"""In a key: the mask `only`, not a dimension."""


@dataclass(frozen=True)
class Entry:
    """One dimension's index."""

    dim: int
    registers: Registers
    known: int | None
    sure: bool
    """Known not to be negative."""

    @property
    def order(self) -> int:
        """Scalars first, then rows, then columns, then what depends on both."""
        return 2 * (self.registers.columns > 1) + (self.registers.rows > 1)

    @property
    def is_unsigned(self) -> bool:
        return self.sure or self.registers.dtype.kind == "uint"

    def is_below(self, size: int, source: int) -> bool:
        """Whether an element surely is of a dimension of this size."""
        if self.known is not None:
            return 0 <= self.known < size
        affine = self.registers.affine
        if affine is None or affine.most is None:
            return False
        return self.sure and affine.most + affine.offsets[source] < size


def _entry(dim: int, value: Storage) -> Entry:
    if isinstance(value, Scalar):
        known = value.known if isinstance(value.known, int) else None
        registers = Registers(value.dtype, *Shape(1, 1), (value.text,))
        return Entry(dim, registers, known, nonnegative(value))
    assert isinstance(value, Registers)
    return Entry(dim, value, None, nonnegative(value))


def wide(c: Context, value: Storage) -> Storage:
    """An index of fewer bits in 32 of them, with which sizes are compared."""
    if not isinstance(value, Registers | Scalar) or value.dtype.bits == 32:
        return value
    if isinstance(value, Scalar):
        text = resized(c.w, value.text, value.dtype, I32)
        return Scalar(text, I32, value.known, nonnegative(value))
    dtype = DTYPES["u32"] if nonnegative(value) else I32
    texts = [resized(c.w, text, value.dtype, I32) for text in elements(c.w, value)]
    return Registers(dtype, *value.shape, tuple(texts))


@dataclass
class Addresses:
    """Addresses of and conditions on the elements of a fragment of shape `shape`; of 4 bits the
    addresses are those of their bytes.
    """

    c: Context
    tensor: Value
    index: tuple[Value, ...]
    shape: Shape
    only: Value | None = None
    """Bools: the elements that are loaded."""
    is_ahead: bool = False
    """Whether what lies there is loaded before it is wanted, and may be the same in all lanes."""
    pointers: dict[tuple[Key, ...], str] = field(default_factory=dict[tuple[Key, ...], str])
    conditions: dict[tuple[Key, ...], str | None] = field(
        default_factory=dict[tuple[Key, ...], "str | None"]
    )
    once: dict[object, str] = field(default_factory=dict[object, str])

    def __post_init__(self) -> None:
        self.kind = self.tensor.as_tensor
        self.in_pairs = self.kind.dtype.bits == 4
        entries = [_entry(d, wide(self.c, self.c.values[v])) for d, v in enumerate(self.index)]
        self.entries = sorted(entries, key=lambda e: e.order)

    @property
    def last_dim(self) -> int:
        return len(self.kind.dims) - 1

    @property
    def last(self) -> Affine | None:
        """The index along the last dimension."""
        return self._entry(self.last_dim).registers.affine

    @property
    def is_aligned(self) -> bool:
        """Whether lines of the tensor begin at multiples of 16 bytes."""
        return self.tensor.name not in self.c.unaligned

    def is_same_line(self, element: int) -> bool:
        """Whether the element lies in the line of the first one."""
        dims = (e.dim for e in self.entries if e.dim != self.last_dim)
        return all(self.source(dim, element) == self.source(dim, 0) for dim in dims)

    def source(self, dim: int, element: int) -> int:
        """Which element of the dimension's index serves this one: the first of those alike."""
        value = self._entry(dim).registers
        return self._first_equal(value, source_element(element, self.shape, value.shape))

    def _first_equal(self, value: Registers, source: int) -> int:
        each = value.texts if value.affine is None else value.affine.offsets
        return each.index(each[source])

    def at(self, element: int) -> Global:
        """The element's address."""
        shared: list[Key] = []
        own: list[Key] = []
        constant = 0
        last = self.last_dim
        for entry in self.entries:
            source = self.source(entry.dim, element)
            if entry.registers.affine is None:
                if entry.known != 0:
                    own.append((entry.dim, "element", source))
                continue
            offset = entry.registers.affine.offsets[source]
            if self.in_pairs and entry.dim == last and offset % 2:
                own.append((entry.dim, "element", source))
                continue
            shared.append((entry.dim, "base", 0))
            if entry.dim == last:
                constant += self.kind.dtype.size(offset)
            elif offset:
                own.append((entry.dim, "offset", offset))
        scalars = [k for k in own if self._entry(k[0]).order == 0]
        rest = [k for k in own if self._entry(k[0]).order != 0]
        return Global(self._pointer((*scalars, *shared, *rest)), constant)

    def _entry(self, dim: int) -> Entry:
        return next(e for e in self.entries if e.dim == dim)

    def _pointer(self, keys: tuple[Key, ...]) -> str:
        if not keys:
            return self.c.pointer(self.tensor).text
        if keys not in self.pointers:
            before = self._pointer(keys[:-1])
            bits = max(8, self.kind.dtype.bits)
            step = self._elements(keys[-1])
            text = f"getelementptr i{bits}, ptr addrspace(1) {before}, i64 {step}"
            self.pointers[keys] = self.c.w.value(text)
        return self.pointers[keys]

    def _elements(self, key: Key) -> str:
        """One term of an address, i64, in elements of the tensor, or in bytes that hold two."""
        if key in self.once:
            return self.once[key]
        w = self.c.w
        dim, what, number = key
        entry = self._entry(dim)
        last = dim == self.last_dim
        if what == "offset":
            result = w.binary("mul", "i64", self.c.strides[self.tensor.name, dim], number)
        else:
            if what == "base":
                assert entry.registers.affine is not None
                text = entry.registers.affine.base
            else:
                text = self._index(entry, number)
            widen = "zext" if entry.is_unsigned else "sext"
            result = w.value(f"{widen} i32 {text} to i64")
            if not last:
                result = self._lines(text, result, dim)
            if self.is_ahead and entry.order:
                result = w.binary("add", "i64", result, self.c.apart)
        if self.in_pairs:
            # Rows begin with a byte, so that nothing is lost but half of a last index.
            result = w.binary("ashr", "i64", result, 1)
        self.once[key] = result
        return result

    def _lines(self, index: str, wide: str, dim: int) -> str:
        """The offset of a line, in elements. ptxas merges a shift with the 64-bit addition into a
        multiplication, which takes as long as 40 instructions while wgmma runs; it does not merge
        shifts of 32-bit halves.
        """
        w, stride = self.c.w, self.c.strides[self.tensor.name, dim]
        bits = int(stride).bit_length() - 1 if stride.isdigit() else 0
        if not bits or int(stride) != 1 << bits or bits >= 32 or not self._entry(dim).is_unsigned:
            return w.binary("mul", "i64", wide, stride)
        ptx = (
            "{\n.reg .b32 low, high;\n"
            f"shl.b32 low, $1, {bits};\nshr.u32 high, $1, {32 - bits};\n"
            "mov.b64 $0, {low, high};\n}"
        )
        return w.asm_value(ptx, [("i32", index)], "i64", pure=True)

    def _index(self, entry: Entry, source: int) -> str:
        if entry.registers.affine is None:
            return entry.registers.texts[source]
        return self.c.w.add(entry.registers.affine.base, entry.registers.affine.offsets[source])

    def is_high(self, element: int) -> str:
        """i32: whether the element is the upper half of its byte."""
        entry = self._entry(self.last_dim)
        source = source_element(element, self.shape, entry.registers.shape)
        return self.c.w.binary("and", "i32", self._index(entry, source), 1)

    def condition(self, element: int) -> str | None:
        """i1: the element is in the tensor, and `only` holds for it. None: always true."""
        keys: list[Key] = []
        for entry in self.entries:
            size = self.c.size(self.kind.dims[entry.dim]).known
            source = self.source(entry.dim, element)
            if not (isinstance(size, int) and entry.is_below(size, source)):
                keys.append((entry.dim, "bound", source))
        if self.only is not None:
            mask = self.c.registers(self.only)
            source = source_element(element, self.shape, mask.shape)
            keys.append((ONLY, "bound", self._first_equal(mask, source)))
        return self._condition(tuple(keys))

    def _condition(self, keys: tuple[Key, ...]) -> str | None:
        if not keys:
            return None
        if keys not in self.conditions:
            before = self._condition(keys[:-1])
            own = self._bound(keys[-1])
            self.conditions[keys] = (
                own if before is None else self.c.w.binary("and", "i1", before, own)
            )
        return self.conditions[keys]

    def _bound(self, key: Key) -> str:
        if key in self.once:
            return self.once[key]
        w = self.c.w
        dim, _, source = key
        if dim == ONLY and self.only is not None:
            return self.c.registers(self.only).texts[source]
        entry = self._entry(dim)
        size = self.c.size(self.kind.dims[dim]).text
        affine: Affine | None = entry.registers.affine
        if affine is not None:
            # Each element is compared with a constant, and no index takes a register.
            offset = affine.offsets[source]
            result = w.compare("sgt", self._less_base(dim, "limit", size, affine), offset)
            if not entry.sure:
                above = w.compare("sle", self._less_base(dim, "start", "0", affine), offset)
                result = w.binary("and", "i1", result, above)
        else:
            # Unsigned, so that what is negative is too large.
            result = w.compare("ult", entry.registers.texts[source], size)
        self.once[key] = result
        return result

    def _less_base(self, dim: int, name: str, number: str, affine: Affine) -> str:
        """`number` less the base, computed once."""
        if (dim, name) not in self.once:
            self.once[dim, name] = self.c.w.binary("sub", "i32", number, affine.base)
        return self.once[dim, name]
