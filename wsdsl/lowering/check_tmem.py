"""Check that a schedule fits tensor memory, and is lowered there."""

from collections.abc import Iterator

from wsdsl.diagnostics import Finding
from wsdsl.ir.analysis.scale_factor_indices import in_atoms, unaligned_scales
from wsdsl.ir.hardware.block_scale_factors import COLUMN_STEP as SCALED_STEP
from wsdsl.ir.hardware.block_scale_factors import ROWS as SCALED_ROWS
from wsdsl.ir.hardware.scale_factor_atoms import ROWS as ATOM_ROWS
from wsdsl.ir.hardware.tcgen05_shapes import COLUMN_STEP, COLUMNS, LANES, PAIR_ROWS, PAIR_STEP, ROWS
from wsdsl.ir.op import Kernel
from wsdsl.ir.ops import Contract, Load
from wsdsl.lowering.axes import axes_of
from wsdsl.lowering.cooperation import cluster_splits, num_cooperating, num_shares
from wsdsl.lowering.cta_pairs import PAIR, in_pairs, pair_clusters, why_not_in_pairs
from wsdsl.lowering.footprint import axis_sizes
from wsdsl.lowering.product_operands import operand_scales
from wsdsl.lowering.schedule_findings import extent_fault, order_fault, pair_fault
from wsdsl.lowering.tmem_accumulators import scale_columns_of, slot_columns
from wsdsl.lowering.tmem_operands import operand_columns, unfit_operands, wanted_rings
from wsdsl.schedule import Schedule


