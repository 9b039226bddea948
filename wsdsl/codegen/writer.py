"""Writes the text of one LLVM function: names, blocks, calls, and the declarations they need."""

from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce

Operand = tuple[str, str]
"""(LLVM type, text)."""
LETTERS = {"i1": "b", "i16": "h", "i32": "r", "i64": "l", "float": "f"} | dict.fromkeys(
    ("ptr", "ptr addrspace(1)"), "l"
)
"""LLVM's constraint for the register of a type."""


@dataclass
class Writer:
    """Values and labels are numbered in the order of their making: the same calls give the same
    text. LLVM takes a third longer to read names.
    """

    lines: list[str] = field(default_factory=list[str])
    declarations: dict[str, str] = field(default_factory=dict[str, str])
    structs: dict[str, str] = field(default_factory=dict[str, str])
    """Name by body."""
    declared: list[str] = field(default_factory=list[str])
    """PTX register declarations, emitted first."""
    block: str = "entry"
    count: int = 0
    """Of labels."""
    values: int = 0

    def name(self, hint: str) -> str:
        """Of a label."""
        self.count += 1
        return f"{hint}.{self.count}"

    def marked(self) -> tuple[int, int, int, int, str]:
        """Where the text is, for `back_to`."""
        return len(self.lines), len(self.declared), self.count, self.values, self.block

    def back_to(self, mark: tuple[int, int, int, int, str]) -> None:
        """Nothing was written since."""
        lines, declared, self.count, self.values, self.block = mark
        del self.lines[lines:], self.declared[declared:]

    def registers(self, count: int) -> tuple[str, ...]:
        """32-bit registers that inline PTX alone knows."""
        name = f"%acc{len(self.declared)}_"
        self.declared.append(f".reg .b32 {name}<{count}>;")
        return tuple(f"{name}{i}" for i in range(count))

    def line(self, text: str) -> None:
        self.lines.append(f"  {text}")

    def value(self, text: str) -> str:
        result = f"%{self.values}"
        self.values += 1
        self.lines.append(f"  {result} = {text}")
        return result

    def begin(self, label: str) -> None:
        self.lines.append(f"{label}:")
        self.block = label

    def jump(self, label: str) -> None:
        self.line(f"br label %{label}")

    def branch(self, cond: str, then: str, orelse: str, *, likely: bool = False) -> None:
        """`likely` says that it mostly goes to `then`, which LLVM then places next."""
        weights = ", !prof !0" if likely else ""
        self.line(f"br i1 {cond}, label %{then}, label %{orelse}{weights}")

    @contextmanager
    def where(self, cond: str) -> Generator[None]:
        """A block for the threads for which `cond` holds."""
        inside, after = self.name("inside"), self.name("after")
        self.branch(cond, inside, after)
        self.begin(inside)
        yield
        self.jump(after)
        self.begin(after)

    def call(self, name: str, result: str, args: Sequence[Operand] = ()) -> str:
        """Call an intrinsic, declaring it. The text of the result; "" for void."""
        if name not in self.declarations:
            types = ", ".join([t for t, _ in args])
            self.declarations[name] = f"declare {result} @{name}({types})"
        text = f"call {result} @{name}({', '.join([f'{t} {x}' for t, x in args])})"
        if result == "void":
            self.line(text)
            return ""
        return self.value(text)

    def asm(
        self,
        ptx: str,
        args: Sequence[Operand] = (),
        results: Sequence[str] = (),
        *,
        tied: Sequence[int] = (),
        early: bool = False,
        pure: bool = False,
    ) -> tuple[str, ...]:
        """Inline PTX: operands `$0`, … are a result of each type of `results`, then `args`, which
        begin with the registers of the results `tied`. `early` results are written before the last
        argument is read.

        All but pure text is volatile, and orders memory accesses around it. Every call is
        convergent: LLVM must not copy it to, or move it under, other conditions.
        """
        values = ["=&" + LETTERS[t] if early else "=" + LETTERS[t] for t in results]
        values += [str(i) for i in tied] + [LETTERS[t] for t, _ in args[len(tied) :]]
        constraints = ",".join(values if pure else [*values, "~{memory}"])
        # By name: LLVM spends long on reading, at each `extractvalue`, what an accumulator is.
        result = results[0] if results else "void"
        if len(results) > 1:
            body = f"{{ {', '.join(results)} }}"
            result = self.structs.setdefault(body, f"%results.{len(self.structs)}")
        effect, shown = "" if pure else "sideeffect ", ptx.replace("\n", "\\0A")
        given = ", ".join(f"{t} {x}" for t, x in args)
        # `llvm_module.py` defines attribute groups #1 and #2.
        text = f'call {result} asm {effect}"{shown}", "{constraints}"({given}) #{2 if pure else 1}'
        if not results:
            self.line(text)
            return ()
        value = self.value(text)
        if len(results) == 1:
            return (value,)
        first, self.values = self.values, self.values + len(results)
        names = tuple([f"%{first + i}" for i in range(len(results))])
        self.lines += [f"  {x} = extractvalue {result} {value}, {i}" for i, x in enumerate(names)]
        return names

    def asm_value(
        self,
        ptx: str,
        args: Sequence[Operand],
        result: str = "i32",
        *,
        tied: Sequence[int] = (),
        early: bool = False,
        pure: bool = False,
    ) -> str:
        """An `asm` with one result."""
        return self.asm(ptx, args, (result,), tied=tied, early=early, pure=pure)[0]

    def binary(self, op: str, type: str, a: str, b: str | int) -> str:
        return self.value(f"{op} {type} {a}, {b}")

    def combine(self, op: str, conditions: Iterable[str | None]) -> str | None:
        """The conjunction ("and") or disjunction ("or") of the conditions that are given."""
        given = [x for x in conditions if x is not None]
        return reduce(lambda a, b: self.binary(op, "i1", a, b), given) if given else None

    def add(self, a: str, b: str | int) -> str:
        """i32 sum; adding 0 or two numbers costs nothing."""
        if str(b) == "0":
            return a
        if a == "0":
            return str(b)
        if a.isdigit() and str(b).isdigit():
            return str(int(a) + int(b))
        return self.binary("add", "i32", a, b)

    def multiply(self, a: str, b: int) -> str:
        """i32 product by a number."""
        if b == 1 or a == "0":
            return a
        if a.isdigit():
            return str(int(a) * b)
        return self.binary("mul", "i32", a, b)

    def compare(self, relation: str, a: str, b: str | int, type: str = "i32") -> str:
        return self.value(f"icmp {relation} {type} {a}, {b}")

    def select(self, cond: str, type: str, a: str, b: str) -> str:
        return self.value(f"select i1 {cond}, {type} {a}, {type} {b}")

    def phis(self, types: Sequence[str]) -> list[tuple[int, str]]:
        """Reserve phi nodes here; `fill` completes each once its sources are known."""
        return [(len(self.lines), self.value("")) for _ in types]

    def fill(self, phi: tuple[int, str], type: str, sources: Sequence[tuple[str, str]]) -> None:
        """`sources`: (value, block it comes from)."""
        at, name = phi
        shown = ", ".join(f"[ {value}, %{block} ]" for value, block in sources)
        self.lines[at] = f"  {name} = phi {type} {shown}"

    @contextmanager
    def counted_loop(self, name: str, start: str, stop: str | int, step: int) -> Generator[str]:
        """A loop that ptxas does not unroll, since the loads of several iterations in flight would
        need as many times the registers; yields the index. A number as `stop` exceeds `start`.
        """
        body, end = self.name(f"{name}_turn"), self.name(f"{name}_end")
        before = self.block
        if isinstance(stop, int):
            self.jump(body)
        else:
            self.branch(self.compare("slt", start, stop), body, end)
        self.begin(body)
        phi = self.phis(["i32"])[0]
        self.asm(".pragma \\22nounroll\\22;")
        yield phi[1]
        following = self.value(f"add nuw nsw i32 {phi[1]}, {step}")
        self.fill(phi, "i32", [(start, before), (following, self.block)])
        self.branch(self.compare("slt", following, stop), body, end)
        self.begin(end)
