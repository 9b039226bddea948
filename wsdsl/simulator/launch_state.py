"""The state of a launch: the number of CTAs, and the clusters that run together."""

import numpy as np

from wsdsl.diagnostics import Finding
from wsdsl.ir import ops
from wsdsl.ir.analysis.launch_narrowing import narrowed, narrowing_of
from wsdsl.ir.analysis.tile_widths import fastest_narrowing
from wsdsl.ir.op import Kernel
from wsdsl.ir.tile_scheduler import TileScheduler, count_work, tile_scheduler
from wsdsl.ir.types import Barriers
from wsdsl.record import record
from wsdsl.simulator.cta import Cluster, Cta, Residents
from wsdsl.simulator.reference.arithmetic import numpy_dtype
from wsdsl.simulator.reference.bound_arrays import Arguments, GlobalTensor
from wsdsl.simulator.simulation_error import SimulationError
from wsdsl.simulator.state.register_fragments import RegisterOperands, register_operands
from wsdsl.simulator.warpgroup import Warpgroup, warpgroup_key

NUM_SMS = 4


@record
class Launch:
    """Attributes that all CTAs share."""

    partitions: tuple[ops.Partition, ...]
    smem_bytes: int
    num_barriers: int
    registers: int
    operands: frozenset[str]
    grid_size: int
    cluster: int
    together: int
    """How many clusters run at the same time."""
    have_flags: bool
    """Do clusters wait for each other? Those that do not run one after another."""

    @property
    def num_warpgroups(self) -> int:
        return sum(p.num_agents for p in self.partitions)

    @property
    def grid_clusters(self) -> int:
        return self.grid_size // self.cluster

    @property
    def keys(self) -> list[str]:
        """The names of all warpgroups."""
        return [
            warpgroup_key(cta, number, partition, rank)
            for cta in range(self.grid_size)
            for number, partition in enumerate(self.partitions)
            for rank in range(partition.num_agents)
        ]


def _grid(kernel: Kernel, arguments: Arguments, num_sms: int | None) -> tuple[int, int, int]:
    """The numbers of CTAs, of CTAs in a cluster, and of clusters that may run together."""
    grid = ops.grid_of(kernel)
    if grid is None:
        return 1, 1, 1
    size = grid.cluster
    if not 1 <= size <= kernel.target.max_cluster:
        told = f"a cluster of {size} CTAs exceeds the limit of {kernel.target.max_cluster}"
        raise SimulationError("misuse", [Finding(told, grid.loc)])
    scheduler, tiles, depth = work_of(grid, arguments)
    if num_sms is None:
        num_sms = max(NUM_SMS, size * scheduler.num_together(tiles, depth))
    room = num_sms // size
    if told := scheduler.fault(tiles, depth, max(1, room)):
        raise SimulationError("misuse", [Finding(told, grid.loc)])
    clusters = scheduler.num_workers(tiles, depth, max(1, room))
    together = clusters if grid.scheduler not in ("grid", "dynamic") else min(num_sms, clusters)
    return clusters * size, size, together


def at_width(kernel: Kernel, arguments: Arguments, num_sms: int | None) -> Kernel:
    """Return the kernel at the width of a launch of these sizes, if launches differ."""
    found = narrowing_of(kernel)
    grid = ops.grid_of(kernel)
    if found is None or grid is None:
        return kernel
    sizes, room = arguments.size, (num_sms or NUM_SMS) // grid.cluster
    return narrowed(kernel, fastest_narrowing(grid.tiles, grid.narrowed, found.widths, sizes, room))


def work_of(grid: ops.LaunchGrid, arguments: Arguments) -> tuple[TileScheduler, int, int]:
    """The tile scheduler, its tiles (for clusters), and tiles of the contraction in each."""
    scheduler = tile_scheduler(grid.scheduler, grid.splits, grid.together)
    return scheduler, *count_work(grid.tiles, grid.contraction, arguments.size)


