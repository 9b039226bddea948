"""Accesses of threads to elements of tensors in GMEM."""

from collections.abc import Iterator

import numpy as np

from wsdsl.ir import ops
from wsdsl.ir.op import Op, Value, operands, results_of
from wsdsl.ir.types import ACCUMULATOR, Fragment
from wsdsl.simulator.recorded_effects import Kind
from wsdsl.simulator.reference.arithmetic import Array
from wsdsl.simulator.reference.bound_arrays import GlobalTensor, inside_of
from wsdsl.simulator.reference.fragment_arrays import as_array, finish, shape_of
from wsdsl.simulator.state.gmem_races import Actor, At
from wsdsl.simulator.state.smem_races import Access
from wsdsl.simulator.warpgroup import Warpgroup

_VERBS = {"read": "reads", "write": "writes", "add": "adds to"}
ANY_BYTE = 0x5A
"""The value of elements that `only` excludes, if the type has no NaN."""


def places(wg: Warpgroup, op: Op, index: tuple[Value, ...]) -> list[Array]:
    return [np.asarray(wg.get(v, op), np.int64) for v in index]


def check_pairs(wg: Warpgroup, op: Op, last: Array, vector: int) -> None:
    """A vector access starts at a multiple of its width, and its elements are contiguous."""
    if vector == 1 or last.ndim == 0:
        return
    first = last[..., ::vector]
    rest = last.reshape(*last.shape[:-1], -1, vector) - first[..., None]
    if (first % vector).any() or (rest != np.arange(vector)).any():
        wg.fail(op, f"a vector of {vector} elements is misaligned, or not contiguous")


def check_blocks(wg: Warpgroup, op: Op, tensor: GlobalTensor, index: list[Array]) -> None:
    """Fragments begin at a block's first line and column, and go on from there."""
    for i, size in zip(index, (64, 8), strict=False):
        lines = i.flat[0] + np.arange(i.size).reshape(i.shape)
        if tensor.fragments and (i.flat[0] % size or (i != lines).any()):
            wg.fail(op, f"{tensor.name} can only be accessed in whole blocks of 64 x 8")


def access_global(
    wg: Warpgroup, op: Op, kind: Kind, name: str, at: At, by: slice, access: Access | None = None
) -> None:
    """Record that an op moves elements of a tensor, and check the access that its effects state for
    races at these. `access`: that of the async proxy, which completes later.
    """
    wg.effect(op, kind, "global", by, at, name, -1)
    access = access or wg.by_threads(op, by, wg.full_name)
    actor = Actor(wg.cta.index, wg.cta.clocks, by)
    for stated in wg.cta.residents.stated(op, "gmem"):
        conflict = wg.cta.residents.accesses.begin(stated, name, at, access, actor)
        if conflict is not None:
            wg.settle(op, f"it {_VERBS[stated.kind]} {conflict.element}", conflict)


def check_repeated(wg: Warpgroup, op: Op, tensor: GlobalTensor, at: At, before: Array) -> None:
    """Once elements are written: where items overlap, they must be what another one wrote."""
    told = wg.cta.residents.accesses.repeats(tensor.name, at, before, tensor.array[at])
    if told:
        hint = "compute the same bits in all CTAs that store an element"
        wg.fail(op, told, kind="overlap", hint=hint)


def _by_warps(
    wg: Warpgroup, op: Op, kind: Kind, tensor: GlobalTensor, places: tuple[list[Array], Array]
) -> None:
    """Check an access to the elements (index of each dimension, whether inside), where each warp
    has its part of rows and columns, or any thread all that is the same in every row.
    """
    if wg.effects is None and not wg.cta.residents.accesses.follows(kind, tensor.name):
        return
    spread, inside = places
    for own, threads in _parts(wg, op, inside):
        mask = inside & own
        if not mask.any():
            continue
        access_global(wg, op, kind, tensor.name, tuple(i[mask] for i in spread), threads)


