"""Apply factors that do not vary within a tile of the contraction after the matrix instruction.

Before:
    %kb: i32[k] = map(fn="floordiv", args=(%k_index, %c128))
    %a: f8e4m3[m, k] = load(tensor=%A, index=(%m, %k))
    %s: f32[m, k] = load(tensor=%a_scale, index=(%m, %kb))
    %wide: f32[m, k] = cast(x=%a)
    %x: f32[m, k] = map(fn="mul", args=(%wide, %s))
    %p: f32[m, n] = contract(a=%x, b=%b)
    %y: f32[m, n] = map(fn="add", args=(%acc, %p))
After:
    %a: f8e4m3[m, k] = load(tensor=%A, index=(%m, %k))
    %kb: i32 = block(axis=%k, size=128)
    %s: f32[m] = load(tensor=%a_scale, index=(%m, %kb))
    %p: f32[m, n] = contract(a=%a, b=%b)
    %y: f32[m, n] = map(fn="fma", args=(%p, %s, %acc))

A factor may depend on the contracted axis through `index(k) // c` alone, with c a multiple of the
tile (`choose_schedule` sees to that), or not at all. What is left must be tiles that the tensor
cores take, or of floats of 4 and 6 bits, which are cast to such; else the product stays as it is,
for `verify_lowerable` to refuse. If c is less than an instruction takes, or a factor varies
otherwise, and bf16 has all bits of the operands with their factors, these are what is multiplied.

Why here: first, so that all others see products of loads.
"""

import dataclasses

from wsdsl.ir.analysis.factors import Factored, factored, significant_bits, taken_as
from wsdsl.ir.hardware.wgmma_shapes import k_step, sum_of
from wsdsl.ir.op import Kernel, Op, Region, Value, operands, with_fields
from wsdsl.ir.ops import Block, Cast, Constant, Contract, Index, Map
from wsdsl.ir.rewriter import Namer, made_of, replace_operands, uses, with_regions
from wsdsl.ir.types import BF16, F32, Axis, DType, Tile
from wsdsl.lowering.passes.dce import without_unused
from wsdsl.lowering.scale_loads import blocks_of


def move_factors(kernel: Kernel) -> Kernel:
    mover = _Mover(kernel)
    body = mover.region(kernel.body)
    return kernel.with_body(without_unused(body)) if mover.any else kernel


class _Mover:
    """`made`: what defines a value. `ops`: the region that is being written."""

    def __init__(self, kernel: Kernel) -> None:
        self.made = kernel.definers
        self.namer = Namer.of(kernel)
        self.uses = [*uses(kernel.body)]
        self.sums: dict[Value, tuple[Value, Value]] = {}
        """By a product's former result: what it is now, and what is left to multiply by."""
        self.ops: list[Op] = []
        self.moved: dict[tuple[Value, str], Value] = {}
        """What `without` has made in this region."""
        self.any = False

    def region(self, region: Region) -> Region:
        outer, self.ops, self.moved = self.ops, [], {}
        for op in region:
            match op:
                case Contract():
                    self.product(op, region)
                case Map(fn="add", args=(x, y)) if x in self.sums or y in self.sums:
                    product, addend = (x, y) if x in self.sums else (y, x)
                    args = (*self.sums[product], addend)
                    self.ops.append(with_fields(op, fn="fma", args=args))
                case _:
                    self.ops.append(with_regions(op, self.region))
        made, self.ops, self.moved = tuple(self.ops), outer, {}
        return made

    def product(self, op: Contract, region: Region) -> None:
        sides = factored(op, self.made)
        if (sides is None or self.are_finer(sides)) and self.are_bf16(op):
            a, b = (self.cast(v, BF16) for v in (op.a, op.b))
            self.ops.append(with_fields(op, a=a, b=b))
            self.any = True
            return
        if sides is None:
            self.ops.append(op)
            return
        (a, _), (b, _) = sides
        (k,) = op.summed
        types = taken_as(_dtype(a), _dtype(b))
        tiles = [self.cast(tile, dtype) for tile, dtype in zip((a, b), types, strict=True)]
        factors = [self.cast(self.without(f, k), F32) for _, held in sides for f in held]
        self.any = True
        if not factors:
            self.ops.append(with_fields(op, a=tiles[0], b=tiles[1]))
            return
        factor = factors[0]
        for other in factors[1:]:
            axes = tuple(x for x in op.result.as_tile.axes if x in (*factor.axes, *other.axes))
            args, factor = (factor, other), self.value("factor", F32, axes)
            self.ops.append(Map(result=factor, fn="mul", args=args, loc=op.loc))
        bare = self.value(op.result.name, F32, op.result.as_tile.axes)
        self.ops.append(with_fields(op, result=bare, a=tiles[0], b=tiles[1]))
        if self.is_added(op.result, region):
            self.sums[op.result] = bare, factor
        else:
            self.ops.append(Map(result=op.result, fn="mul", args=(bare, factor), loc=op.loc))

    def are_finer(self, sides: tuple[Factored, Factored]) -> bool:
        """Whether factors are those of fewer elements than an instruction takes."""
        (a, own), (b, others) = sides
        least = k_step(taken_as(_dtype(a), _dtype(b))[0])
        values = made_of((*own, *others), self.made, lambda _: True)
        return any((found := blocks_of(v, self.made)) and found[1] < least for v, _ in values)

    def are_bf16(self, op: Contract) -> bool:
        """Whether bf16 has all bits of both operands, which no instruction takes as they are."""
        wide = (v for v in (op.a, op.b) if significant_bits(v, self.made) > BF16.significant_bits)
        taken = op.scales or sum_of(_dtype(op.a), _dtype(op.b))
        return not taken and not any(wide)

    def is_added(self, value: Value, region: Region) -> bool:
        """Whether it is used once, to be added here to what is no such product itself."""
        sums = [op for op in region if isinstance(op, Map) and op.fn == "add" and value in op.args]
        once = len(sums) == 1 and self.uses.count(value) == 1
        return once and not self.sums.keys() & {*sums[0].args}

    def value(self, wish: str, dtype: DType, axes: tuple[str, ...]) -> Value:
        return Value(self.namer.again(wish), Tile(dtype, axes))

    def cast(self, tile: Value, dtype: DType) -> Value:
        if _dtype(tile) == dtype:
            return tile
        made = self.value(tile.name, dtype, tile.axes)
        self.ops.append(Cast(result=made, x=tile))
        return made

    def without(self, value: Value, k: str) -> Value:
        """The value in a tile of `k`, which is the same for all of it."""
        if isinstance(value.type, Axis) or k not in value.axes:
            return value
        if (value, k) in self.moved:
            return self.moved[value, k]
        op = self.made[value]
        axes = tuple(x for x in value.axes if x != k)
        made = self.value(value.name, _dtype(value), axes)
        match op:
            case Map(fn="floordiv", args=(x, y)) if (axis := self.indexed(x)) is not None:
                by = self.made[y]
                assert isinstance(by, Constant)
                self.ops.append(Block(result=made, axis=axis, size=int(by.value), loc=op.loc))
            case _:
                inner = (v for v in operands(op) if isinstance(v.type, (Tile, Axis)))
                swap = {v: self.without(v, k) for v in inner}
                self.ops.append(dataclasses.replace(replace_operands(op, swap), result=made))
        self.moved[value, k] = made
        return made

    def indexed(self, value: Value) -> Value | None:
        op = self.made.get(value)
        return op.axis if isinstance(op, Index) else None


def _dtype(value: Value) -> DType:
    return value.as_tile.dtype
