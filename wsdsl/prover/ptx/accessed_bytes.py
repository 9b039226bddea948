"""The bytes of GMEM and SMEM that the threads' accesses may touch, and those that PTX touches.

Indices are numbers at sample sizes, those of a fragment the first and the last one.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, NamedTuple

from wsdsl.ir.effects import Access, Elements
from wsdsl.ir.hardware.swizzle import PACKED_LINES
from wsdsl.ir.hardware.tcgen05_shapes import ADDRESS_BYTES
from wsdsl.ir.op import THREADS, Kernel, Makers, Op, once, operands, results_of
from wsdsl.ir.types import Fragment, Shared
from wsdsl.prover.ptx.register_slice import split_address
from wsdsl.prover.ptx.register_values import BASE, FOLDED

POINTER = 40
"""Argument n, if it is a pointer, is n << POINTER."""
OWN = re.compile(
    r"(?:@(!?%\w+)\s+)?(?<![\w.])(ld|st|red)(?:matrix|\.(shared|global)\b(?!::))([\w.:]*)\s"
    r"[^;]*?(\[[^\]]*\])"
)
WIDTH = re.compile(r"(?:.*\.[vx](\d)\b)?.*\.[a-z]+(\d+)(x2)?$")
KINDS = ("ld.global", "st.shared", "ld.shared", "st.global")
MONOTONE = ("add", "sub", "mul", "min", "max")
Bounds = tuple[int, int]


class Own(NamedTuple):
    """An access of PTX at `register` + `plus` that moves `bytes`, in units of `lines` bytes;
    `free`: it reads memory that no thread writes. In a run it has an address, if that is known.
    """

    at: int
    kind: str
    guard: str
    register: str
    plus: int
    bytes: int
    lines: int
    free: bool
    address: int | None = None


class Allowed(NamedTuple):
    """Where accesses of this kind may be, and how many bytes the first thread moves at least."""

    kind: str
    first: int
    end: int
    bytes: int = 0


def misplaced(
    permits: Sequence[Allowed], touches: Sequence[Own], anywhere: Sequence[Allowed], lane: int
) -> tuple[int, str] | None:
    """Where and how accesses between two events differ from the allowed ones; `anywhere`: all that
    is allowed between some events."""
    for of in touches:
        start = of.address
        where = [x for x in (anywhere if of.free else permits) if x.kind == of.kind]
        if start and not any(x.first <= start and start + of.lines <= x.end for x in where):
            told = " or ".join({f"{_shown(x.first)} to {_shown(x.end)}": 0 for x in where})
            return of.at, f"expected {of.kind} in {told or 'nothing'}, the PTX has {_shown(start)}"
    for kind in {x.kind for x in permits} if not lane else ():
        least = sum(x.bytes for x in permits if x.kind == kind)
        has = sum(of.bytes for of in touches if of.kind == kind)
        if has < least:
            at = max((of.at for of in touches), default=0)
            return at, f"expected {kind} of {least} bytes here, the PTX has {has}"
    return None


def _shown(address: int) -> str:
    argument, byte = divmod(address, 1 << POINTER)
    return f"byte {byte} of argument {argument}" if argument else f"SMEM at {byte - BASE}"


def own_accesses(text: str) -> Iterator[Own]:
    """Lanes of a matrix give the address of a line each."""
    for found in OWN.finditer(text):
        guard, op, space, form, address = found.groups()
        kind = f"{'ld' if op == 'ld' else 'st'}.{space or 'shared'}"
        width: Any = WIDTH.match(form)
        size = 4 * int(width[1] or 1)
        size = size if not space else size * int(width[2]) // (16 if width[3] else 32)
        where = split_address(address)
        yield Own(
            found.start(), kind, guard or "", *where, size, size if space else 16, ".nc" in form
        )


def kinds_of(op: Op, made: Makers) -> dict[str, Access]:
    """Return the accesses of threads in PTX, in order. Only that of `ld.global.nc` is chosen by
    LLVM.
    """
    spaces, found = {"smem": "shared", "gmem": "global"}, dict[str, Access]()
    for effect in op.effects(made):
        if isinstance(effect, Access) and not effect.asynchronous and effect.cta is None:
            letters = "ld" if effect.kind in ("read", "take") else "st"
            found[f"{letters}.{spaces.get(effect.space, '')}"] = effect
    return {kind: found[kind] for kind in KINDS if kind in found}


@once
def accessing(kernel: Kernel) -> dict[int, dict[str, Access]]:
    """Return the accesses of each op that has some, by its id."""
    accesses = ((id(op), kinds_of(op, kernel.definers)) for op in kernel.ops)
    return {op: found for op, found in accesses if found}


def allowed(kernel: Kernel, op: Op, held: dict[Any, Any]) -> Iterator[Allowed]:
    accesses = accessing(kernel).get(id(op), {})
    for kind, access in accesses.items():
        if access.space == "gmem":
            yield Allowed(kind, *_of_tensor(kernel, access, held))
        else:
            yield Allowed(kind, *_of_item(kernel, access, held), _moved(op, access, len(accesses)))


def _of_item(kernel: Kernel, access: Access, held: dict[Any, Any]) -> Bounds:
    assert access.of is not None
    made: Any = kernel.definers[access.of]
    kind = access.of.type
    size, num = (kind.bytes, kind.num) if isinstance(kind, Shared) else (ADDRESS_BYTES, 1)
    item = held.get(access.item)
    start = BASE + made.offset + (0 if item is None else item * size)
    return start, start + size * (num if item is None else 1)


def _moved(op: Op, access: Access, spaces: int) -> int:
    """Threads that copy tiles move vectors of up to 16 bytes."""
    counted = access.kind in ("read", "write") and not hasattr(op, "fn")  # Reductions move fewer.
    size = sum(span.size for warp in access.spans for span in warp if counted)
    if spaces > 1:
        return size // 128 // 16 * 16
    values = results_of(op) if access.kind == "read" else operands(op)
    kinds = [x.type for x in values if isinstance(x.type, Fragment) and x.type.columns > 1]
    held = sum(x.rows * x.columns * x.dtype.bits for x in kinds) // 8
    return held // 128 if THREADS[type(op)] == "warpgroup" and size >= held else 0


def _of_tensor(kernel: Kernel, access: Access, held: dict[Any, Any]) -> Bounds:
    """Elements outside of the tensor are never touched."""
    assert access.of is not None
    tensor, base = access.of.as_tensor, held["tensor", access.of.name]
    sizes: list[Any] = [held.get(("size", d)) if isinstance(d, str) else d for d in tensor.dims]
    if None in sizes or getattr(kernel.definers.get(access.of), "fragments", False):
        return base, base + (1 << POINTER) - 1
    elements = access.elements or Elements(())
    at: list[Any] = [held.get(x) for x in elements.at]
    each = [(0, n - 1) for n in sizes]
    if at and None not in at:
        each = [x if isinstance(x, tuple) else (x, x) for x in at]
    if elements.extents:
        each = [(x, y + n - 1) for (x, y), n in zip(each, elements.extents, strict=True)]
    within = [(max(x, 0), min(y, n - 1)) for (x, y), n in zip(each, sizes, strict=True)]
    if any(x > y for x, y in within):
        return base, base
    apart = (*(held["stride", access.of.name, d] for d in tensor.dims[:-1]), 1)
    bits, more = tensor.dtype.bits, 0
    if tensor.packed:
        within[-2:] = [(x & -PACKED_LINES, y & -PACKED_LINES) for x, y in within[-2:]]
        apart, more = (*apart[:-1], PACKED_LINES), PACKED_LINES * PACKED_LINES - 1
    first, last = (sum(map(int.__mul__, at, apart)) for at in zip(*within, strict=True))
    last += more
    return base + first * bits // 8, base + -(-(last + 1) * bits // 8)


def spread(fn: str, args: list[Any]) -> Bounds | None:
    """The bounds of the elements of a fragment that is computed of numbers and bounds."""
    if fn not in MONOTONE:
        return None
    found = [FOLDED[fn](*x) for x in product(*(x if isinstance(x, tuple) else (x,) for x in args))]
    return min(found), max(found)
