"""Check that a whole schedule fits its kernel and the GPU."""

import dataclasses
from collections.abc import Iterator

from wsdsl.diagnostics import Finding, counted
from wsdsl.ir.op import Kernel, walk
from wsdsl.ir.ops import OVER_AXIS, Block, Contract, ForEach, ForTiles, Store
from wsdsl.ir.types import Axis, Tile
from wsdsl.lowering import cooperation
from wsdsl.lowering.axes import axes_of, loop_variable, output_nest, ragged_loop, whole_axes
from wsdsl.lowering.axis_blocks import block_faults, walked_blocks
from wsdsl.lowering.check_columns import (
    column_faults,
    lane_faults,
    per_consumer,
    slice_step,
    spread_faults,
)
from wsdsl.lowering.check_tmem import claim_faults, tensor_memory_faults
from wsdsl.lowering.check_widths import width_faults
from wsdsl.lowering.decode import decode_faults, decoded, num_decoders
from wsdsl.lowering.early_loads import num_load_warpgroups
from wsdsl.lowering.footprint import (
    accumulator_registers,
    axis_sizes,
    depth_steps,
    promoted_registers,
    sharing_ctas,
)
from wsdsl.lowering.held_rows import are_held, held_axes
from wsdsl.lowering.packed_operands import packed_faults
from wsdsl.lowering.product_operands import computed_operands, multiplied, with_casts
from wsdsl.lowering.register_layout import MOST_FLAT, flat_axis, holds_vectors, turned
from wsdsl.lowering.schedule_findings import extent_fault, order_fault, smem_fault, split_fault
from wsdsl.lowering.smem_allocations import fits_smem, smem_bytes
from wsdsl.lowering.smem_privatization import counter_faults
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
from wsdsl.lowering.tmem_accumulators import multiplying_warps
from wsdsl.schedule import Schedule, changed

WGMMA_REGISTERS = 26
"""Registers that ptxas needs at entry in addition to those of one MMA."""
OTHER_REGISTERS = 24
"""Registers of a consumer in addition to its tiles. (Promoted, 208 columns fit 232; 256 spill.)"""
REGISTERS = {
    (2, 1): "for 2 consumers use load=40, compute=232, or load=24, compute=240",
    (2, 2): "for 2 consumers use load=24, compute=232",
    (3, 1): "for 3 consumers use load=32, compute=160",
    (3, 2): "for 3 consumers use load=24, compute=144",
    (4, 1): "for 4 consumers use load=32, compute=112",
    (4, 2): "for 4 consumers use load=24, compute=104",
}
"""Hints, by consumers and load warpgroups."""


def faults(kernel: Kernel, chosen: Schedule) -> list[Finding]:
    """Return the findings against a schedule; none if it can be lowered."""
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
    """Give findings without a location the kernel's."""
    return [f if f.loc else dataclasses.replace(f, loc=kernel.loc) for f in findings]


