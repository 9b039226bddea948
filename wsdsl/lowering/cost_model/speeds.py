"""How quick the parts of the card are, by the share of all SMs that ask for them.

Lines that several CTAs of a GPC want at the same time come to it once. CTAs whose numbers follow
each other do, and those of a cluster; clusters get out of step with each other.
"""

import math

from wsdsl.ir.analysis.tile_widths import fastest_narrowing, narrowings
from wsdsl.ir.hardware.target import Target
from wsdsl.ir.types import Sizes
from wsdsl.lowering.cooperation import cluster_along, cluster_size
from wsdsl.lowering.cost_model import constants
from wsdsl.lowering.cost_model.workload import Work, Workload
from wsdsl.rates import Rates
from wsdsl.schedule import Schedule

NARROW, NEARLY_NARROW, NARROW_ROWS = 1.095, 0.85, 128
"""Where loading takes longer than products by so much, it is the limit, or may be, of one wave; and
most rows of tiles that do not run ahead by themselves."""


def larger(a: float, b: float) -> float:
    """The larger of two that run beside each other, and a little more where they are close."""
    top, sharp = max(a, b, 1.0), constants.SHARPNESS
    return top * ((a / top) ** sharp + (b / top) ** sharp) ** (1 / sharp)


def issuing(rates: Rates, warps: int) -> float:
    """Instructions a cycle of threads, of so many warps a scheduler."""
    return rates.fma_lanes * (1 - (1 - constants.READY) ** warps)


def clock_pace(rates: Rates, share: float) -> float:
    """By how much longer an SM takes than at the clock in which all is told, if so many multiply:
    power goes by the third power of the clock."""
    power = share + (1 - share) * constants.IDLE_POWER
    return max(rates.tensor_smem_clock / rates.clock, power ** (1 / 3))


def pace_of(asked: Workload, share: float) -> float:
    # Threads that compute take what idle SMs leave: i4 weights ran at 1.60 GHz on 112 of 132 SMs.
    return 1.0 if asked.decodes else clock_pace(asked.rates, share if asked.product_cycles else 0.0)


def power(rates: Rates, bytes_per_cycle: float) -> float:
    """By how much longer products take, as the clock is lower the more there is to move."""
    moved = min(1.0, bytes_per_cycle / constants.RATE_BYTES)
    return 1 + (rates.tensor_smem_clock / rates.tensor_l2_clock - 1) * moved


def l2_bytes(rates: Rates, share: float) -> float:
    """That come to an SM in a cycle, of lines that others want as well, if so many of all ask."""
    return rates.l2_one_bytes + share * (rates.l2_bytes - rates.l2_one_bytes)


def crowding(rates: Rates, share: float) -> float:
    """Of the time that bytes take which no other SM wants, if all SMs move such: one alone takes no
    more than it can."""
    return max(share, rates.l2_own_bytes / rates.l2_one_bytes)


def loaded_cycles(asked: Workload, share: float) -> float:
    """From a load to its data, as so many of all SMs load."""
    idle, loaded = asked.rates.tma_dram_cycles, asked.rates.dram_loaded_ns * asked.clock
    return idle + max(0.0, loaded - idle) * share


def apart_cycles(asked: Workload, memory: float, cycles: float, in_step: int) -> float:
    """From the end of the mean CTA to that of the last one, where operands are computed;
    `in_step`: CTAs that load for each other."""
    held_up = min(1.0, memory / max(1.0, cycles)) ** constants.HELD_UP
    return held_up * constants.APART_NS * asked.clock / math.sqrt(in_step) if asked.decodes else 0.0


def cluster_gain(rates: Rates, size: int, multicast: bool) -> float:
    """By how much quicker operands come to CTAs of a cluster, since they lie in one GPC."""
    plain = rates.l2_cluster_2_bytes, rates.l2_cluster_4_bytes
    both = (rates.l2_multicast_2_bytes, rates.l2_multicast_4_bytes) if multicast else plain
    return 1.0 if size == 1 else both[size > 2] / rates.l2_bytes


def best_gain(rates: Rates) -> float:
    return max(cluster_gain(rates, size, cast) for size in (2, 4) for cast in (False, True))


def gain_of(asked: Workload, schedule: Schedule, tile: Sizes) -> float:
    """By how much quicker operands come than to CTAs of their own in steady state: without
    multicast where all tiles run at the same time."""
    splits = (schedule.splits or 1) if schedule.scheduler == "split_k" else 1
    pieces, target = asked.tiles * min(splits, max(1, asked.depth)), asked.target
    # Those of several widths gain all the same (benchmarks/results/one_off_races.md).
    few = (schedule.tile_n_variants or 1) == 1 and pieces <= target.num_sms
    if few and are_scattered(asked.work, tile, asked.work.clustered(schedule)):
        return 1 / constants.ASTRAY
    multicast = schedule.multicast is not False
    gains = multicast or is_one_wave(target, pieces)
    return cluster_gain(asked.rates, cluster_size(schedule), multicast) if gains else 1.0


def are_scattered(work: Work, tile: Sizes, cluster: Sizes) -> bool:
    """Whether those that want half of what is loaded are in several clusters: W[n, k] by three of
    cluster=dict(n=4), if tiles along m are three. What more want than GPCs comes to each anyhow."""
    size = math.prod(cluster.values())
    loaded = scattered = 0.0
    for load in work.load_terms if size > 1 else ():
        outside = [axis for axis, _ in work.outer if axis and axis not in load.axes]
        wanted = math.prod([work.places(axis, tile) for axis in outside])
        together = math.prod([cluster.get(axis, 1) for axis in outside])
        own = work.num_bytes(load.op.tensor.as_tensor)
        loaded += own
        scattered += own * (together < min(wanted, size) and wanted < constants.GPCS * together)
    return scattered >= loaded / 2 > 0


def at_launch(work: Work, schedule: Schedule, tile: Sizes) -> Sizes:
    """Elements of a tile as a launch of known sizes has them, which chooses its width."""
    if (schedule.tile_n_variants or 1) == 1 or schedule.cuts_tiles:
        return tile
    axes = work.axes
    found = next((axis for axis in axes if work.roles[axis.name] == "columns"), None)
    if found is None or tile[found.name] <= narrowings(schedule.tile_n_variants or 1)[-1]:
        return tile  # It is refused.
    sides = tuple((a.dim, tile[a.name] * cluster_along(schedule, a.name)) for a in axes)
    room = work.target.cluster_room(cluster_size(schedule))
    narrower = fastest_narrowing(
        sides, axes.index(found), schedule.tile_n_variants or 1, work.size, room
    )
    return {**tile, found.name: tile[found.name] - narrower}


def loading_cycles(asked: Workload) -> float:
    """In which a tile's operands can come from L2."""
    return asked.operand_bytes / asked.rates.l2_bytes


def is_narrow(asked: Workload, least: float = NARROW) -> bool:
    """Whether to bring operands takes longer than products by so much; not so where consumers have
    several blocks of rows, which want deep rings."""
    slow = loading_cycles(asked) > least * asked.product_cycles
    return slow and asked.rows <= NARROW_ROWS


def is_one_wave(target: Target, pieces: int) -> bool:
    """Whether most SMs have one, and no SM two."""
    return target.num_sms / 2 < pieces <= target.num_sms


def is_narrow_wave(asked: Workload, least: float = NARROW) -> bool:
    """The same of whole tiles, where to load operands is the limit."""
    return is_one_wave(asked.target, asked.tiles) and is_narrow(asked, least)
