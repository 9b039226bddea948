"""A box of a tensor in GMEM that threads copy since TMA cannot: addresses and bounds checks."""

from collections.abc import Callable

from wsdsl.codegen.emission_context import Context
from wsdsl.ir.types import DType, Tensor, Value
from wsdsl.record import record


@record
class TensorBox:
    """`coordinates` are where it begins; lines along the contiguous dimension follow each other
    along `line_dim` (-1: there is one).
    """

    c: Context
    tensor: Value
    coordinates: tuple[str, ...]
    line_dim: int

    @property
    def type(self) -> Tensor:
        return self.tensor.as_tensor

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    def size(self, dim: int) -> str:
        return self.c.size(self.type.dims[dim]).text

    def by_widest(self, copy: Callable[[int], None], *widths: int) -> None:
        """Emit `copy` for each number of bytes. At run time the first width is chosen that divides
        the address, strides and size; else the last.
        """
        w, (*wide, last) = self.c.w, widths
        if not wide:
            copy(last)
            return
        end, alignment = w.name("copied"), self._alignment()
        for bytes in wide:
            fast, slower = w.name("copy"), w.name("copy_narrower")
            masked = w.binary("and", "i64", alignment, bytes - 1)
            w.branch(w.compare("eq", masked, 0, "i64"), fast, slower)
            w.begin(fast)
            copy(bytes)
            w.jump(end)
            w.begin(slower)
        copy(last)
        w.jump(end)
        w.begin(end)

    def _alignment(self) -> str:
        """Where lines begin and end, in bytes, all in one: its lowest bits are 0 where all are
        aligned.
        """
        c, w, last = self.c, self.c.w, len(self.coordinates) - 1
        result = w.value(f"ptrtoint ptr addrspace(1) {c.pointer(self.tensor).text} to i64")
        counts = [c.strides[self.tensor.name, dim] for dim in range(last)]
        ends = self.coordinates[-1], self.size(last)
        counts += [w.value(f"sext i32 {text} to i64") for text in ends]
        for text in counts:
            result = w.binary("or", "i64", result, w.binary("mul", "i64", text, self.dtype.bytes))
        return result

    def at(self, line: str, column: str) -> tuple[str, str, str | None]:
        """The address of an element of a line, how many elements there are from there to the end of
        the row, and lines to the end of the tensor (none where lines are no dimension).
        """
        c, w, last = self.c, self.c.w, len(self.coordinates) - 1
        coordinates = list(self.coordinates)
        coordinates[-1] = w.add(coordinates[-1], column)
        if self.line_dim >= 0:
            coordinates[self.line_dim] = w.add(coordinates[self.line_dim], line)
        pointer, left, rows = c.pointer(self.tensor).text, self._left(last, coordinates[-1]), None
        for dim, text in enumerate(coordinates):
            wide = w.value(f"sext i32 {text} to i64")
            if dim < last:
                wide = w.binary("mul", "i64", wide, c.strides[self.tensor.name, dim])
            if dim == self.line_dim:
                rows = self._left(dim, text)
            elif dim < last:
                left = w.select(w.compare("ult", text, self.size(dim)), "i32", left, "0")
            pointer = self._moved(pointer, wide)
        return pointer, left, rows

    def _left(self, dim: int, text: str) -> str:
        """From there to the end of the dimension; 0 beyond it."""
        w, size = self.c.w, self.size(dim)
        there = w.compare("ult", text, size)
        return w.select(there, "i32", w.binary("sub", "i32", size, text), "0")

    def below(self, pointer: str, lines: int) -> str:
        if not lines or self.line_dim < 0:
            return pointer
        stride = self.c.strides[self.tensor.name, self.line_dim]
        return self._moved(pointer, self.c.w.binary("mul", "i64", stride, lines))

    def _moved(self, pointer: str, elements: str) -> str:
        kind = f"i{self.dtype.bits}, ptr addrspace(1)"
        return self.c.w.value(f"getelementptr {kind} {pointer}, i64 {elements}")
