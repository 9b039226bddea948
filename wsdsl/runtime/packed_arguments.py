"""The kernel's arguments as bytes, laid out once; the driver gets a table of their addresses."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from wsdsl.artifact import signature as args
from wsdsl.diagnostics import LaunchError
from wsdsl.runtime.arguments import Scalar
from wsdsl.runtime.arrays.views import ArrayView, normalise
from wsdsl.runtime.tensor_map_encoding import MAP_BYTES, replace_address

ALIGN = 64
"""Alignment of a CUtensorMap, and of the buffer."""


MapBytes = Callable[[args.MapArgument], bytes]
"""Returns the 128 bytes of a tensor map."""
MapAt = Callable[[args.MapArgument, int], bytes]
"""Returns the 128 bytes of a tensor map for a tensor at an address."""


def size_of(argument: args.Argument) -> int:
    match argument:
        case args.MapArgument():
            return MAP_BYTES
        case args.PointerArgument() | args.StrideArgument():
            return 8
        case args.SizeArgument() | args.ScalarArgument() | args.NarrowingArgument():
            return 4


def layout(arguments: Sequence[args.Argument]) -> tuple[tuple[int, ...], int]:
    """Offsets of the arguments, each at a multiple of its size (maps: of 64), and the total."""
    offsets: list[int] = []
    end = 0
    for argument in arguments:
        size = size_of(argument)
        align = min(size, ALIGN)
        offset = -(-end // align) * align
        offsets.append(offset)
        end = offset + size
    return tuple(offsets), end


def argument_bytes(
    argument: args.Argument,
    views: Mapping[str, ArrayView],
    scalars: Mapping[str, Scalar],
    dims: Mapping[str, int],
    map_bytes: MapBytes,
) -> bytes:
    """Return the bytes of an argument, for normalized views."""
    match argument:
        case args.MapArgument():
            return map_bytes(argument)
        case args.PointerArgument():
            return struct.pack("<Q", views[argument.tensor].pointer)
        case args.StrideArgument():
            return struct.pack("<q", _stride(argument, views[argument.tensor]))
        case args.SizeArgument():
            return struct.pack("<i", dims[argument.dim])
        case args.ScalarArgument():
            return scalar_bytes(argument, scalars[argument.name])
        case args.NarrowingArgument():
            return struct.pack("<i", argument.columns)


def _stride(argument: args.StrideArgument, view: ArrayView) -> int:
    """LaunchError for a row stride other than the compiled one."""
    stride = view.strides[argument.dim]
    if argument.known in (None, stride) or view.shape[argument.dim] <= 1:
        return stride
    message = f"WS0760 {argument.tensor} has row stride {stride}, expected {argument.known}"
    raise LaunchError(message, hint="make it contiguous: `where` takes contiguous rows")


def scalar_bytes(argument: args.ScalarArgument, value: Scalar) -> bytes:
    if argument.dtype.is_float:
        return struct.pack("<f", value)
    return struct.pack("<i" if argument.dtype.kind == "int" else "<I", int(value))


class PackedArguments:
    """Arguments in memory that does not move. `address` is that of the table of pointers; `held`
    lives as long.
    """

    def __init__(
        self, arguments: Sequence[args.Argument], values: Iterable[bytes], held: object = None
    ) -> None:
        self.arguments = tuple(arguments)
        self.offsets, self.size = layout(arguments)
        self._allocate(held)
        for i, value in enumerate(values):
            self.write(i, value)

    def _allocate(self, held: object) -> None:
        self.held = held
        self._memory = ctypes.create_string_buffer(self.size + ALIGN)
        self._base = -(-ctypes.addressof(self._memory) // ALIGN) * ALIGN
        self._table = (ctypes.c_void_p * max(1, len(self.offsets)))(
            *(self._base + offset for offset in self.offsets)
        )
        self.address = ctypes.addressof(self._table)

    def places(self) -> Iterator[tuple[args.Argument, int]]:
        """Each argument, and its address."""
        yield from zip(self.arguments, (self._base + offset for offset in self.offsets))

    def copy(self, held: object = None) -> PackedArguments:
        made = object.__new__(PackedArguments)
        made.arguments, made.offsets, made.size = self.arguments, self.offsets, self.size
        made._allocate(held)
        ctypes.memmove(made._base, self._base, self.size)
        return made

    def write(self, index: int, value: bytes) -> None:
        ctypes.memmove(self._base + self.offsets[index], value, len(value))

    def set_scalar(self, name: str, value: Scalar) -> bool:
        """Change a scalar in place; False if the kernel takes none of that name."""
        for i, argument in enumerate(self.arguments):
            if isinstance(argument, args.ScalarArgument) and argument.name == name:
                self.write(i, scalar_bytes(argument, value))
                return True
        return False

    def moved(self, pointers: Mapping[str, int], scalars: Mapping[str, Scalar]) -> PackedArguments:
        """Copy, for tensors of the same geometry at other addresses, and for other scalars.
        Arguments that are not named keep their values.
        """
        made = self.copy(self.held)
        for i, argument in enumerate(self.arguments):
            match argument:
                case args.MapArgument(tensor=name) if name in pointers:
                    replace_address(made._base + self.offsets[i], pointers[name])
                case args.PointerArgument(tensor=name) if name in pointers:
                    made.write(i, struct.pack("<Q", pointers[name]))
                case args.ScalarArgument(name=name) if name in scalars:
                    made.write(i, scalar_bytes(argument, scalars[name]))
                case _:
                    pass
        return made

    def with_pointers(
        self, pointers: Mapping[str, int], held: object, map_at: MapAt | None = None
    ) -> PackedArguments:
        """Copy with other addresses of these tensors; `map_at` encodes their tensor maps."""
        made = self.copy(held)
        for i, argument in enumerate(self.arguments):
            if isinstance(argument, args.PointerArgument) and argument.tensor in pointers:
                made.write(i, struct.pack("<Q", pointers[argument.tensor]))
            elif map_at and isinstance(argument, args.MapArgument) and argument.tensor in pointers:
                made.write(i, map_at(argument, pointers[argument.tensor]))
        return made

    def __bytes__(self) -> bytes:
        return ctypes.string_at(self._base, self.size)


def pack(
    arguments: Sequence[args.Argument],
    views: Mapping[str, ArrayView],
    scalars: Mapping[str, Scalar],
    dims: Mapping[str, int],
    map_bytes: MapBytes,
) -> PackedArguments:
    """The arguments of a call."""
    views = {name: normalise(view) for name, view in views.items()}
    values = (argument_bytes(a, views, scalars, dims, map_bytes) for a in arguments)
    return PackedArguments(arguments, values)
