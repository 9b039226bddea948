"""Whether a schedule fits tensor memory, and what of it is not lowered there yet."""

from __future__ import annotations

from collections.abc import Iterator

from wsdsl.diagnostics import Finding
from wsdsl.ir.block_scales import COLUMN_STEP as SCALED_STEP
from wsdsl.ir.block_scales import ROWS as SCALED_ROWS
from wsdsl.ir.op import Kernel
from wsdsl.ir.scale_atoms import ROWS as ATOM_ROWS
from wsdsl.ir.scale_atoms import in_atoms, unaligned_scales
from wsdsl.ir.tcgen05 import COLUMN_STEP, COLUMNS, LANES, PAIR_ROWS, PAIR_STEP, ROWS
from wsdsl.ir.tile_ops import Contract, Load
from wsdsl.lowering.axes import axes_of, loop_variable
from wsdsl.lowering.cooperation import cluster_splits, num_cooperating, num_shares
from wsdsl.lowering.cta_pairs import PAIR, in_pairs, pair_clusters, why_not_in_pairs
from wsdsl.lowering.footprint import axis_sizes
from wsdsl.lowering.product_operands import operand_scales
from wsdsl.lowering.tensor_operands import operand_columns, unfit_operands, wanted_rings
from wsdsl.lowering.tensor_sums import scale_columns_of, slot_columns
from wsdsl.schedule import Schedule


