"""Emit native functions as LLVM IR. All values are i64 words; memory is read by `word`."""

from collections.abc import Generator
from contextlib import contextmanager
from struct import unpack_from
from typing import Any

from llvmlite import ir

from wsdsl.runtime.native.native_code import executable

WORD, I32, F64, F32 = ir.IntType(64), ir.IntType(32), ir.DoubleType(), ir.FloatType()
CONFIG_STREAM = 32
"""Byte of a CUlaunchConfig where its stream is."""


EXECUTABLE, RELOCATIONS, SYMBOLS, SYMBOL_BYTES, FUNCTION = 4, (4, 9), 2, 24, 2
"""ELF: SHF_EXECINSTR; SHT_RELA and SHT_REL; SHT_SYMTAB and its entries; STT_FUNC."""


class Builder:
    """One function of words under construction; `api` is the address of a table of functions.
    `miss_if` branches to the block `miss`, which a subclass fills.
    """

    api: Any

    def __init__(self, name: str, arguments: int, module: ir.Module | None = None) -> None:
        self.module = module or ir.Module(f"wsdsl_{name}")
        self.function = ir.Function(self.module, ir.FunctionType(WORD, [WORD] * arguments), name)
        self.b = ir.IRBuilder(self.function.append_basic_block("entry"))
        self.miss = self.function.append_basic_block("miss")

    # Words ----------------------------------------------------------------------------------------

    def constant(self, value: int) -> ir.Constant:
        return ir.Constant(WORD, value)

    def array(self, words: int, align: int = 8) -> Any:
        """Address of a new array on the stack."""
        found = self.b.alloca(WORD, words)
        found.align = align  # pyright: ignore[reportAttributeAccessIssue]
        return self.b.ptrtoint(found, WORD)

    def variable(self, value: int) -> Any:
        found = self.b.alloca(WORD)
        self.b.store(self.constant(value), found)
        return found

    def plus(self, a: Any, b: Any) -> Any:
        return self.b.add(a, b if isinstance(b, ir.Value) else self.constant(b))

    def at(self, base: Any, index: Any) -> Any:
        """Address of a word."""
        if not isinstance(index, ir.Value):
            return self.plus(base, 8 * index)
        return self.b.add(base, self.b.shl(index, self.constant(3)))

    def load(self, address: Any, kind: ir.Type = WORD) -> Any:
        return self.b.load(self.b.inttoptr(address, kind.as_pointer()))

    def store(self, value: Any, address: Any) -> None:
        self.b.store(value, self.b.inttoptr(address, value.type.as_pointer()))

    def word(self, base: Any, index: Any) -> Any:
        return self.load(self.at(base, index))

    def call(
        self, which: int, *arguments: Any, result: ir.Type = WORD, fixed: int | None = None
    ) -> Any:
        """Call a function of the table; after `fixed` arguments it is variadic."""
        kinds = [a.type for a in arguments]
        kind = ir.FunctionType(result, kinds[:fixed], var_arg=fixed is not None)
        return self.b.call(
            self.b.inttoptr(self.word(self.api, which), kind.as_pointer()), arguments
        )

    # Control --------------------------------------------------------------------------------------

    @contextmanager
    def loop(self, number: Any) -> Generator[Any]:
        """Run the block for 0 to `number` - 1."""
        with self.b.goto_entry_block():
            counter = self.b.alloca(WORD)
        self.b.store(self.constant(0), counter)
        head, body, end = (self.function.append_basic_block(n) for n in ("head", "body", "end"))
        self.b.branch(head)
        self.b.position_at_end(head)
        index = self.b.load(counter)
        self.b.cbranch(self.b.icmp_signed("<", index, number), body, end)
        self.b.position_at_end(body)
        yield index
        self.b.store(self.plus(index, 1), counter)
        self.b.branch(head)
        self.b.position_at_end(end)

    def miss_if(self, condition: Any) -> None:
        go_on = self.function.append_basic_block("hit")
        self.b.cbranch(condition, self.miss, go_on)
        self.b.position_at_end(go_on)

    def is_equal(self, a: Any, b: Any) -> Any:
        b = b if isinstance(b, ir.Value) else ir.Constant(a.type, b)
        return self.b.icmp_signed("==", a, b)

    def differs(self, a: Any, b: Any) -> Any:
        return self.b.not_(self.is_equal(a, b))

    def compile(self) -> int:
        """Address of the function, which lives as long as the process, and its builder with it."""
        _compiled.append(self)
        return executable(self.machine_code())

    def machine_code(self) -> bytes:
        """The function's instructions, which need no other section."""
        return instructions(self.elf())

    def elf(self) -> bytes:
        """The object file of the module."""
        import llvmlite.binding as llvm

        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        module = llvm.parse_assembly(str(self.module))
        machine = llvm.Target.from_default_triple().create_target_machine(opt=2, reloc="pic")
        return machine.emit_object(module)


_compiled: list[Builder] = []


def _sections(elf: bytes) -> list[Any]:
    at, (size, number) = unpack_from("<Q", elf, 0x28)[0], unpack_from("<HH", elf, 0x3A)
    return [unpack_from("<IIQQQQII", elf, at + size * i) for i in range(number)]


def functions(elf: bytes) -> list[int]:
    """Offsets of the functions in the executable section of an ELF object, in order."""
    tables = ((s[4], s[5]) for s in _sections(elf) if s[1] == SYMBOLS)
    starts = (start for at, size in tables for start in range(at, at + size, SYMBOL_BYTES))
    symbols = (unpack_from("<IBBHQQ", elf, start) for start in starts)
    return sorted(symbol[4] for symbol in symbols if symbol[1] & 15 == FUNCTION)


def instructions(elf: bytes) -> bytes:
    """The executable section of an ELF object that has no relocations in it."""
    sections = _sections(elf)
    (code,) = [i for i, s in enumerate(sections) if s[2] & EXECUTABLE and s[5]]
    assert not any(s[1] in RELOCATIONS and s[7] == code for s in sections), "not self-contained"
    return elf[sections[code][4] :][: sections[code][5]]
