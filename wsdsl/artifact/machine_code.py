"""Check that sm_90a machine code does not overwrite registers that an MMA in flight still reads.

An MMA (HGMMA, IGMMA, QGMMA) with its left operand in registers reads them until a wait
(WARPGROUP.DEPBAR) ensures that it is complete. PTX does not use them after the MMA, so an assembler
may take them for free; assemblers of CUDA before 13.3 do. Accumulators are then wrong depending on
the timing of threads, so a correct run proves nothing; yet most kernels are correct with any
assembler. This follows the instructions along all branches, for any version of ptxas or the
driver's assembler.

Instructions have 16 bytes. Fields read here: the lowest 12 bits are the opcode, whose upper three
say where an operand is; bits 12 to 15 are the predicate, 16 to 23 the destination register, 24 to
31 an MMA's left operand.
"""

import re
import struct
from collections.abc import Iterator, Mapping
from typing import NamedTuple

FIXED_IN = "CUDA 13.3 and newer keep these registers"
OF_REGISTERS = re.compile(rb"wgmma\.mma_async[^;]*\}\s*,\s*\{")
"""In PTX: a product whose left operand is in registers."""
WORD = 16
KIND = 0x1FF
"""These bits number an instruction; the bits above encode the form of its operands."""
PRODUCTS = {0x1F0, 0x1F1, 0x1F3}
"""HGMMA, IGMMA, QGMMA: of 16 bits and tf32, of integers, of fp8."""
LEFT_IN_REGISTERS = 0xC00
WARPGROUP, BRANCH, EXIT = 0x1C5, 0x147, 0x14D
ALWAYS = 7
OPERAND_REGISTERS = 4
MOST_GROUPS = 16
"""In flight; the tensor cores take fewer."""
UNIFORM = range(0x80, 0xC0)
"""These write uniform registers."""
WRITE_NONE = {
    0x00B, 0x00C, 0x01C, 0x02D, 0x02E, 0x02F, 0x034, 0x044, 0x0CA, 0x118, 0x11A, 0x11D, 0x141,
    0x145, 0x146, 0x147, 0x148, 0x14D, 0x15D, 0x185, 0x186, 0x187, 0x188, 0x18E, 0x18F, 0x192,
    0x1AB, 0x1B2, 0x1B4, 0x1B5, 0x1B7, 0x1B8, 0x1B9, 0x1BA, 0x1BD, 0x1C3, 0x1C5, 0x1C6, 0x1C7,
    0x1C8, *PRODUCTS,
}  # fmt: skip
"""FSETP, ISETP, PLOP3, PREEXIT, ACQBULK, ELECT, HSETP2, STSM, R2UR, NOP, DEPBAR, BAR, BSYNC, BSSY,
YIELD, BRA, WARPSYNC, EXIT, NANOSLEEP, stores, REDG, CCTL, MEMBAR, ERRBAR, SYNCS.EXCH, copies by
TMA, their fences and L2 prefetches, STAS, S2UR, instructions of warpgroups and clusters, MMAs
(whose accumulators the assembler does track). Any unknown instruction is assumed to write the
register in its destination bits."""
TRY_WAIT = 0x5A7
"""SYNCS in the form that gives a predicate."""
PAIRS = {0x005, 0x025, 0x028, 0x029, 0x02B}
"""CS2R, IMAD.WIDE, and f64."""
LOADS = {0x180, 0x181, 0x182, 0x183, 0x184, 0x1A8, 0x1A9, 0x18A, 0x18B, 0x18C, 0x18D}
"""Loads, which encode the number of registers that they write."""