def _order(kernel: Kernel, chosen: Schedule) -> Iterator[Finding]:
    """Who does which tile, and with whom."""
    nest, body = output_nest(kernel)
    indices = (loop.index for loop in nest)
    known = [loop_variable(v.type.name) for v in indices if isinstance(v.type, Axis)]
    listed = ", ".join(known) or "none"
    summed = contracted_variable(body)
    choices = ", ".join([*known, f"{summed} (contraction axis)"]) if summed else listed
    held = held_axes(kernel) if are_held(kernel, chosen, axis_sizes(kernel, chosen)) else ()
    ragged, sharing = ragged_loop(kernel), cooperation.cluster_splits(kernel, chosen) > 1
    if ragged and (sharing or chosen.cuts_tiles or chosen.scheduler == "dynamic"):
        name = loop_variable(ragged.index.as_axis.name)
        told = f"`{name}` walks parts of {ragged.dim}: the number of tiles is not known at launch"
        asked = f"a cluster along `{summed}`" if sharing else f'scheduler="{chosen.scheduler}"'
        yield Finding(f"WS0456 {told}, which {asked} needs", hint='use scheduler="persistent"')
    for name, size in (chosen.cluster or {}).items():
        if name in (*known, summed, *map(loop_variable, held)) or size == 1:
            continue
        scalar = any(isinstance(loop, ForEach) and loop.index.name == name for loop in nest)
        yield Finding(
            f"WS0404 Schedule.cluster names `{name}`, "
            + ("whose indices are not tiles" if scalar else "which is not a parallel loop"),
            hint=f"choose from the loops over tiles: {choices}",
        )
    if (ctas := cooperation.cluster_size(chosen)) > (most := kernel.target.max_cluster):
        many = f"WS0405 Schedule.cluster has {ctas} CTAs; {kernel.target} allows {most}"
        yield Finding(many, hint="use a smaller cluster")
    if chosen.multicast and all((chosen.cluster or {}).get(name, 1) == 1 for name in known):
        yield Finding(
            "WS0406 Schedule.multicast is True, and no CTAs of a cluster load the same tiles",
            hint=f"add a cluster along {listed}: cluster=dict({known[-1] if known else 'm'}=2)",
        )
    if chosen.raster not in (None, "auto", *known):
        yield Finding(
            f"WS0407 Schedule.raster names `{chosen.raster}`, which is not a parallel loop",
            hint=f"choose from the parallel loops over tiles: {listed}",
        )
    if chosen.mode == "pingpong":
        if (consumers := chosen.consumers or 1) < 2:
            few = f'WS0408 mode="pingpong" alternates 2 or more consumers; there is {consumers}'
            yield Finding(few, hint="use consumers=2")
        if not multiplied(kernel):
            yield Finding(
                'WS0409 mode="pingpong" alternates matmuls of consumers; the kernel has no matmul',
                hint='use mode="cooperative"',
            )
    if chosen.ctas_per_sm and kernel.of(Contract):
        yield Finding(
            f"WS0410 Schedule.ctas_per_sm is {chosen.ctas_per_sm}; a kernel with a matmul runs 1 "
            "CTA per SM",
            hint="leave it out",
        )
    if chosen.order_barriers and cooperation.num_cooperating(chosen) < 2:
        alone = 'mode="pingpong"' if chosen.mode == "pingpong" else f"consumers={chosen.consumers}"
        hint = 'use mode="cooperative" with 2 or 3 consumers, or leave order_barriers out'
        yield order_fault(f"with {alone} no consumers split a tile", hint=hint)


def _beyond(kernel: Kernel, chosen: Schedule) -> Iterator[Finding]:
    """Reject stores that CTAs would repeat whose tiles begin beyond a dimension."""
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
                    f"WS0411 Schedule.cluster names `{name}`, and this store has no index `{name}`:"
                    f" CTAs that pad the last cluster, beyond {axis.dim}, would repeat it",
                    op.loc,
                    f"leave `{name}` out of the cluster",
                )


def _cut(kernel: Kernel, chosen: Schedule) -> Iterator[Finding]:
    """Check `scheduler`, `reduction` and `splits`."""
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
    needs = {}
    if chosen.scheduler != "split_k":
        if chosen.splits not in (None, 1):
            needs[f"splits={chosen.splits}"] = 'scheduler="split_k"'
        if chosen.reduction and (chosen.reduction == "parallel" or not cuts):
            other = "" if chosen.reduction == "parallel" else ' or "stream_k"'
            needs[f'reduction="{chosen.reduction}"'] = f'scheduler="split_k"{other}'
    elif chosen.splits is None:
        hint = "set it, such as splits=4; the compiler chooses it only where all sizes are known"
        if chosen.reduction == "parallel":
            hint += ", and all slices can run at the same time"
        yield Finding('WS0412 scheduler="split_k" needs Schedule.splits', hint=hint)
    for field, needed in needs.items():
        by = f'scheduler="{chosen.scheduler}"'
        yield Finding(f"WS0413 Schedule.{field} needs {needed}, not {by}", hint=f"use {needed}")


