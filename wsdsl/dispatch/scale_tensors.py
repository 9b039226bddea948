"""Convert kernels to block scale factors in atoms (`ir/hardware/scale_factor_atoms.py`).

    %s: f8e8m0[m, k] = load(tensor=%a_scale, index=(%m, %kb))
loads from a tensor [row atoms, block atoms, 2, 256] instead, with indices computed from m and kb.
"""

import dataclasses
from collections.abc import Iterable

from wsdsl.ir.analysis.scale_factor_indices import in_atoms
from wsdsl.ir.hardware.scale_factor_atoms import BLOCKS, ROWS, SHAPE
from wsdsl.ir.op import Kernel, Op, Value
from wsdsl.ir.ops import Constant, Index, Load, Map
from wsdsl.ir.rewriter import Namer, rewrite
from wsdsl.ir.types import I32, Axis, Tile
from wsdsl.schedule import Schedule


def scale_tensors(kernel: Kernel) -> list[str]:
    """Return the block scale factors of a TILE kernel that the tensor cores support."""
    from wsdsl.lowering.passes.scale_products import scale_products

    blackwell = dataclasses.replace(kernel, schedule=Schedule(arch="sm_100a"))
    loads = [op for op in scale_products(blackwell).of(Load) if op.block > 1 and not in_atoms(op)]
    return list(dict.fromkeys(op.tensor.name for op in loads))


def with_atoms(kernel: Kernel, names: Iterable[str]) -> Kernel:
    """Return the kernel with these tensors in atoms."""
    namer = Namer.of(kernel)
    tensors = {p: _in_atoms(p) for p in kernel.params if p.name in {*names}}

    def change(op: Op) -> tuple[Op, ...]:
        if not isinstance(op, Load) or op.tensor not in tensors:
            return (op,)
        *others, row, block = op.index
        atom_index = _AtomIndex(namer)
        index = atom_index.of(row, block)
        result = dataclasses.replace(op, tensor=tensors[op.tensor], index=(*others, *index))
        return (*atom_index.ops, result)

    params = tuple(tensors.get(p, p) for p in kernel.params)
    return dataclasses.replace(kernel, params=params, body=rewrite(kernel.body, change))


def _in_atoms(param: Value) -> Value:
    kind = param.as_tensor
    *outer, _, _ = kind.dims
    atoms = f"{param.name}_rows", f"{param.name}_blocks"
    return Value(param.name, dataclasses.replace(kind, dims=(*outer, *atoms, *SHAPE)))


class _AtomIndex:
    def __init__(self, namer: Namer) -> None:
        self.namer, self.ops = namer, list[Op]()

    def of(self, row: Value, block: Value) -> tuple[Value, ...]:
        if isinstance(row.type, Axis):
            result = self.value((row.type.name,))
            self.ops.append(Index(result=result, axis=row))
            row = result
        low = self.map("mul", self.map("mod", row, 16), 16)
        middle = self.map("mul", self.map("floordiv", self.map("mod", row, ROWS), 32), BLOCKS)
        byte = self.sum(self.sum(low, middle), self.map("mod", block, BLOCKS))
        half = self.map("floordiv", self.map("mod", row, 32), 16)
        return self.map("floordiv", row, ROWS), self.map("floordiv", block, BLOCKS), half, byte

    def value(self, axes: tuple[str, ...]) -> Value:
        return Value(self.namer.new("at"), Tile(I32, axes))

    def map(self, fn: str, x: Value, by: int) -> Value:
        number, result = self.value(()), self.value(x.as_tile.axes)
        self.ops += [Constant(result=number, value=by), Map(result=result, fn=fn, args=(x, number))]
        return result

    def sum(self, x: Value, y: Value) -> Value:
        result = self.value(tuple(dict.fromkeys((*x.as_tile.axes, *y.as_tile.axes))))
        self.ops.append(Map(result=result, fn="add", args=(x, y)))
        return result
