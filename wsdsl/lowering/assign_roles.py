"""Decide which axes run along the rows of a warpgroup's fragments and which along the columns.

Before:
    for_tiles(index=%m: axis<m of M>) {
      for_tiles(index=%n: axis<n of N>) {
After:
    for_tiles(index=%m: axis<m of M rows>) {
      for_tiles(index=%n: axis<n of N columns>) {

Two axes of one tile differ; so do the free axes of an MMA's operands. A reduced axis runs along the
columns; in a memory-bound kernel along the rows, if a tensor's contiguous dimension is the other
one and threads may have vectors of it. As far as that leaves a choice, `Schedule.mma_m` names the
rows; else an MMA's first operand gives them, and in a memory-bound kernel the dimension that is
contiguous in most of the bytes gives the columns. An axis that is only contracted has no role.

Why here: tile sizes depend on roles, everything later on both.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from wsdsl.diagnostics import CompileError, Finding, ScheduleError
from wsdsl.ir.op import Kernel, Op, bound, operands, results_of
from wsdsl.ir.ops import OVER_AXIS, Contract, Load, Store
from wsdsl.ir.types import Axis, Role, Tile
from wsdsl.lowering.axes import change_axes, loop_variable
from wsdsl.lowering.decode import decoded
from wsdsl.lowering.product_operands import operand_loads, operand_scales
from wsdsl.lowering.register_layout import holds_vectors, reduces_across


def assign_roles(kernel: Kernel) -> Kernel:
    """Raise CompileError where the constraints contradict each other."""
    if reduces_across(kernel):
        sides = _Sides()
        if not list(_constrain(kernel, sides, reduced_are_columns=False)):
            made = _with_roles(kernel, sides)
            if holds_vectors(made):
                return made
    sides = _Sides()
    findings = list(_constrain(kernel, sides))
    if findings:
        raise CompileError(findings)
    return _with_roles(kernel, sides)


def _with_roles(kernel: Kernel, sides: _Sides) -> Kernel:
    _ride(kernel, sides)
    _prefer(kernel, sides)
    return change_axes(kernel, lambda axis: dataclasses.replace(axis, role=sides.role(axis.name)))


class _Sides:
    """Union-find over axis names with the parity of each axis against its root."""

    def __init__(self) -> None:
        self.parent: dict[str, tuple[str, bool]] = {}
        self.flipped: dict[str, bool] = {}
        """By root: is the root a column axis?"""

    def root(self, axis: str) -> tuple[str, bool]:
        parent, odd = self.parent.setdefault(axis, (axis, False))
        if parent == axis:
            return axis, False
        root, more = self.root(parent)
        return root, odd != more

    def differ(self, a: str, b: str) -> bool:
        """Constrain; False if that contradicts what is known."""
        (ra, oa), (rb, ob) = self.root(a), self.root(b)
        if ra == rb:
            return oa != ob
        if ra in self.flipped and rb in self.flipped:
            if (self.flipped[ra] != oa) == (self.flipped[rb] != ob):
                return False
        elif rb not in self.flipped:
            ra, oa, rb, ob = rb, ob, ra, oa
        if ra in self.flipped:
            del self.flipped[ra]
        self.parent[ra] = (rb, oa == ob)
        return True

    def columns(self, axis: str, columns: bool = True) -> bool:
        root, odd = self.root(axis)
        return self.flipped.setdefault(root, columns != odd) == (columns != odd)

    def role(self, axis: str) -> Role:
        if axis not in self.parent:
            return ""
        root, odd = self.root(axis)
        return "columns" if self.flipped.get(root, False) != odd else "rows"


def _in_registers(kernel: Kernel) -> Iterator[tuple[Op, tuple[str, ...]]]:
    """Axes of the tiles that compute warpgroups hold in fragments, with their ops."""
    loads = operand_loads(kernel) | operand_scales(kernel)
    made_beside = decoded(kernel).inside
    elsewhere = {v for op in kernel.ops if not isinstance(op, Contract) for v in operands(op)}
    for op in kernel.ops:
        for value in (*results_of(op), *bound(op)):
            held = (value not in loads or value in elsewhere) and value not in made_beside
            if isinstance(value.type, Tile) and value.type.axes and held:
                yield op, value.type.axes


def _constrain(
    kernel: Kernel, sides: _Sides, reduced_are_columns: bool = True
) -> Iterator[Finding]:
    multiplies = any(isinstance(op, Contract) for op in kernel.ops)
    reduced = kernel.of(*OVER_AXIS)
    loads, beside = operand_loads(kernel), decoded(kernel).tiles
    for op in kernel.of(Contract):
        a, b = op.free
        for operand, own in ((op.a, a), (op.b, b)):
            in_slots = operand in loads or operand in beside
            if not in_slots and not sides.columns(own[0], False):
                yield Finding(
                    f"WS0300 this transformed operand of `@` needs `{own[0]}` as M of an MMA; "
                    "another use needs it as N",
                    op.loc,
                    SWAPPED,
                )
        if len(a) == len(b) == 1 and not sides.differ(a[0], b[0]):
            yield Finding(_one_role("matmul", a[0], b[0], "M", "N"), op.loc, SWAPPED)
    for op in reduced:
        if not sides.columns(op.axis, reduced_are_columns):
            yield Finding(
                f"WS0301 this reduces `{op.axis}`; another use needs it as the axis that is not "
                "reduced",
                op.loc,
                REDUCED,
            )
    stored = ((op, _stored_axes(op)) for op in kernel.of(Store))
    told: set[frozenset[str]] = set()
    for op, axes in (*_in_registers(kernel), *stored):
        wrong = _of_tile(axes, {r.axis for r in reduced}, sides, multiplies)
        # Tiles that are computed from this one have its axes, and the error again.
        if wrong and frozenset(axes) not in told:
            told.add(frozenset(axes))
            yield Finding(wrong[0], op.loc, wrong[1])
    for op in kernel.of(Store):
        if op.dtype.bits == 4 and op.last is not None and not sides.columns(op.last.name):
            variable = loop_variable(op.last.name)
            yield Finding(
                f"WS0302 `{op.tensor.name}` is {op.dtype}, 2 elements per byte, and needs "
                f"`{variable}` as the columns of a tile; another use needs it as rows",
                op.loc,
                f"store elements of 8 bits, and convert them to {op.dtype} in a separate kernel",
            )


SWAPPED = (
    "compute one of the two results from its transpose (swap the operands of `@`), or split the "
    "kernel"
)
REDUCED = (
    "reduce one of the two axes of a tile: loop over the other with `each`, or reduce it in a "
    "separate kernel"
)


def _one_role(user: str, a: str, b: str, first: str, second: str) -> str:
    needs = f"this {user} needs one of `{a}` and `{b}` as {first} and the other as {second}"
    return f"WS0303 {needs}; other uses need both as {first} or both as {second}"


def _of_tile(
    axes: tuple[str, ...], reduced: set[str], sides: _Sides, multiplies: bool
) -> tuple[str, str] | None:
    """Return a message and a hint if a tile's axes cannot be its rows and columns."""
    if len(axes) == 1:
        sides.root(axes[0])
    if len(axes) > 2:
        shown = ", ".join(map(loop_variable, axes))
        message = f"WS0304 a tile of {len(axes)} axes ({shown}) is not lowered; 2 axes are"
        return message, f"loop over one with `each`: for {loop_variable(axes[0])} in each(…)"
    if len(axes) < 2 or sides.differ(*axes):
        return None
    a, b = axes
    if reduced >= {a, b}:
        return f"WS0305 both axes of this tile, `{a}` and `{b}`, are reduced", REDUCED
    if multiplies:
        return _one_role("tile", a, b, "M", "N"), SWAPPED
    hint = f"loop over one with `each`, which leaves no axis: for {loop_variable(a)} in each(…)"
    return _one_role("tile", a, b, "rows", "columns"), hint