def _shared_contraction(kernel: Kernel, chosen: Schedule) -> Iterator[Finding]:
    """Check that the CTAs of a cluster can split the contraction of each tile."""
    sharing, body = sharing_ctas(kernel, chosen), output_nest(kernel)[1]
    name = contracted_variable(body)
    if sharing == 1 or name not in (chosen.cluster or {}):
        return
    reasons = dict[str, str]()
    if chosen.cuts_tiles:
        splits = f'scheduler="{chosen.scheduler}" splits it, too'
        reasons[splits] = 'use scheduler="persistent" or "grid"'
    if cooperation.num_pingpong_consumers(chosen) > 1:
        reasons['mode="pingpong" does not split tiles'] = 'use mode="cooperative"'
    if cooperation.shared_role(kernel, chosen) == "columns":
        split = f'consumer_split="{chosen.consumer_split}" splits the same columns'
        reasons[split] = "leave consumer_split out"
    unfit = list(why_not(body)) or list(why_not_by_cluster(kernel, body))
    for finding in unfit:
        yield dataclasses.replace(finding, hint=f"leave `{name}` out of the cluster")
    sizes, step, loop = axis_sizes(kernel, chosen), slice_step(kernel, chosen), cut_loop(body)
    summed = [v.type for v in loop.result if isinstance(v.type, Tile)] if loop else []
    for axis in (axes_of(kernel)[name] for name in {a for kind in summed for a in kind.axes}):
        if axis.role == "columns" and sizes[axis.name] % (step * sharing):
            size = f"tile {loop_variable(axis.name)}={sizes[axis.name]}"
            slices = f"{size} has no {sharing} slices of a multiple of {step} columns"
            reasons[slices] = f"use a multiple of {step * sharing} columns"
    for why, hint in reasons.items():
        told = f"WS0414 Schedule.cluster splits the contraction axis `{name}`, and {why}"
        yield Finding(told, hint=hint)


def _share(kernel: Kernel, chosen: Schedule) -> Iterator[Finding]:
    """Check the axis that consumers split."""
    if chosen.consumer_split is None:
        return
    shared = [axis for name, axis in axes_of(kernel).items() if cooperation.is_shared(name, chosen)]
    if not any(axis.role for axis in shared):
        free = [loop_variable(name) for name, axis in axes_of(kernel).items() if axis.role]
        known = f"choose from the free axes: {', '.join(dict.fromkeys(free)) or 'none'}"
        yield split_fault(chosen, "the output has no such free axis", hint=known)
    if cooperation.num_pingpong_consumers(chosen) > 1:
        yield split_fault(chosen, 'mode="pingpong" gives each consumer a separate tile')
    if (
        cooperation.num_cooperating(chosen) == 1
        or cooperation.shared_role(kernel, chosen) == "rows"
    ):
        return
    columns = {name for name, axis in axes_of(kernel).items() if axis.role == "columns"}
    if chosen.cuts_tiles:
        mixed = f'scheduler="{chosen.scheduler}" reduces whole rows'
        yield split_fault(chosen, mixed, hint='leave it out, or use scheduler="persistent"')
    together = held_axes(kernel).keys() | spread_axes(kernel).keys()
    for op in kernel.ops:
        reduced = isinstance(op, OVER_AXIS) and op.axis in columns - together
        computed = computed_operands(kernel, op) if isinstance(op, Contract) else ()
        if reduced or any(v not in decoded(kernel).tiles for v in computed):
            yield split_fault(chosen, "this needs whole rows", op.loc)


def tile_faults(kernel: Kernel, chosen: Schedule) -> Iterator[Finding]:
    """Yield the findings against the tiles alone, as far as these are given."""
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
        at = written.get(name)
        if axis.role == "rows":
            if holds_vectors(kernel) and not flat_axis(kernel) and not turned(kernel):
                continue
            if size % (64 * shares["rows"]):
                limit = per_consumer(64, shares["rows"])
                hint = f"use {limit}" + products * ", or map another axis to M (Schedule.mma_m)"
                yield extent_fault(kernel, name, size, limit, at, hint)
            most = MOST_FLAT if holds_vectors(kernel) and flat_axis(kernel) else 256
            if size > most:
                yield extent_fault(kernel, name, size, f"{most} or less", at)
        step = depths[name][0] if name in depths else 16
        if (name in depths or not axis.role) and (size % step or size > 256):
            limit = f"a multiple of {step} up to 256"
            yield extent_fault(kernel, name, size, limit, at)