def tensor_memory_faults(kernel: Kernel, chosen: Schedule) -> Iterator[Finding]:
    if chosen.sf_load and not kernel.target.has_tensor_memory:
        what = "Schedule.sf_load is for cards whose tensor cores take scales"
        yield Finding(what, hint='leave it out, or compile for arch="sm_100a"')
    if "tmem" in _places(chosen) and not kernel.target.has_tensor_memory:
        what = 'Schedule.operand_transform says "tmem", which needs a GPU with tensor memory'
        yield Finding(what, hint='leave it out, or compile for arch="sm_100a"')
    if not kernel.target.has_tensor_memory or not kernel.of(Contract):
        if in_pairs(chosen):
            what = "Schedule.cta_group is 2: pairs of CTAs multiply where sums lie in tensor memory"
            yield Finding(what, hint='leave it out, or compile products for arch="sm_100a"')
        return
    if in_pairs(chosen):
        yield from _pairs(kernel, chosen)
    if chosen.order_barriers:
        what = (
            "Schedule.order_barriers is True, and one thread starts all products on tensor memory"
        )
        yield Finding(what, hint="leave it out")
    yield from _not_yet(kernel, chosen)
    sizes, axes = axis_sizes(kernel, chosen), axes_of(kernel)
    scaled, sharing = bool(operand_scales(kernel)), num_shares(kernel, chosen)["rows"]
    rows = max((sizes[n] for n, axis in axes.items() if axis.role == "rows"), default=0)
    for name, axis in axes.items():
        what = f"tile {loop_variable(name)}={sizes[name]}"
        if axis.role == "rows" and scaled and sizes[name] != SCALED_ROWS:
            told = f"{what}: with scales a product has {SCALED_ROWS} rows"
            yield Finding(told, hint=f"leave it out, or make it {SCALED_ROWS}")
        elif axis.role == "rows" and sharing > 1 and sizes[name] != sharing * LANES:
            told = f"{what}: each of {sharing} consumers has a product of {LANES} rows"
            yield Finding(told, hint=f"make it {sharing * LANES}")
        elif axis.role == "rows" and sharing == 1 and sizes[name] not in ROWS:
            told = f"{what}: a product on tensor memory has 64 or 128 rows"
            yield Finding(told, hint="128 have the tensor cores' whole rate")
        step = SCALED_STEP if scaled else COLUMN_STEP.get(rows // sharing, 1)
        if axis.role == "columns" and sizes[name] % step:
            yield Finding(f"{what}: of {rows} rows products have a multiple of {step} columns")
    yield from _scale_path(kernel, chosen.sf_load)
    for op in kernel.of(Load) if chosen.sf_load != "st" else ():
        for axis in op.axes[:-1] if op.result in operand_scales(kernel) and in_atoms(op) else ():
            if sizes[axis.name] % ATOM_ROWS:
                told = f"tile {loop_variable(axis.name)}={sizes[axis.name]}: `{op.tensor.name}` has"
                hint = f'make it a multiple of {ATOM_ROWS}, or sf_load="st"'
                yield Finding(f"{told} scales of {ATOM_ROWS} rows together", op.loc, hint)
    yield from unfit_operands(kernel)
    forced = wanted_rings(kernel)
    used = sum(slot_columns(kernel, sizes).values()) + scale_columns_of(kernel, sizes)
    used += sum(n for ring, n in operand_columns(kernel, sizes).items() if ring in forced)
    if used > COLUMNS:
        both = "sums and operands" if forced else "sums and scales" if scaled else "sums"
        told = f"the {both} of a tile take {used} columns of tensor memory, which has {COLUMNS}"
        yield Finding(told, hint="make the tile narrower")


def _places(chosen: Schedule) -> set[str]:
    """Where computed operands are to be made."""
    asked = chosen.operand_transform
    return {asked} if isinstance(asked, str) else {*(asked or {}).values()}


def _pairs(kernel: Kernel, chosen: Schedule) -> Iterator[Finding]:
    """What is no pair of CTAs, each with its rows of the products, or not lowered for one yet."""
    sizes, axes = axis_sizes(kernel, chosen), axes_of(kernel)
    told = "Schedule.cta_group is 2"
    clusters = pair_clusters(kernel)
    if {name: num for name, num in (chosen.cluster or {}).items() if num > 1} not in clusters:
        named = [f"cluster=dict({name}={PAIR})" for pair in clusters for name in pair]
        what = f"{told}: the pair is a cluster of two along the products' rows"
        instead = "leave it out, or have another axis lie there: Schedule.mma_m"
        yield Finding(what, hint=" or ".join(sorted(named)) or instead)
    for name, axis in axes.items():
        what = f"{told}, and tile {loop_variable(name)}={sizes[name]}"
        if axis.role == "rows" and sizes[name] != PAIR_ROWS:
            yield Finding(f"{what}: each CTA has {PAIR_ROWS} rows", hint=f"make it {PAIR_ROWS}")
        if axis.role == "columns" and sizes[name] % PAIR_STEP:
            yield Finding(f"{what}: a pair has a multiple of {PAIR_STEP} columns")
    if chosen.multicast:
        yield Finding(
            f"{told}: each CTA loads its half, and multicasts nothing", hint="leave it out"
        )
    for why in why_not_in_pairs(kernel):
        yield Finding(f"{told}, and {why}", hint="leave it out")


def _scale_path(kernel: Kernel, asked: str | None) -> Iterator[Finding]:
    loads = [op for op in kernel.of(Load) if op.result in operand_scales(kernel)]
    told = f'Schedule.sf_load is "{asked}", and'
    for name in unaligned_scales(kernel) if asked and not loads else ():
        rows = f"{told} rows of `{name}` begin at no multiples of 16 bytes"
        yield Finding(rows, hint="pad their stride: give `[:, :n]` of a wider array")
    if asked and not loads and not unaligned_scales(kernel):
        yield Finding(f"{told} no product has scales of blocks", hint="leave it out")
    for op in loads if asked == "cp" else ():
        if not in_atoms(op):
            name = op.tensor.name
            hint = f'kernel.packed("{name}") takes it so, from kernel.pack({name}=…)'
            yield Finding(f"{told} `{name}` does not lie in atoms", op.loc, hint)


def _not_yet(kernel: Kernel, chosen: Schedule) -> Iterator[Finding]:
    many = num_cooperating(chosen) > 1
    asked = {
        "a cluster along what is summed over": cluster_splits(kernel, chosen) > 1,
        f'scheduler="{chosen.scheduler}"': chosen.cuts_tiles,
        'mode="pingpong"': chosen.mode == "pingpong",
        f"consumers={chosen.consumers}": (chosen.consumers or 1) > 2,
        "consumers=2 beside scales of blocks": many and bool(operand_scales(kernel)),
        "consumers=2 beside a pair of CTAs": many and in_pairs(chosen),
        "registers": chosen.registers is not None,
    }
    for name, is_asked in asked.items():
        if is_asked:
            told = f"Schedule: {name} is not lowered for {kernel.target} yet"
            yield Finding(told, hint="leave it out")


def claim_faults(kernel: Kernel, chosen: Schedule) -> Iterator[Finding]:
    if chosen.scheduler != "dynamic":
        return
    told = 'scheduler="dynamic"'
    if not kernel.target.claims_clusters:
        what = f"{told}: a CTA asks the card for its next tile, which {kernel.target} does not know"
        hint = 'use scheduler="grid", whose CTAs the card deals out, or compile for arch="sm_100a"'
        yield Finding(what, hint=hint)
    elif not kernel.of(Contract):
        what = f"{told}, and no product: several CTAs are on an SM, which the card deals out"
        yield Finding(what, hint='use scheduler="grid"')
