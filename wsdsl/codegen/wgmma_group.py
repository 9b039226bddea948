"""A group of wgmmas whose width the launch sets, and its commit, as one inline PTX statement.

The branches by width enclose the whole group: with a branch around each wgmma, ptxas would commit
each by itself. So wgmmas are delayed until the commit, and LLVM sees no branch.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

from wsdsl.codegen.value_registers import Registers
from wsdsl.codegen.wgmma_ptx import Product
from wsdsl.codegen.writer import Operand, Writer
from wsdsl.ir.op import Value


@dataclass
class Group:
    """`narrower` (i32): by how many columns, one of `by`. Sums that are values of LLVM are `sums`,
    as they were before; `results` says which of them a product's result is.
    """

    narrower: str
    by: Sequence[int]
    products: list[Product] = field(default_factory=list[Product])
    sums: list[Registers] = field(default_factory=list[Registers])
    results: dict[Value, int] = field(default_factory=dict[Value, int])

    def registers(self, acc: Value, value: Registers | None, result: Value) -> list[str]:
        """The operands of an accumulator that is a value of LLVM; `value` are its registers, if no
        wgmma of the group has used it.
        """
        if acc not in self.results:
            assert value is not None
            self.results[acc] = len(self.sums)
            self.sums.append(value)
        place = self.results[result] = self.results[acc]
        before = sum(len(one.texts) for one in self.sums[:place])
        return [f"${before + i}" for i in range(len(self.sums[place].texts))]

    def emit(self, w: Writer) -> list[Registers]:
        """The sums as they are then."""
        before = [x for one in self.sums for x in one.texts]
        type = "i32" if any(one.dtype.is_integer for one in self.sums) else "float"
        # An accumulator that is added to nothing starts here, and is not carried to here.
        new = {x for p in self.products if p.accumulate == "false" for x in p.registers}
        tied = [i for i in range(len(before)) if f"${i}" not in new]
        low = len(before) + len(tied)
        args: list[Operand] = [(type, before[i]) for i in tied]
        lows = list[int]()
        for product in self.products:
            lows.append(low)
            _, value = product.ptx(low)
            low, args = low + len(value), args + value
        ptx = self._arms(f"${low}", lows)
        given = [*args, ("i32", self.narrower)]
        texts = iter(w.asm(ptx, given, [type] * len(before), tied=tied))
        return [
            Registers(one.dtype, *one.shape, tuple(next(texts) for _ in one.texts))
            for one in self.sums
        ]

    def _arms(self, number: str, lows: Sequence[int]) -> str:
        by, tests, lines = self.by, count(1), [f".reg .pred p<{len(self.by)}>;"]

        def arm(columns: int) -> list[str]:
            value = zip(self.products, lows, strict=True)
            return [product.ptx(low, columns)[0] for product, low in value]

        def choose(first: int, last: int) -> None:
            """The arms from `first` on, up to `last`."""
            if first == last:
                lines.extend((*arm(by[first]), "wgmma.commit_group.sync.aligned;"))
                lines.append("bra.uni DONE_${:uid};")
                return
            middle, test = (first + last) // 2 + 1, next(tests)
            lines.append(f"setp.ge.s32 p{test}, {number}, {by[middle]};")
            lines.append(f"@p{test} bra.uni FROM{middle}_${{:uid}};")
            choose(first, middle - 1)
            lines.append(f"FROM{middle}_${{:uid}}:")
            choose(middle, last)

        choose(0, len(by) - 1)
        return "{\n" + "\n".join(lines) + "\nDONE_${:uid}:\n}"
