"""Whether a whole schedule fits its kernel and the card; if not, why."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from wsdsl.diagnostics import Finding
from wsdsl.ir.op import Kernel
from wsdsl.ir.tile_ops import OVER_AXIS, Block, Contract, ForEach, ForTiles, Store
from wsdsl.ir.types import Axis, Tile
from wsdsl.ir.walk import walk
from wsdsl.lowering import cooperation
from wsdsl.lowering.axes import axes_of, loop_variable, output_nest, whole_axes
from wsdsl.lowering.axis_blocks import block_faults, walked_blocks
from wsdsl.lowering.check_columns import column_faults, lane_faults, slice_step, spread_faults
from wsdsl.lowering.check_tensor_memory import claim_faults, tensor_memory_faults
from wsdsl.lowering.check_widths import width_faults
from wsdsl.lowering.counters import counter_faults
from wsdsl.lowering.decode import decode_faults, decoded, num_decoders
from wsdsl.lowering.early_loads import num_load_warpgroups
from wsdsl.lowering.footprint import (
    accumulator_registers,
    axis_sizes,
    depth_steps,
    fits_smem,
    promoted_registers,
    sharing_ctas,
    smem_bytes,
)
from wsdsl.lowering.held_rows import are_held, held_axes
from wsdsl.lowering.lanes import MOST_FLAT, flat_axis, holds_vectors, turned
from wsdsl.lowering.packed_operands import packed_faults
from wsdsl.lowering.product_operands import computed_operands, multiplied, with_casts
from wsdsl.lowering.split_k_rules import (
    contracted_variable,
    cut_loop,
    leaves_lines,
    why_not,
    why_not_by_cluster,
    why_not_parallel,
    why_not_shared,
)
from wsdsl.lowering.spread_rows import spread_axes
from wsdsl.lowering.tensor_sums import multiplying_warps
from wsdsl.schedule import Schedule, changed

WGMMA_REGISTERS = 26
"""What ptxas wants at entry beside those of one wgmma."""
OTHER_REGISTERS = 24
"""What a consumer needs beside its tiles. (Promoted sums of 208 columns fit 232; 256 spill.)"""
REGISTERS = {
    (2, 1): "for 2 consumers 40 and 232, or 24 and 240",
    (2, 2): "for 2 consumers 24 and 232",
    (3, 1): "for 3 consumers 32 and 160",
    (3, 2): "for 3 consumers 24 and 144",
    (4, 1): "for 4 consumers 32 and 112",
    (4, 2): "for 4 consumers 24 and 104",
}
"""What fits, by consumers and load warpgroups."""


def faults(kernel: Kernel, chosen: Schedule) -> list[Finding]:
    """All that is wrong with it; nothing if it can be lowered."""
    products = kernel.of(Contract)
    found = [
        *_order(kernel, chosen),
        *_beyond(kernel, chosen),
        *_cut(kernel, chosen),
        *_shared_contraction(kernel, chosen),
        *_share(kernel, chosen),
        *tile_faults(kernel, chosen),
        *(() if are_held(kernel, chosen, axis_sizes(kernel, chosen)) else walked_blocks(kernel)),
        *tensor_memory_faults(kernel, chosen),
        *claim_faults(kernel, chosen),
        *counter_faults(kernel, chosen),
        *width_faults(kernel, chosen),
    ]
    if products and chosen.registers is not None:
        found += _registers(kernel, chosen)
    if products and not found:
        found = [*_resources(kernel, chosen)]
    return located(found, kernel)


def located(findings: list[Finding], kernel: Kernel) -> list[Finding]:
    """Those without a place are of the kernel."""
    return [f if f.loc else dataclasses.replace(f, loc=kernel.loc) for f in findings]


def _order(kernel: Kernel, chosen: Schedule) -> Iterator[Finding]:
    """Who does which tile, and with whom."""
    nest, body = output_nest(kernel)
    indices = (loop.index for loop in nest)
    known = [loop_variable(v.type.name) for v in indices if isinstance(v.type, Axis)]
    listed = ", ".join(known) or "none"
    summed = contracted_variable(body)
    walked = f"{listed}; {summed} is summed over" if summed else listed
    held = held_axes(kernel) if are_held(kernel, chosen, axis_sizes(kernel, chosen)) else ()
    for name, size in (chosen.cluster or {}).items():
        if name in (*known, summed, *map(loop_variable, held)) or size == 1:
            continue
        scalar = any(isinstance(loop, ForEach) and loop.index.name == name for loop in nest)
        yield Finding(
            f"Schedule.cluster names `{name}`, "
            + ("whose indices are not tiles" if scalar else "which no parallel loop walks"),
            hint=f"the parallel loops over tiles are {walked}",
        )
    if cooperation.cluster_size(chosen) > (most := kernel.target.max_cluster):
        yield Finding(f"Schedule.cluster has more than {most} CTAs in all")
    if chosen.multicast and all((chosen.cluster or {}).get(name, 1) == 1 for name in known):
        yield Finding(
            "Schedule.multicast is True, and there is no cluster whose CTAs could load for others",
            hint=f"name one along {listed}, such as cluster=dict({known[-1] if known else 'm'}=2)",
        )
    if chosen.raster not in (None, "auto", *known):
        yield Finding(
            f"Schedule.raster names `{chosen.raster}`, which no parallel loop walks",
            hint=f"the parallel loops over tiles are {listed}",
        )
    if chosen.mode == "pingpong":
        if (chosen.consumers or 1) < 2:
            yield Finding(
                f'mode="pingpong" with {chosen.consumers} consumer: nobody to alternate with',
                hint="use 2 consumers",
            )
        if not multiplied(kernel):
            yield Finding(
                'mode="pingpong" needs a product: consumers alternate at the tensor cores',
                hint='use mode="cooperative"',
            )
    if chosen.ctas_per_sm and kernel.of(Contract):
        yield Finding(
            f"Schedule.ctas_per_sm is {chosen.ctas_per_sm}, and the CTA of a kernel with products "
            "has its SM alone",
            hint="leave it out",
        )
    if chosen.order_barriers and cooperation.num_cooperating(chosen) < 2:
        alone = 'mode="pingpong"' if chosen.mode == "pingpong" else f"consumers={chosen.consumers}"
        yield Finding(
            f"Schedule.order_barriers is True, and with {alone} no consumers split a tile",
            hint='use mode="cooperative" with 2 or 3 consumers, or leave order_barriers out',
        )


def _beyond(kernel: Kernel, chosen: Schedule) -> Iterator[Finding]:
    """A cluster's last tiles may begin beyond a dimension; what they store must lie there, too."""
    static, sizes = dict(kernel.sizes), axis_sizes(kernel, chosen)
    for loop in output_nest(kernel)[0]:
        axis = loop.index.type
        if not isinstance(axis, Axis):
            continue
        name = loop_variable(axis.name)
        num = cooperation.cluster_along(chosen, axis.name)
        if num == 1 or (axis.dim in static and -(-static[axis.dim] // sizes[axis.name]) % num == 0):
            continue
        for op in walk(loop.body):
            if isinstance(op, Store) and not any(
                v.type == axis or (isinstance(v.type, Tile) and axis.name in v.type.axes)
                for v in op.index
            ):
                yield Finding(
                    f"Schedule.cluster names `{name}`, and this is not stored at `{name}`: tiles "
                    f"that fill the last cluster, beyond {axis.dim}, would store it as well",
                    op.loc,
                    f"leave `{name}` out of the cluster",
                )


def _cut(kernel: Kernel, chosen: Schedule) -> Iterator[Finding]:
    """Tiles in pieces, or not."""
    cuts = chosen.cuts_tiles
    if cuts:
        body = output_nest(kernel)[1]
        lines = leaves_lines(kernel, chosen.reduction)
        unfit = list(why_not(body, lines=lines))
        yield from unfit
        if cooperation.num_cooperating(chosen) > 1 and not unfit and not lines:
            yield from why_not_shared(kernel, body)
        if chosen.reduction == "parallel" and not unfit:
            yield from why_not_parallel(kernel, body)
    by, pieces = f'scheduler="{chosen.scheduler}"', 'use scheduler="split_k"'
    if chosen.scheduler != "split_k":
        if chosen.reduction == "parallel":
            yield Finding(f'Schedule.reduction="parallel" with {by}', hint=pieces)
        if chosen.splits not in (None, 1):
            yield Finding(f"Schedule.splits with {by}", hint=pieces)
    elif chosen.splits is None:
        hint = "say how many: splits=4; they are chosen only where all sizes are known"
        if chosen.reduction == "parallel":
            hint += ", and all slices can run at the same time"
        yield Finding('scheduler="split_k" without splits', hint=hint)
    if chosen.reduction and not cuts:
        told = f"Schedule.reduction with {by}, which cuts no tiles"
        yield Finding(told, hint=f'{pieces} or "stream_k"')


def _shared_contraction(kernel: Kernel, chosen: Schedule) -> Iterator[Finding]:
    """Whether the CTAs of a cluster can share the contraction of each tile."""
    sharing, body = sharing_ctas(kernel, chosen), output_nest(kernel)[1]
    name = contracted_variable(body)
    if sharing == 1 or name not in (chosen.cluster or {}):
        return
    told = f"Schedule.cluster names `{name}`, along which the CTAs share a sum"
    if chosen.cuts_tiles:
        mixed = f'{told}, and scheduler="{chosen.scheduler}" cuts it, too'
        yield Finding(mixed, hint='use scheduler="persistent" or "grid"')
    if cooperation.num_pingpong_consumers(chosen) > 1:
        yield Finding(f'{told}, and mode="pingpong"', hint='use mode="cooperative"')
    if cooperation.shared_role(kernel, chosen) == "columns":
        split = f'consumer_split="{chosen.consumer_split}"'
        by_columns = f"{told}, and {split}: CTAs and consumers would both split it"
        yield Finding(by_columns, hint="leave consumer_split out")
    unfit = list(why_not(body)) or list(why_not_by_cluster(kernel, body))
    for finding in unfit:
        yield dataclasses.replace(finding, hint=f"leave `{name}` out of the cluster")
    sizes, step, loop = axis_sizes(kernel, chosen), slice_step(kernel, chosen), cut_loop(body)
    summed = [v.type for v in loop.result if isinstance(v.type, Tile)] if loop else []
    for axis in (axes_of(kernel)[name] for name in {a for kind in summed for a in kind.axes}):
        if axis.role == "columns" and sizes[axis.name] % (step * sharing):
            size = f"tile {loop_variable(axis.name)}={sizes[axis.name]}"
            slices = f"{size} can not be cut into {sharing} slices of a multiple of {step}"
            wanted = f"use a multiple of {step * sharing} columns"
            yield Finding(f"{told}: {slices} columns", hint=wanted)


def _share(kernel: Kernel, chosen: Schedule) -> Iterator[Finding]:
    """Which axis consumers divide among themselves."""
    if chosen.consumer_split is None:
        return
    told = f'Schedule.consumer_split is "{chosen.consumer_split}"'
    shared = [axis for name, axis in axes_of(kernel).items() if cooperation.is_shared(name, chosen)]
    if not any(axis.role for axis in shared):
        free = [loop_variable(name) for name, axis in axes_of(kernel).items() if axis.role]
        known = f"the free axes are {', '.join(dict.fromkeys(free)) or 'none'}"
        yield Finding(f"{told}, which is no free axis of the output", hint=known)
    if cooperation.num_pingpong_consumers(chosen) > 1:
        yield Finding(f'{told}, and mode="pingpong": each consumer has its own tile')
    if (
        cooperation.num_cooperating(chosen) == 1
        or cooperation.shared_role(kernel, chosen) == "rows"
    ):
        return
    columns = {name for name, axis in axes_of(kernel).items() if axis.role == "columns"}
    if chosen.cuts_tiles:
        mixed = f'{told}, and scheduler="{chosen.scheduler}" hands on whole rows'
        yield Finding(mixed, hint='leave it out, or use scheduler="persistent"')
    together = held_axes(kernel).keys() | spread_axes(kernel).keys()
    for op in kernel.ops:
        reduced = isinstance(op, OVER_AXIS) and op.axis in columns - together
        if reduced or (isinstance(op, Contract) and _from_registers(kernel, op)):
            yield Finding(f"{told}, and this needs whole rows", op.loc, "leave it out")


def _from_registers(kernel: Kernel, op: Contract) -> bool:
    made_beside = decoded(kernel).tiles
    return any(v not in made_beside for v in computed_operands(kernel, op))


def tile_faults(kernel: Kernel, chosen: Schedule) -> Iterator[Finding]:
    """What is wrong with the tiles alone, as far as they are given."""
    yield from _crossed_blocks(kernel, chosen)
    yield from _tiles(kernel, chosen)
    yield from lane_faults(kernel, chosen)
    yield from column_faults(kernel, chosen)
    yield from spread_faults(kernel, chosen)
    yield from decode_faults(kernel, axis_sizes(kernel, chosen))
    yield from packed_faults(kernel, axis_sizes(kernel, chosen))
    yield from block_faults(kernel, chosen)


def _tiles(kernel: Kernel, chosen: Schedule) -> Iterator[Finding]:
    shares, depths = cooperation.num_shares(kernel, chosen), depth_steps(kernel)
    products = bool(kernel.of(Contract))
    written = {v.name: op.loc for op in kernel.of(ForTiles) if (v := op.index.as_axis).size}
    for name, size in axis_sizes(kernel, chosen).items():
        if name not in axes_of(kernel):
            continue  # Indices that are taken one after the other.
        axis = axes_of(kernel)[name]
        what, at = f"tile {loop_variable(name)}={size}", written.get(name)
        if axis.role == "rows":
            whose = "the tensor cores' tile" if products else "a tile"
            rows = f"{what} (rows of {whose})"
            if holds_vectors(kernel) and not flat_axis(kernel) and not turned(kernel):
                continue
            if size % (64 * shares["rows"]):
                who = f"{shares['rows']} consumer{'s' if shares['rows'] > 1 else ''}"
                hint = "make it one" + products * ", or have another axis lie there: Schedule.mma_m"
                yield Finding(f"{rows} is no multiple of 64 x {who}", at, hint)
            most = MOST_FLAT if holds_vectors(kernel) and flat_axis(kernel) else 256
            if size > most:
                yield Finding(f"{rows} is more than {most}", at)
        step = depths[name][0] if name in depths else 16
        if (name in depths or not axis.role) and (size % step or size > 256):
            yield Finding(f"{what} is no multiple of {step} up to 256 (contracted)", at)


def _crossed_blocks(kernel: Kernel, chosen: Schedule) -> Iterator[Finding]:
    for op in kernel.ops:
        if isinstance(op, Block) and isinstance(op.axis.type, Axis):
            name, size = op.axis.type.name, axis_sizes(kernel, chosen)[op.axis.type.name]
            variable, step = loop_variable(name), depth_steps(kernel).get(name, (1, 1))[0]
            told = f"`index({variable}) // {op.size}` changes within"
            if op.size % step:
                told += f" the {step} elements that the tensor cores sum at a time"
                products = (p for p in kernel.of(Contract) if name in p.summed)
                yield Finding(told, op.loc, f"write `{with_casts(next(products))}`")
            elif size and op.size % size:
                told += f" a tile of {size}"
                yield Finding(told, op.loc, f"choose a tile of {variable} that divides {op.size}")


def _resources(kernel: Kernel, chosen: Schedule) -> Iterator[Finding]:
    consumers = cooperation.num_cooperating(chosen) * cooperation.num_pingpong_consumers(chosen)
    registers = accumulator_registers(kernel, chosen)
    beside = promoted_registers(kernel, chosen)
    loads, decoders = num_load_warpgroups(kernel, chosen), num_decoders(kernel)
    most = kernel.target.max_registers
    in_tensors = kernel.target.has_tensor_memory and bool(kernel.of(Contract))
    if in_tensors:
        others = loads + decoders + multiplying_warps(kernel) // 4
        most = min(most, kernel.target.entry_registers(consumers + others))
    own = (chosen.registers or {}).get("compute", most)
    sizes = axis_sizes(kernel, chosen)
    widest = max(
        (sizes[a.name] for a in axes_of(kernel).values() if a.role == "columns"), default=0
    )
    widest //= cooperation.num_shares(kernel, chosen)["columns"]
    entry = min(kernel.target.entry_registers(consumers + loads + decoders), own)
    if not in_tensors and widest // 2 + WGMMA_REGISTERS > entry:
        beside = _beside(" beside", loads, decoders)
        yield Finding(
            f"a product of {widest} columns needs {widest // 2 + WGMMA_REGISTERS} registers a "
            f"thread at launch, and {consumers} consumers{beside} leave {entry}",
            hint=_smaller(kernel, chosen, own, (consumers > 1) * ", or use fewer consumers"),
        )
    elif registers + beside + OTHER_REGISTERS > own:
        added = f" ({beside} for what products are added to)" if beside else ""
        more = consumers < 4 and chosen.mode != "pingpong" and not in_tensors
        yield Finding(
            f"the tiles take {registers + beside} of {own} registers a thread{added}, and the rest "
            f"needs {OTHER_REGISTERS}",
            hint=_smaller(kernel, chosen, own, more * ", or use more consumers"),
        )
    used = smem_bytes(kernel, chosen, stages := chosen.stages or 1, buffers=1)
    if used > (room := kernel.target.smem_bytes):
        yield Finding(
            f"{stages} stage{'s need' if stages > 1 else ' needs'} {used} bytes of SMEM, a CTA has "
            f"{room}",
            hint=_smaller(kernel, chosen, own, (stages > 1) * ", or use fewer stages"),
        )


def _smaller(kernel: Kernel, chosen: Schedule, registers: int, other: str) -> str:
    """The hint for tiles that do not fit; where small ones do not either, a dimension is long."""
    axes, shares = axes_of(kernel), cooperation.num_shares(kernel, chosen)
    least = changed(chosen, tile={name: 64 * shares[axis.role] for name, axis in axes.items()})
    needed = accumulator_registers(kernel, least) + OTHER_REGISTERS
    whole = [axes[name].dim for name in whole_axes(kernel) if axes[name].role == "columns"]
    if not whole or (needed <= registers and fits_smem(kernel, least, 1, buffers=1)):
        return f"make the tile smaller{other}"
    outer = f"`for …, n in tiles(…, {whole[-1]})` around the sum"
    return f"divide the columns of the result by {outer}, and `n` in place of `:`"


def _registers(kernel: Kernel, chosen: Schedule) -> list[Finding]:
    given, consumers = chosen.registers or {}, chosen.consumers or 1
    loads, decoders = num_load_warpgroups(kernel, chosen), num_decoders(kernel)
    roles = ("load", *(("decode",) if decoders else ()), "compute")
    if set(given) != {*roles}:
        told = f"Schedule.registers names {', '.join(given)}"
        named = f"{', '.join(roles[:-1])} and {roles[-1]}"
        return [Finding(told, None, f"name the roles {named}")]
    groups = consumers + loads + decoders
    pool = kernel.target.entry_registers(groups) * groups
    numbers = dict(load=loads, decode=decoders, compute=consumers)
    if sum(num * given.get(role, 0) for role, num in numbers.items()) <= pool:
        return []
    told = f"registers {given!r} with {consumers} consumers{_beside(' and', loads, decoders)} need "
    told += f"more than the {pool} a thread slot that the launch gives out"
    return [Finding(told, None, REGISTERS.get((consumers, loads), REGISTERS[2, 1]))]


def _beside(word: str, loads: int, decoders: int) -> str:
    """What takes registers beside the consumers and one load warpgroup."""
    told = f"{word} two load warpgroups (Schedule.pdl_independent)" if loads > 1 else ""
    transforms = f'{word} one that transforms operands (Schedule.operand_transform="smem")'
    return told + (transforms if decoders else "")