def tensor_memory_faults(kernel: Kernel, chosen: Schedule) -> Iterator[Finding]:
    there = kernel.target.has_tensor_memory
    needing = {
        f'sf_load="{chosen.sf_load}"': bool(chosen.sf_load) and not there,
        'operand_transform="tmem"': "tmem" in _places(chosen) and not there,
        "cta_group=2": in_pairs(chosen) and not (there and kernel.of(Contract)),
    }
    for field in (field for field, needed in needing.items() if needed):
        told = f"WS0420 Schedule.{field} needs a matmul in tensor memory"
        yield Finding(told, hint='leave it out, or compile a matmul for arch="sm_100a"')
    if not there or not kernel.of(Contract):
        return
    if in_pairs(chosen):
        yield from _pairs(kernel, chosen)
    if chosen.order_barriers:
        yield order_fault("one thread issues all MMAs in tensor memory")
    yield from _not_yet(kernel, chosen)
    sizes, axes = axis_sizes(kernel, chosen), axes_of(kernel)
    scaled, sharing = bool(operand_scales(kernel)), num_shares(kernel, chosen)["rows"]
    rows = max((sizes[n] for n, axis in axes.items() if axis.role == "rows"), default=0)
    for name, axis in axes.items():
        limit = hint = ""
        if axis.role == "rows" and scaled and sizes[name] != SCALED_ROWS:
            limit = f"{SCALED_ROWS}: operands have block scale factors"
            hint = f"leave it out, or use {SCALED_ROWS}"
        elif axis.role == "rows" and sharing > 1 and sizes[name] != sharing * LANES:
            limit = f"{sharing * LANES} ({LANES} per consumer)"
        elif axis.role == "rows" and sharing == 1 and sizes[name] not in ROWS:
            limit, hint = "64 or 128", "use 128, for the tensor cores' whole throughput"
        step = SCALED_STEP if scaled else COLUMN_STEP.get(rows // sharing, 1)
        if axis.role == "columns" and sizes[name] % step:
            limit = f"a multiple of {step}: the M extent is {rows}"
        if limit:
            yield extent_fault(kernel, name, sizes[name], limit, hint=hint)
    yield from _scale_path(kernel, chosen.sf_load)
    for op in kernel.of(Load) if chosen.sf_load != "st" else ():
        for axis in op.axes[:-1] if op.result in operand_scales(kernel) and in_atoms(op) else ():
            if sizes[axis.name] % ATOM_ROWS:
                limit = f"a multiple of {ATOM_ROWS}: `{op.tensor.name}` is packed in atoms"
                hint = f'use a multiple of {ATOM_ROWS}, or sf_load="st"'
                yield extent_fault(kernel, axis.name, sizes[axis.name], limit, op.loc, hint)
    yield from unfit_operands(kernel)
    forced = wanted_rings(kernel)
    used = sum(slot_columns(kernel, sizes).values()) + scale_columns_of(kernel, sizes)
    used += sum(n for ring, n in operand_columns(kernel, sizes).items() if ring in forced)
    if used > COLUMNS:
        both = " and operands" if forced else " and scale factors" if scaled else ""
        told = f"WS0421 accumulators{both} need {used} columns of tensor memory; it has {COLUMNS}"
        yield Finding(told, hint="use a narrower tile")


def _places(chosen: Schedule) -> set[str]:
    """Where computed operands are to be made."""
    asked = chosen.operand_transform
    return {asked} if isinstance(asked, str) else {*(asked or {}).values()}


def _pairs(kernel: Kernel, chosen: Schedule) -> Iterator[Finding]:
    """Check the cluster, the tile and the operands of CTA pairs."""
    sizes, axes = axis_sizes(kernel, chosen), axes_of(kernel)
    clusters = pair_clusters(kernel)
    if {name: num for name, num in (chosen.cluster or {}).items() if num > 1} not in clusters:
        named = [f"cluster=dict({name}={PAIR})" for pair in clusters for name in pair]
        instead = "leave it out, or map another axis to M (Schedule.mma_m)"
        hint = f"use {' or '.join(sorted(named))}" if named else instead
        yield pair_fault("Schedule.cluster is not a pair of CTAs along M", hint=hint)
    for name, axis in axes.items():
        if axis.role == "rows" and sizes[name] != PAIR_ROWS:
            limit = f"{PAIR_ROWS}: Schedule.cta_group is 2"
            yield extent_fault(kernel, name, sizes[name], limit)
        if axis.role == "columns" and sizes[name] % PAIR_STEP:
            limit = f"a multiple of {PAIR_STEP}: Schedule.cta_group is 2"
            yield extent_fault(kernel, name, sizes[name], limit)
    if chosen.multicast:
        yield pair_fault("its CTAs do not multicast: each loads half", hint="leave multicast out")
    for why in why_not_in_pairs(kernel):
        yield pair_fault(why)


def _scale_path(kernel: Kernel, asked: str | None) -> Iterator[Finding]:
    loads = [op for op in kernel.of(Load) if op.result in operand_scales(kernel)]
    unaligned = [*unaligned_scales(kernel)] if asked and not loads else []
    for name in unaligned:
        rows = f'WS0422 Schedule.sf_load="{asked}" needs rows of `{name}` that are 16-byte aligned'
        yield Finding(rows, hint="pad their stride: pass `[:, :n]` of a wider array")
    if asked and not loads and not unaligned:
        told = f'WS0423 Schedule.sf_load is "{asked}", and no matmul has block scale factors'
        yield Finding(told, hint="leave it out")
    for op in loads if asked == "cp" else ():
        if not in_atoms(op):
            name = op.tensor.name
            told = f'WS0424 Schedule.sf_load="{asked}" needs scale factors `{name}` packed in atoms'
            hint = f'compile kernel.packed("{name}"), and pass arrays of kernel.pack({name}=…)'
            yield Finding(told, op.loc, hint)


def _not_yet(kernel: Kernel, chosen: Schedule) -> Iterator[Finding]:
    many = num_cooperating(chosen) > 1
    asked = {
        "a cluster along the contraction axis": cluster_splits(kernel, chosen) > 1,
        f'scheduler="{chosen.scheduler}"': chosen.cuts_tiles,
        'mode="pingpong"': chosen.mode == "pingpong",
        f"consumers={chosen.consumers}": (chosen.consumers or 1) > 2,
        "consumers=2 with block scale factors": many and bool(operand_scales(kernel)),
        "consumers=2 with cta_group=2": many and in_pairs(chosen),
        "registers": chosen.registers is not None,
    }
    for name, is_asked in asked.items():
        if is_asked:
            told = f"WS0425 Schedule: {name} is not lowered for {kernel.target} yet"
            yield Finding(told, hint="leave it out")


def claim_faults(kernel: Kernel, chosen: Schedule) -> Iterator[Finding]:
    if chosen.scheduler != "dynamic":
        return
    if not kernel.target.claims_clusters:
        lacks = f"{kernel.target} has no cluster launch control (CLC)"
        hint = 'use scheduler="grid", or compile for arch="sm_100a"'
        yield Finding(f'WS0426 scheduler="dynamic" is not available: {lacks}', hint=hint)
    elif not kernel.of(Contract):
        told = 'WS0427 scheduler="dynamic" needs a matmul; the kernel has several CTAs per SM'
        yield Finding(told, hint='use scheduler="grid"')
