"""Operands of MMAs that a partition of threads transforms: `Schedule.operand_transform="smem"`, for
all of them or by a tensor that the operand is loaded from; or "tmem", where they then are.

A transformed operand is computed in the registers of the consumers that multiply it, or once for
all of them, by the threads of a separate partition, which fill the stages of a pipeline as TMA
would. That partition may compute any elementwise function of loads. Functions of an accumulator, of
a reduction, or of a carried value stay with the consumers.

In that partition a fragment's columns run along the rows of the operand's tile in SMEM, and its
rows across them, independent of the roles of the axes in the MMA: its axes have separate names and
roles (`assign_decode_axes`).
"""

from collections.abc import Iterable, Iterator, Mapping

from wsdsl.diagnostics import Finding
from wsdsl.ir import ops
from wsdsl.ir.hardware.tma_box import TMA_ALIGN
from wsdsl.ir.hardware.wgmma_shapes import may_be_mn_major
from wsdsl.ir.op import Kernel, Makers, Op, Value, once, operands
from wsdsl.ir.rewriter import made_of
from wsdsl.ir.types import Axis, Role, Sizes, Tile
from wsdsl.lowering.axes import axes_of
from wsdsl.lowering.product_operands import computed_operands
from wsdsl.lowering.schedule_findings import extent_fault
from wsdsl.record import record
from wsdsl.schedule import Place, Schedule

ROWS = 64
"""Of a fragment: lines of a tile that are written at once."""


@record
class Decoded:
    """`tiles`: transformed operands, as in their stages, with rows along the last axis. `summed`:
    the contraction axis of their MMA. `inside` has all values that have no other use; `roles` those
    of axes in the partition that computes them. `in_tensor` are in tensor memory.
    """

    tiles: Mapping[Value, Tile]
    summed: Mapping[Value, str]
    inside: frozenset[Value]
    roles: Mapping[str, Role]
    in_tensor: frozenset[Value] = frozenset()


NOTHING = Decoded({}, {}, frozenset(), {})


@once
def decoded(kernel: Kernel) -> Decoded:
    """Return the operands that a separate partition transforms, if the schedule says so."""
    asked = kernel.schedule.operand_transform if kernel.schedule else None
    if asked is None or asked == "registers":
        return NOTHING
    made, found = kernel.definers, dict[Value, tuple[str, list[Value]]]()
    in_tensor = set[Value]()
    stored = {op.tensor for op in kernel.of(ops.Store)}
    for op in kernel.of(ops.Contract):
        for operand in computed_operands(kernel, op):
            if operand in found:
                continue
            inputs, axes = _inputs(operand, made, op.summed), op.summed
            makers = (made.get(v) for v in inputs or ())
            read = {maker.tensor for maker in makers if isinstance(maker, (ops.Load, ops.Lookup))}
            places = places_of(asked, tensors_of(kernel, operand))
            asked_for = bool(places & {"smem", "tmem"})
            if asked_for and inputs is not None and len(axes) == 1 and not read & stored:
                found[operand] = axes[0], inputs
                in_tensor |= {operand} if "tmem" in places else set()
    for as_loaded in (True, False):
        tiles = {
            v: _tile(v, k, inputs, made, as_loaded and v not in in_tensor)
            for v, (k, inputs) in found.items()
        }
        roles, agree = _roles(tiles.values())
        if agree:
            break
    else:
        # An axis that one product sums over and another one does not has one role: the first's.
        tiles = _that_agree(tiles)
        roles, _ = _roles(tiles.values())
    summed = {v: found[v][0] for v in tiles}
    inside = _serving(kernel, tiles)
    return Decoded(tiles, summed, inside, roles, frozenset(in_tensor & tiles.keys()))


def places_of(asked: Place | Mapping[str, Place] | None, tensors: Iterable[str]) -> set[Place]:
    """Where the schedule says that an operand is made which is loaded from these: at most one
    place, unless it contradicts itself.
    """
    if isinstance(asked, Mapping):
        return {asked[name] for name in tensors if name in asked}
    return {asked} if asked else set()


def num_decoders(kernel: Kernel) -> int:
    """Warpgroups that decode."""
    return 1 if decoded(kernel).tiles else 0


def _inputs(operand: Value, made: Makers, summed: tuple[str, ...]) -> list[Value] | None:
    """All that an operand is made of; None if a part of it is not made element by element, or of
    blocks of what is summed over.
    """
    found = list[Value]()
    for value, op in made_of((operand,), made, lambda op: op.repeatable):
        if isinstance(value.type, Axis):
            continue
        scalar = isinstance(value.type, Tile) and not value.type.axes
        is_iteration = scalar and value is getattr(op, "index", None)
        if not (op and op.repeatable) and not is_iteration:
            return None
        if isinstance(op, ops.ReduceBlocks) and op.axis not in summed:
            return None
        found.append(value)
    kind = operand.type
    return found if isinstance(kind, Tile) and len(kind.axes) == 2 else None


def _tile(operand: Value, summed: str, inputs: list[Value], made: Makers, as_loaded: bool) -> Tile:
    """Lines along the axis that is summed over, or (of 16 bits) as what it is made of lies."""
    last = summed
    in_blocks = any(isinstance(made.get(v), ops.ReduceBlocks) for v in inputs)
    if as_loaded and not in_blocks and may_be_mn_major(operand.as_tile.dtype):
        loads = (op for op in map(made.get, inputs) if isinstance(op, ops.Load))
        whole = (op.last for op in loads if len(op.axes) == 2)
        last = next((end.name for end in whole if end), summed)
    first = next(x for x in operand.as_tile.axes if x != last)
    return Tile(operand.as_tile.dtype, (first, last))


