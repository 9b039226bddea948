"""Run PTX of copies thread by thread: addresses, predicates and integer arithmetic.

Synchronization is skipped, except for `bar`.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

from wsdsl.simulator.reference.arithmetic import larger, smaller

PAIRS: Mapping[str, Any] = {"f16x2": np.float16, "bf16x2": ml_dtypes.bfloat16}
FLOATS: Mapping[str, Any] = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
SHARED_BASE = 0x400
MEETS = ("bar", "barrier")
PASSED_OVER = ("fence", "griddepcontrol", "setmaxnreg")
RELATIONS: Mapping[str, Callable[[int, int], bool]] = {
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le,
    "gt": operator.gt, "ge": operator.ge,
}  # fmt: skip
ARITHMETIC: Mapping[str, Callable[[int, int], int]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "and": operator.and_,
    "or": operator.or_, "xor": operator.xor, "max": max, "min": min,
}  # fmt: skip


def signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


@dataclass
class Memory:
    """GMEM from `base` on, and SMEM; an access outside of them, or misaligned, is an error."""

    base: int
    held: bytearray
    shared: bytearray
    written: dict[int, int] = field(default_factory=dict[int, int])
    """Bytes by their place in `held`; a second write of one is an error, too."""
    added: dict[int, int] = field(default_factory=dict[int, int])
    """The same of what is added to memory."""
    filled: set[int] = field(default_factory=set[int])
    prefetched: list[int] = field(default_factory=list[int])
    in_shared: dict[int, list[tuple[int, int]]] = field(default_factory=dict[int, Any])
    """By thread, address and size of each of its accesses to SMEM."""

    def place(self, space: str, address: int, size: int) -> int:
        assert address % size == 0, f"{address:#x} is not a multiple of {size}"
        array = self.held if space == "global" else self.shared
        at = address - (self.base if space == "global" else SHARED_BASE)
        assert 0 <= at <= len(array) - size, f"{space}: {size} bytes at {at} of {len(array)}"
        return at

    def load(self, space: str, address: int, size: int) -> bytes:
        at = self.place(space, address, size)
        return bytes((self.held if space == "global" else self.shared)[at : at + size])

    def store(self, space: str, address: int, bytes: bytes, *, adds: bool = False) -> None:
        at = self.place(space, address, len(bytes))
        for i, byte in enumerate(bytes, at):
            if space == "global":
                assert i not in self.written and i not in self.added, f"byte {i} is written twice"
                (self.added if adds else self.written)[i] = byte
            else:
                self.shared[i] = byte
                self.filled.add(i)


class Program:
    def __init__(self, ptx: str) -> None:
        self.params = re.findall(r"\.param \.\w+(?: \.ptr[^,\n]*)? (\w+)", ptx)
        self.labels: dict[str, int] = {}
        self.lines: list[tuple[str, str, list[str]]] = []
        for line in ptx[ptx.index("{\n") + 1 : ptx.rindex("}")].splitlines():
            text = line.split("//")[0].strip()
            if text.endswith(":"):
                self.labels[text[:-1]] = len(self.lines)
                continue
            for statement in text.split(";"):
                found = re.match(r"(?:@(!?%\w+)\s+)?(\w[\w.:]*)\s*(.*)$", statement.strip())
                if found:
                    operands = re.findall(r"\{[^}]*\}|\[[^\]]*\]|[^,\s][^,]*", found[3])
                    self.lines.append((found[1] or "", found[2], [x.strip() for x in operands]))

    def run(self, thread: int, arguments: Sequence[int], memory: Memory) -> None:
        """A shuffled value is the same in all threads of the warp."""
        running = self._thread(thread, arguments, memory).run()
        offered = next(running, None)
        while offered:
            try:
                offered = running.send(offered[0])
            except StopIteration:
                return

    def run_warps(
        self, arguments: Sequence[int], memory: Memory, warps: int = 1
    ) -> list[dict[str, int]]:
        """The first ones' threads, until they end or multiply: the registers of each."""
        threads = [self._thread(thread, arguments, memory) for thread in range(32 * warps)]
        running = [thread.run() for thread in threads]
        offered = [next(each) for each in running]
        while offered:
            held = [offered[i // 32 * 32 + lane % 32][0] for i, (_, lane) in enumerate(offered)]
            offered.clear()
            for each, value in zip(running, held, strict=True):
                with suppress(StopIteration):
                    offered.append(each.send(value))
        return [thread.registers for thread in threads]

    def _thread(self, thread: int, arguments: Sequence[int], memory: Memory) -> _Thread:
        given = dict(zip(self.params, arguments, strict=True))
        return _Thread(self, {"%tid.x": thread, "smem": SHARED_BASE}, given, memory)


@dataclass
class _Thread:
    program: Program
    registers: dict[str, int]
    given: Mapping[str, int]
    memory: Memory

    def run(self) -> Generator[tuple[int, int], int]:
        """Gives what a shuffle offers, and the lane that it asks; takes what that one offered."""
        at = 0
        while True:
            guard, name, operands = self.program.lines[at]
            at += 1
            if guard and bool(self.registers[guard.lstrip("!")]) == guard.startswith("!"):
                continue
            kind, *modifiers = name.split(".")
            if kind in ("ret", "wgmma"):
                return
            if kind == "bra":
                at = self.program.labels[operands[0]]
            elif kind == "shfl":
                lane = self.value(operands[2])
                lane = self.registers["%tid.x"] ^ lane if "bfly" in modifiers else lane
                lane = max(0, self.registers["%tid.x"] - lane) if "up" in modifiers else lane
                self.registers[operands[0]] = yield self.value(operands[1]), lane
            elif kind in MEETS:
                yield 0, 0
            elif kind not in PASSED_OVER:
                self.step(kind, modifiers, operands)

    def value(self, text: str) -> int:
        if text.startswith("0f"):
            return int(text[2:], 16)
        return self.registers[text] if text in self.registers else int(text.rstrip("U"), 0)

    def address(self, text: str) -> int:
        base, offset = re.fullmatch(r"\[(.*?)([+-]\d+)?\]", text).groups()  # pyright: ignore[reportOptionalMemberAccess]
        return (self.value(base) + int(offset or 0)) & ((1 << 64) - 1)

    def step(self, kind: str, modifiers: list[str], operands: list[str]) -> None:
        to, *rest = operands
        match kind:
            case "ld" if modifiers[0] == "param":
                self.registers[to] = self.given[rest[0][1:-1]]
            case "ld" | "st" | "red":
                self.access(kind, modifiers, operands)
            case "prefetch":
                self.memory.prefetched.append(self.address(to) - self.memory.base)
            case "cvt" if modifiers[-2] in FLOATS:
                self.registers[to] = self.to_float(modifiers[-1], modifiers[-2], rest[0])
            case "cvt":
                bits, source = int(modifiers[-2][1:]), modifiers[-1]
                value = self.value(rest[0]) & ((1 << int(source[1:])) - 1)
                value = signed(value, int(source[1:])) if source[0] == "s" else value
                self.registers[to] = value & ((1 << bits) - 1)
            case "mov" if to.startswith("{"):
                for i, name in enumerate(x.strip() for x in to[1:-1].split(",")):
                    self.registers[name] = self.value(rest[0]) >> 16 * i & 0xFFFF
            case "mov" if rest[0].startswith("{"):
                # No result depends on values that LLVM leaves undefined.
                names = (x.strip() for x in rest[0][1:-1].split(","))
                low, high = (self.registers.get(name, 0xDEAD) & 0xFFFF for name in names)
                self.registers[to] = low | high << 16
            case _:
                self.registers[to] = self.computed(kind, modifiers, rest)

    def to_float(self, source: str, target: str, text: str) -> int:
        """Of an integer, or of an f32."""
        if source == "f32":
            held = np.array([self.value(text)], np.uint32).view(np.float32)
        else:
            value, bits = self.value(text), int(source[1:])
            held = np.array([signed(value, bits) if source[0] == "s" else value % (1 << bits)])
        made = held.astype(FLOATS[target])
        return int(made.view(np.uint32 if target == "f32" else np.uint16)[0])

    def access(self, kind: str, modifiers: list[str], operands: list[str]) -> None:
        width = int(re.sub(r"\D", "", modifiers[-1])) // 8
        space = "shared" if modifiers[0].startswith("shared") else "global"
        where, held = operands if kind != "ld" else operands[::-1]
        names, address = [x.strip() for x in held.strip("{}").split(",")], self.address(where)
        if space == "shared":
            address &= (1 << 32) - 1
            accesses = self.memory.in_shared.setdefault(self.registers["%tid.x"], [])
            accesses.append((address, width * len(names)))
        if kind == "ld":
            bytes = self.memory.load(space, address, width * len(names))
            for i, name in enumerate(names):
                part = bytes[i * width : (i + 1) * width]
                self.registers[name] = int.from_bytes(part, "little")
            return
        values = (self.value(name) & ((1 << 8 * width) - 1) for name in names)
        stored = b"".join(v.to_bytes(width, "little") for v in values)
        self.memory.store(space, address, stored, adds=kind == "red")

    def computed(self, kind: str, modifiers: list[str], texts: list[str]) -> int:
        type, values = modifiers[-1], [self.value(x) for x in texts]
        if type == "pred":
            if kind in ("mov", "not"):
                return (values[0] ^ (kind == "not")) & 1
            return ARITHMETIC[kind](*values) & 1
        bits = 32 if type.endswith("x2") else int(type[1:])
        if kind == "selp":
            return values[0] if values[2] else values[1]
        whole = (1 << bits) - 1
        read = [signed(v, bits) if type[0] == "s" else v & whole for v in values]
        match kind:
            case "setp":
                return int(RELATIONS[modifiers[0]](*read))
            case "mov":
                return read[0] & whole
            case "mad":
                return (read[0] * read[1] + values[2]) & whole
            case "mul" if "wide" in modifiers:
                return read[0] * read[1] & ((1 << 2 * bits) - 1)
            case "mul" if "hi" in modifiers:
                return read[0] * read[1] >> bits & whole
            case "prmt":
                both = (values[0] | values[1] << 32).to_bytes(8, "little")
                picked = [both[values[2] >> 4 * i & 7] for i in range(4)]
                return int.from_bytes(bytes(picked), "little")
            case "lop3":
                a, b, c, table = values
                return sum(
                    (table >> (a >> i & 1) * 4 + (b >> i & 1) * 2 + (c >> i & 1) & 1) << i
                    for i in range(32)
                )
            case "add" | "sub" | "mul" if type in PAIRS:
                x, y = (np.array([v], np.uint32).view(PAIRS[type]) for v in values)
                return int(ARITHMETIC[kind](x, y).view(np.uint32)[0])
            case "add" | "max" | "min" if type == "f32":
                a, b = (np.array([v], np.uint32).view(np.float32) for v in values)
                made = dict(add=np.add, max=larger, min=smaller)[kind](a, b)
                return int(np.asarray(made, np.float32).view(np.uint32)[0])
            case "max" if type == "u16x2":
                halves = [[v & 0xFFFF, v >> 16 & 0xFFFF] for v in values]
                return max(halves[0][0], halves[1][0]) | max(halves[0][1], halves[1][1]) << 16
            case "not" | "neg":
                return (~read[0] if kind == "not" else -read[0]) & whole
            case "bfe":
                field = read[0] >> values[1] & ((1 << values[2]) - 1)
                return (signed(field, values[2]) if type[0] == "s" else field) & whole
            case "popc":
                return (values[0] & 0xFFFFFFFF).bit_count()
            case "shl":
                return read[0] << min(values[1], bits) & whole
            case "shr":
                return read[0] >> min(values[1], bits) & whole
            case _:
                return ARITHMETIC[kind](read[0], read[1]) & whole