def _stored_axes(op: Store) -> tuple[str, ...]:
    """Return the axes of the elements that a store writes; a scatter also has its indices'."""
    kinds = (v.type for v in op.index)
    named = (
        (k.name,) if isinstance(k, Axis) else k.axes if isinstance(k, Tile) else () for k in kinds
    )
    return tuple(dict.fromkeys(axis for axes in named for axis in axes))


def _ride(kernel: Kernel, sides: _Sides) -> None:
    """Apply `Schedule.mma_m`."""
    mma = kernel.schedule.mma_m if kernel.schedule else None
    if mma is None:
        return
    free = {x for op in kernel.of(Contract) for side in op.free for x in side}
    named = [x for x in sorted(free) if mma in (x, loop_variable(x))]
    if not named:
        known = ", ".join(dict.fromkeys(loop_variable(x) for x in sorted(free))) or "none"
        raise ScheduleError(
            f'WS0400 Schedule.mma_m is "{mma}", which is not a free axis of a matmul',
            kernel.loc,
            f"choose from the free axes of matmuls: {known}",
        )
    for axis in named:
        if not sides.columns(axis, False):
            raise ScheduleError(
                f'WS0401 Schedule.mma_m is "{mma}"; another use of `{axis}` needs it as N',
                kernel.loc,
                "choose an axis that is not reduced",
            )


def _prefer(kernel: Kernel, sides: _Sides) -> None:
    for op in kernel.of(Contract):
        a, b = op.free
        if len(a) == len(b) == 1:
            sides.columns(b[0])
    bits = dict[str, int]()
    for op in kernel.ops:
        if isinstance(op, (Store, Load)) and op.index:
            last = op.index[-1].type
            if isinstance(last, Axis) and len(op.index) > 1 and last.name in sides.parent:
                own = op.dtype.bits if len(op.axes) > 1 else 0
                bits[last.name] = bits.get(last.name, 0) + own
    for name in bits if kernel.of(Contract) else sorted(bits, key=lambda name: -bits[name]):
        sides.columns(name)