def _parts(wg: Warpgroup, op: Op, inside: Array) -> Iterator[tuple[Array, slice]]:
    """Which elements of an access are whose."""
    kinds = (v.type for v in (*operands(op), *results_of(op)))
    lanes = next((k.lanes for k in kinds if isinstance(k, Fragment)), ACCUMULATOR)
    everything = np.ones((), np.bool_)
    if inside.ndim < 2 or wg.elected or (inside.shape[0] == 1 and lanes.warps < 4):
        yield everything, wg.actors
        return
    rows, columns = (np.arange(n) for n in inside.shape)
    for i in range(4):
        own = rows // lanes.of_warp(len(rows)) == i // lanes.warps
        along = lanes.warp_of(columns) == i % lanes.warps
        if len(columns) > 1:
            yield own[:, None] & along, wg.warp(i)
        elif not i % lanes.warps or isinstance(op, ops.LoadGlobal):
            yield own[:, None], wg.warp(i)


def load_global(wg: Warpgroup, op: ops.LoadGlobal) -> None:
    tensor = wg.cta.arguments.tensors[op.tensor.name]
    index = places(wg, op, op.index)
    check_pairs(wg, op, index[-1], op.vector)
    check_blocks(wg, op, tensor, index)
    shape = shape_of(op.result)
    # The index of equal rows or columns may be smaller than the result's shape.
    small = np.broadcast_shapes(*(i.shape for i in index))
    spread = [np.broadcast_to(i, small) for i in index]
    inside = inside_of(tensor.array, spread, small)
    _by_warps(wg, op, "read", tensor, (spread, inside))
    held = np.zeros(small, tensor.array.dtype)
    held[inside] = tensor.array[tuple(i[inside] for i in spread)]
    if op.only is not None:
        # A read of an element that `only` excludes shows.
        anything = ANY_BYTE if held.dtype.kind in "iu" else np.nan
        held = np.where(as_array(wg.get(op.only, op), op.only), held, held.dtype.type(anything))
    wg.values[op.result.name] = finish(held if shape else held.reshape(()), op.result)


def store_global(wg: Warpgroup, op: ops.StoreGlobal) -> None:
    if op.pred is not None and not wg.get(op.pred, op):
        return
    tensor = wg.cta.arguments.tensors[op.tensor.name]
    value = as_array(wg.get(op.value, op), op.value)
    index = places(wg, op, op.index)
    check_pairs(wg, op, index[-1], op.vector)
    check_blocks(wg, op, tensor, index)
    shape = np.broadcast_shapes(value.shape, *(i.shape for i in index))
    spread = [np.broadcast_to(i, shape) for i in index]
    inside = inside_of(tensor.array, spread, shape)
    if tensor.name in wg.cta.residents.accesses.flags:
        _store_flags(wg, op, tensor, value, (spread, inside))
    else:
        _by_warps(wg, op, "add" if op.accumulate else "write", tensor, (spread, inside))
    at = tuple(i[inside] for i in spread)
    value = np.broadcast_to(value, shape)
    if not op.accumulate:
        before = tensor.array[at]
        tensor.array[at] = value[inside]
        check_repeated(wg, op, tensor, at, before)
        return
    tensor.add(at, value[inside])


def add_elements(
    wg: Warpgroup, op: Op, tensor: GlobalTensor, places: tuple[list[Array], Array], value: Array
) -> None:
    """Add to elements (index of each dimension, whether inside)."""
    spread, inside = places
    _by_warps(wg, op, "add", tensor, places)
    tensor.add(tuple(i[inside] for i in spread), value[inside])


def _store_flags(
    wg: Warpgroup, op: ops.StoreGlobal, tensor: GlobalTensor, value: Array, places: At
) -> None:
    """Plain stores to what other ops use as flags."""
    spread, inside = places
    if op.accumulate:
        wg.fail(op, f"it adds to {tensor.name}, which has flags", hint="use semaphore_arrive")
    for place in np.argwhere(inside):
        at = tuple(int(i[tuple(place)]) for i in spread)
        after = int(np.broadcast_to(value, inside.shape)[tuple(place)])
        wg.effect(op, "write", "flag", wg.actors, at, tensor.name, -1)
        flags = wg.cta.residents.flags
        told = flags.store((tensor.name, at), int(tensor.array[at]), after, wg.actors)
        if told:
            wg.fail(op, f"it writes the flag {tensor.name}{list(at)}; {told}", kind="race")


def allocate_global(wg: Warpgroup, op: ops.AllocateGlobal) -> None:
    """The launch has allocated the tensor."""


def prefetch_tile(wg: Warpgroup, op: ops.PrefetchTile) -> None:
    """No thread observes the contents of a cache."""
