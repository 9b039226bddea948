"""PTX text of wgmma, for which LLVM has no intrinsic."""

from collections.abc import Sequence

from wsdsl.codegen.value_registers import Descriptor
from wsdsl.codegen.writer import Operand
from wsdsl.ir.hardware.wgmma_shapes import PTX_NAMES, k_step, may_be_mn_major
from wsdsl.ir.types import DType
from wsdsl.record import record


@record
class Product:
    """All steps of a k block. `registers`: names in PTX, or operands of the inline PTX, from the
    first one on. `a` may be registers, four packed pairs per step. `accumulate` is an i1, for the
    first step alone.
    """

    name: str
    registers: Sequence[str]
    a: Descriptor | Sequence[str]
    b: Descriptor
    num_steps: int
    dtypes: tuple[DType, DType]
    accumulate: str

    def ptx(self, low_a: int, narrower: int = 0) -> tuple[str, list[Operand]]:
        """The text for an accumulator `narrower` columns narrower, two per register; and the
        arguments from the operand `low_a` on. The descriptors' high halves are constants:
        arithmetic on the low ones is 32 bits wide, and uniform.
        """
        a, registers = self.a, self.registers[: len(self.registers) - narrower // 2]
        low_b = low_a + (1 if isinstance(a, Descriptor) else len(a))
        total = "s32" if self.dtypes[0].is_integer else "f32"
        names = ".".join(PTX_NAMES[d.name] for d in self.dtypes)
        kind = f"m64n{2 * len(registers)}k{k_step(self.dtypes[0])}.{total}.{names}"
        # Behind scale-d come the signs of A and B, and which of them is transposed.
        ending = "" if self.dtypes[0].is_integer else ", 1, 1"
        if may_be_mn_major(self.dtypes[0]):
            majors = [x.k_major for x in (a, self.b) if isinstance(x, Descriptor)]
            ending += "".join(f", {int(not k_major)}" for k_major in majors)
        # `ptxas_diagnostics.py` finds the op by this comment.
        lines = [f"// {self.name} = wgmma", ".reg .b32 la, lb, ha, hb;", ".reg .b64 a, b;"]
        if isinstance(a, Descriptor):
            lines.append(f"mov.b32 ha, {a.high};")
        lines.append(f"mov.b32 hb, {self.b.high};")
        for i in range(self.num_steps):
            first = {"true": "1", "false": "0"}.get(self.accumulate, f"${low_b + 1}")
            if isinstance(a, Descriptor):
                lines += [f"add.s32 la, ${low_a}, {a.steps[i]};", "mov.b64 a, {la, ha};"]
                left = "a"
            else:
                left = f"{{{', '.join(f'${low_a + 4 * i + j}' for j in range(4))}}}"
            lines += [
                f"add.s32 lb, ${low_b}, {self.b.steps[i]};",
                "mov.b64 b, {lb, hb};",
                (
                    f"wgmma.mma_async.sync.aligned.{kind} "
                    f"{{{', '.join(registers)}}}, {left}, b, {first if i == 0 else 1}{ending};"
                ),
            ]
        lows = [a.low] if isinstance(a, Descriptor) else a
        args: list[Operand] = [("i32", x) for x in (*lows, self.b.low)]
        if self.accumulate not in ("true", "false"):
            args.append(("i1", self.accumulate))
        return "{\n" + "\n".join(lines) + "\n}", args