class Word(NamedTuple):
    low: int
    high: int

    @property
    def form(self) -> int:
        return self.low & 0xFFF

    @property
    def kind(self) -> int:
        return self.low & KIND

    @property
    def is_unconditional(self) -> bool:
        return self.low >> 12 & 15 == ALWAYS and self.high >> 23 & 15 == ALWAYS

    @property
    def target(self) -> int:
        """The target of a branch, in instructions from the next one."""
        number = (self.high & 0x3FFFF) << 38 | self.low >> 34 << 8 | self.low >> 16 & 0xFF
        return (number - (1 << 56 if number >> 55 else 0)) * 4 // WORD

    @property
    def operand(self) -> frozenset[int]:
        """Registers that a product reads; of other words none."""
        if self.kind not in PRODUCTS or self.form & ~KIND != LEFT_IN_REGISTERS:
            return frozenset()
        first = self.low >> 24 & 0xFF
        return frozenset(range(first, first + OPERAND_REGISTERS))

    @property
    def ends_group(self) -> bool:
        """Of a product."""
        return self.high >> 20 & 7 != 7

    @property
    def pending(self) -> int | None:
        """Groups that a wait leaves in flight; None of another word."""
        is_wait = self.kind == WARPGROUP and self.high >> 16 & 0xF
        return self.high >> 8 & 0xF if is_wait else None

    @property
    def written(self) -> range:
        kind = self.kind
        if kind in WRITE_NONE or kind in UNIFORM or self.form == TRY_WAIT:
            return range(0)
        size = max(1, 1 << max(0, (self.high >> 9 & 7) - 4)) if kind in LOADS else 1
        first = self.low >> 16 & 0xFF
        return range(first, first + (2 if kind in PAIRS else size))


def overwritten(cubin: bytes) -> dict[str, list[int]]:
    """By function: where, in bytes from its start, a register is written that a product in flight
    reads. Empty where all is right.
    """
    found = {name: _overwritten(words) for name, words in functions(cubin).items()}
    return {name: places for name, places in found.items() if places}


def functions(cubin: bytes) -> Mapping[str, list[Word]]:
    """Of an ELF file the sections of code."""
    table, size, count, names_at = (
        struct.unpack_from("<Q", cubin, 40)[0],
        *struct.unpack_from("<HHH", cubin, 58),
    )
    headers = [
        struct.unpack_from("<IIQQQQ", cubin, table + i * size) for i in range(count)
    ]  # name, type, flags, address, offset, bytes
    names = headers[names_at][4]
    made: dict[str, list[Word]] = {}
    for header in headers:
        start = names + header[0]
        name = cubin[start : cubin.index(b"\0", start)].decode()
        if name.startswith(".text."):
            text = cubin[header[4] : header[4] + header[5]]
            made[name.removeprefix(".text.")] = [Word(*w) for w in struct.iter_unpack("<QQ", text)]
    return made


Groups = tuple[frozenset[int], ...]
"""Registers that products read, by group in flight; the last one is still open."""


def _overwritten(words: list[Word]) -> list[int]:
    if not any(word.operand for word in words):
        return []
    found: set[int] = set()
    seen: set[tuple[int, Groups]] = set()
    ahead: list[tuple[int, Groups]] = [(0, (frozenset(),))]
    while ahead:
        at, groups = ahead.pop()
        if at >= len(words) or (at, groups) in seen:
            continue
        seen.add((at, groups))
        word = words[at]
        held = frozenset[int]().union(*groups)
        if held and not held.isdisjoint(word.written):
            found.add(at * WORD)
        groups = _after(word, groups)
        ahead += ((to, groups) for to in _next(word, at))
    return sorted(found)


def _after(word: Word, groups: Groups) -> Groups:
    if word.kind in PRODUCTS:
        *closed, last = groups
        ended = (frozenset[int](),) if word.ends_group else ()
        return (*closed, last | word.operand, *ended)[-MOST_GROUPS:]
    pending = word.pending
    if pending is None:
        return groups
    *closed, last = groups
    return (*closed[len(closed) - pending :], last) if pending < len(closed) else groups


def _next(word: Word, at: int) -> Iterator[int]:
    if word.kind == BRANCH:
        yield at + 1 + word.target
    if word.kind not in (BRANCH, EXIT) or not word.is_unconditional:
        yield at + 1