def size_workspace(kernel: Kernel, arguments: Arguments, launch: Launch) -> None:
    """Compute the first dimension of the workspace tensors."""
    grid = ops.grid_of(kernel)
    for op in kernel.of(ops.AllocateGlobal):
        first = op.result.as_tensor.dims[0]
        assert isinstance(first, str) and grid is not None
        scheduler, tiles, depth = work_of(grid, arguments)
        slots = scheduler.num_slots(tiles, depth, launch.grid_clusters)
        arguments.sizes[first] = op.each * max(1, slots)


def lend(kernel: Kernel, arguments: Arguments, launch: Launch) -> None:
    """Make the workspace tensors a launch; garbage in those that hold anything."""
    size_workspace(kernel, arguments, launch)
    for op in kernel.of(ops.AllocateGlobal):
        first, *rest = op.result.as_tensor.dims
        shape = (arguments.size(first), *(int(n) for n in rest))
        dtype = op.result.as_tensor.dtype
        anything = float("nan") if dtype.is_float else 77
        array = np.full(shape, 0 if op.zeroed else anything, numpy_dtype(dtype))
        name = op.result.name
        arguments.tensors[name] = GlobalTensor(name, dtype, array, op.fragments)


def check_left(kernel: Kernel, arguments: Arguments) -> None:
    """Check that zeroed workspace is 0 again at the end of the kernel."""
    for op in (op for op in kernel.of(ops.AllocateGlobal) if op.zeroed):
        left = np.argwhere(arguments.tensors[op.result.name].array)
        if len(left):
            told = f"{op.result.name}{left[0].tolist()} is not 0 when the kernel ends"
            hint = "reset it to 0: the next launch reads it"
            raise SimulationError("misuse", [Finding(told, op.loc, hint)])


def read_launch(kernel: Kernel, arguments: Arguments, num_sms: int | None) -> Launch:
    smem_bytes = max([own.stop for _, own in kernel.allocations], default=0)
    _check_placement(kernel, smem_bytes)
    partitions = tuple(kernel.of(ops.Partition))
    entry = kernel.target.entry_registers(max(1, ops.num_warpgroups(kernel)))
    grid_size, cluster, together = _grid(kernel, arguments, num_sms)
    synchronizers = {getattr(e, "on", "") for _, effects in kernel.effects for e in effects}
    have_flags = "semaphore" in synchronizers
    return Launch(
        partitions or (ops.Partition(role="kernel"),),
        smem_bytes,
        sum(op.result.type.num for op in kernel.making(Barriers)),
        # ptxas gives a kernel no more at entry than its largest setmaxnreg asks for.
        min([entry, max([op.count for op in kernel.of(ops.Setmaxnreg)], default=entry)]),
        register_operands(kernel),
        grid_size,
        cluster,
        max(1, together) if have_flags else 1,
        have_flags,
    )


def _check_placement(kernel: Kernel, smem_bytes: int) -> None:
    """Barriers lie apart from each other and from data, and all within the SMEM of a CTA."""
    findings: list[Finding] = []
    for op in kernel.making(Barriers):
        start, end = op.offset, op.offset + op.smem_bytes
        if start < 0 or start % 8:
            findings.append(Finding(f"barriers `{op.label}` at the misaligned SMEM offset {start}"))
        for other, own in kernel.allocations:
            if other is not op and start < own.stop and own.start < end:
                label = getattr(other, "label", "tensor memory")
                findings.append(Finding(f"barriers `{op.label}` overlap `{label}` in SMEM"))
    if smem_bytes > (room := kernel.target.smem_bytes):
        findings.append(Finding(f"{smem_bytes} bytes of SMEM; a CTA has {room}"))
    if findings:
        raise SimulationError("misuse", findings)


def start_cluster(launch: Launch, index: int, residents: Residents) -> list[Warpgroup]:
    """Return the warpgroups of a new cluster."""
    warpgroups: list[Warpgroup] = []
    cluster = Cluster(index, launch.grid_clusters, launch.cluster)
    for i in range(index * launch.cluster, (index + 1) * launch.cluster):
        resources = launch.smem_bytes, launch.registers
        cta = Cta(i, launch.grid_size, residents, cluster, *resources)
        for number, partition in enumerate(launch.partitions):
            for rank in range(partition.num_agents):
                wg = Warpgroup(cta, partition, number, rank)
                wg.operands = RegisterOperands(launch.operands)
                warpgroups.append(wg)
    return warpgroups