def _crossed_blocks(kernel: Kernel, chosen: Schedule) -> Iterator[Finding]:
    for op in kernel.ops:
        if isinstance(op, Block) and isinstance(op.axis.type, Axis):
            name, size = op.axis.type.name, axis_sizes(kernel, chosen)[op.axis.type.name]
            variable, step = loop_variable(name), depth_steps(kernel).get(name, (1, 1))[0]
            if op.size % step:
                span = f"the {step} elements of K of an MMA"
                products = (p for p in kernel.of(Contract) if name in p.summed)
                hint = f"write `{with_casts(next(products))}`"
            elif size and op.size % size:
                span = f"a tile of {size}"
                hint = f"choose a tile of {variable} that divides {op.size}"
            else:
                continue
            told = f"WS0415 `index({variable}) // {op.size}` changes within {span}"
            yield Finding(told, op.loc, hint)


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
        others = f"{counted(consumers, 'consumer')}{_other_warpgroups(loads, decoders)}"
        yield Finding(
            f"WS0416 an MMA of {widest} columns needs {widest // 2 + WGMMA_REGISTERS} registers "
            f"per thread at launch; {entry} are available with {others}",
            hint=_smaller(kernel, chosen, own, (consumers > 1) * ", or use fewer consumers"),
        )
    elif registers + beside + OTHER_REGISTERS > own:
        added = f" ({beside} of them for promotion)" if beside else ""
        more = consumers < 4 and chosen.mode != "pingpong" and not in_tensors
        yield Finding(
            f"WS0417 accumulators need {registers + beside} registers per thread{added}; "
            f"{own - OTHER_REGISTERS} of {own} are available",
            hint=_smaller(kernel, chosen, own, more * ", or use more consumers"),
        )
    used = smem_bytes(kernel, chosen, stages := chosen.stages or 1, buffers=1)
    if used > (room := kernel.target.smem_bytes):
        hint = _smaller(kernel, chosen, own, (stages > 1) * ", or use fewer stages")
        yield smem_fault(f"{stages} stage{'s need' if stages > 1 else ' needs'}", used, room, hint)


def _smaller(kernel: Kernel, chosen: Schedule, registers: int, other: str) -> str:
    """The hint for tiles that do not fit; where small ones do not either, a dimension is long."""
    axes, shares = axes_of(kernel), cooperation.num_shares(kernel, chosen)
    least = changed(chosen, tile={name: 64 * shares[axis.role] for name, axis in axes.items()})
    needed = accumulator_registers(kernel, least) + OTHER_REGISTERS
    whole = [axes[name].dim for name in whole_axes(kernel) if axes[name].role == "columns"]
    if not whole or (needed <= registers and fits_smem(kernel, least, 1, buffers=1)):
        return f"use a smaller tile{other}"
    outer = f"`for …, n in tiles(…, {whole[-1]})` around the contraction"
    return f"split the columns of the result by {outer}, and write `n` instead of `:`"


def _registers(kernel: Kernel, chosen: Schedule) -> list[Finding]:
    given, consumers = chosen.registers or {}, chosen.consumers or 1
    loads, decoders = num_load_warpgroups(kernel, chosen), num_decoders(kernel)
    roles = ("load", *(("decode",) if decoders else ()), "compute")
    if set(given) != {*roles}:
        named = f"{', '.join(roles[:-1])} and {roles[-1]}"
        told = f"WS0418 Schedule.registers has {', '.join(given)}; the roles are {named}"
        missing = [role for role in roles if role not in given]
        hint = f"add {' and '.join(missing)}" if missing else f"leave out all but {named}"
        return [Finding(told, None, hint)]
    groups = consumers + loads + decoders
    pool = kernel.target.entry_registers(groups) * groups
    numbers = dict(load=loads, decode=decoders, compute=consumers)
    if (needed := sum(num * given.get(role, 0) for role, num in numbers.items())) <= pool:
        return []
    others = f"{counted(consumers, 'consumer')}{_other_warpgroups(loads, decoders)}"
    told = f"WS0419 registers {given!r} with {others} need {needed} registers per thread, summed "
    told += f"over warpgroups; {pool} are available"
    return [Finding(told, None, REGISTERS.get((consumers, loads), REGISTERS[2, 1]))]


def _other_warpgroups(loads: int, decoders: int) -> str:
    """Name the warpgroups in addition to the consumers and one load warpgroup."""
    told = " and two load warpgroups (Schedule.pdl_independent)" if loads > 1 else ""
    transforms = ' and one that transforms operands (Schedule.operand_transform="smem")'
    return told + (transforms if decoders else "")