def _roles(tiles: Iterable[Tile]) -> tuple[dict[str, Role], bool]:
    """By axis; and whether all tiles agree."""
    roles, agree = dict[str, Role](), True
    names: tuple[Role, ...] = ("rows", "columns")
    for tile in tiles:
        for axis, role in zip(tile.axes, names, strict=True):
            agree &= roles.setdefault(axis, role) == role
    return roles, agree


def _that_agree(tiles: Mapping[Value, Tile]) -> dict[Value, Tile]:
    kept = dict[Value, Tile]()
    for value, tile in tiles.items():
        if _roles([*kept.values(), tile])[1]:
            kept[value] = tile
    return kept


def _serving(kernel: Kernel, tiles: Mapping[Value, Tile]) -> frozenset[Value]:
    """The operands, and what nothing but they are made of."""
    users = dict[Value, list[Op]]()
    for op in kernel.ops:
        for value in operands(op):
            users.setdefault(value, []).append(op)
    found = {*tiles}
    ahead = [v for value in found for v in operands(kernel.definers[value])]
    while ahead:
        value = ahead.pop()
        op = kernel.definers.get(value)
        if value in found or op is None or not op.repeatable:
            continue
        if all(getattr(user, "result", None) in found for user in users[value]):
            found.add(value)
            ahead += operands(op)
    return frozenset(found)


def decode_faults(kernel: Kernel, sizes: Sizes) -> Iterator[Finding]:
    """Check the tiles that the decode warpgroup transforms or reads."""
    for value, tile in decoded(kernel).tiles.items():
        rows, last = tile.axes
        at = kernel.definers[value].loc
        steps = [(rows, ROWS)] if sizes[rows] % ROWS else []
        if axes_of(kernel)[last].role and sizes[last] * tile.dtype.bytes % TMA_ALIGN:
            steps.append((last, TMA_ALIGN // tile.dtype.bytes))
        for axis, step in steps:
            limit = f'a multiple of {step}: Schedule.operand_transform is "smem"'
            yield extent_fault(kernel, axis, sizes[axis], limit, at)
    for load in kernel.of(ops.Load):
        by_tma = load.tensor.name not in kernel.unaligned and len(load.axes) > 1
        last = load.last.name if load.last and by_tma else ""
        if (
            load.result in decoded(kernel).inside
            and load.dtype.size(sizes.get(last, 0)) % TMA_ALIGN
        ):
            limit = f"a multiple of {load.dtype.count(TMA_ALIGN)}"
            why = f"TMA copies rows of {load.tensor.name} by {TMA_ALIGN} bytes"
            yield extent_fault(kernel, last, sizes[last], f"{limit}: {why}", load.loc)


def unfit_decoding(kernel: Kernel, given: Schedule) -> Iterator[Finding]:
    """Reject operand transforms that the kernel does not have or that are not lowered."""
    asked = given.operand_transform
    computed = [v for op in kernel.of(ops.Contract) for v in computed_operands(kernel, op)]
    if asked is not None and not computed:
        said = f'"{asked}"' if isinstance(asked, str) else repr(asked)
        told = f"WS0432 Schedule.operand_transform is {said}, and no operand is transformed"
        yield Finding(told, None, "leave it out")
    elif isinstance(asked, Mapping):
        yield from _unfit_by_tensor(kernel, asked, computed)
    elif asked == "smem" and not decoded(kernel).tiles and not kernel.target.has_tensor_memory:
        yield _not_of_loads(kernel, 'Schedule.operand_transform is "smem"', computed)


def _unfit_by_tensor(
    kernel: Kernel, asked: Mapping[str, Place], computed: list[Value]
) -> Iterator[Finding]:
    read = {v: tensors_of(kernel, v) for v in computed}
    known = sorted({name for names in read.values() for name in names})
    for name, place in asked.items():
        own = [v for v in computed if name in read[v]]
        if not own:
            told = f"WS0433 Schedule.operand_transform names `{name}`, which "
            told += "no transformed operand loads"
            hint = f"choose from: {', '.join(known)}" if known else "leave it out"
            yield Finding(told, None, hint)
        elif place != "registers" and not any(v in decoded(kernel).tiles for v in own):
            yield _not_of_loads(kernel, f'Schedule.operand_transform["{name}"] is "{place}"', own)
    for value, names in read.items():
        if len(places_of(asked, names)) > 1:
            own = ", ".join(sorted(name for name in names if name in asked))
            yield Finding(
                f"WS0434 Schedule.operand_transform differs for {own}, inputs of one operand",
                kernel.definers[value].loc,
                "name one of them",
            )


def _not_of_loads(kernel: Kernel, told: str, computed: list[Value]) -> Finding:
    return Finding(
        f"WS0435 {told}, and this operand is not an elementwise function of loads",
        next((kernel.definers[v].loc for v in computed if v in kernel.definers), None),
        "leave it out: operands that depend on other matmuls are computed in registers",
    )


def loads_of(kernel: Kernel, operand: Value) -> list[ops.Load]:
    """Return the loads that an operand depends on, up to the next matmul."""
    walked = made_of((operand,), kernel.definers, lambda op: not isinstance(op, ops.Contract))
    return [op for _, op in walked if isinstance(op, ops.Load)]


def tensors_of(kernel: Kernel, operand: Value) -> set[str]:
    """Return the names of the tensors that an operand is loaded from."""
    return {op.tensor.name for op in loads_of(kernel, operand)}
