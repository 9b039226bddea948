"""Barriers of warps, warpgroups, CTAs and clusters, and proxy fences."""

from wsdsl.ir import ops
from wsdsl.simulator.state.mbarrier_state import NUM_NAMED, Meeting
from wsdsl.simulator.warpgroup import Blocked, Steps, Warpgroup


def sync_cta(wg: Warpgroup, op: ops.SyncCta) -> Steps:
    cta = wg.cta
    this_round = cta.sync_round
    cta.at_sync += 1
    wg.effect(op, "arrive", "cta", wg.everyone)
    if cta.at_sync == cta.num_warpgroups:
        cta.clocks.acquire(cta.everyone, cta.clocks.release(cta.everyone))
        cta.at_sync, cta.sync_round = 0, this_round + 1
    else:
        yield Blocked(
            op,
            lambda: cta.sync_round != this_round,
            lambda: f"all warpgroups; {cta.at_sync} of {cta.num_warpgroups} have arrived",
        )
    wg.effect(op, "wait", "cta", wg.everyone)


def sync_cluster(wg: Warpgroup, op: ops.SyncCluster) -> Steps:
    cluster, clocks = wg.cta.cluster, wg.cta.clocks
    this_round = cluster.sync_round
    cluster.at_sync += 1
    wg.effect(op, "arrive", "cluster", wg.everyone)
    expected = cluster.size * wg.cta.num_warpgroups
    if cluster.at_sync == expected:
        if op.relaxed:
            for barrier in cluster.barriers:
                barrier.show_initialised()
        else:
            clocks.acquire(cluster.everyone, clocks.release(cluster.everyone))
        cluster.at_sync, cluster.sync_round = 0, this_round + 1
    else:
        told = "all warpgroups of the cluster"
        yield Blocked(
            op,
            lambda: cluster.sync_round != this_round,
            lambda: f"{told}; {cluster.at_sync} of {expected} have arrived",
        )
    wg.effect(op, "wait", "cluster", wg.everyone)


def _number(wg: Warpgroup, op: ops.NamedBarrierSync | ops.NamedBarrierArrive) -> int:
    item = 0 if op.item is None else int(wg.get(op.item, op))
    if not 0 <= item < op.num:
        wg.outside(op, f"item {item} of {op.num} named barriers")
    return op.barrier + item


def _come(wg: Warpgroup, op: ops.NamedBarrierSync | ops.NamedBarrierArrive) -> Meeting:
    cta, number = wg.cta, _number(wg, op)
    if not 1 <= number <= NUM_NAMED:
        wg.fail(op, f"named barrier {number} is not one of 1 to {NUM_NAMED}")
    if not 1 <= op.num_warpgroups <= cta.num_warpgroups:
        wg.fail(op, f"it expects {op.num_warpgroups} of {cta.num_warpgroups} warpgroups")
    meeting = cta.meetings.get(number)
    if meeting is None:
        meeting = cta.meetings[number] = Meeting(op.num_warpgroups, op, cta.clocks)
    elif meeting.expected != op.num_warpgroups:
        there = ", ".join(meeting.names.values())
        wg.fail(
            op,
            f"it expects {op.num_warpgroups} warpgroups at named barrier {number}, not "
            f"{meeting.expected} as {there}",
            hint="use one num_warpgroups in all ops that synchronize",
            extra=meeting.opened_by,
        )
    if wg in meeting.names:
        wg.fail(op, f"it arrives twice at named barrier {number}, at which {meeting.state()}")
    wg.effect(op, "arrive", "named barrier", wg.everyone, number)
    meeting.come(wg, wg.name, cta.clocks.release(wg.everyone))
    if meeting.complete:
        del cta.meetings[number]
    return meeting


def named_barrier_sync(wg: Warpgroup, op: ops.NamedBarrierSync) -> Steps:
    meeting = _come(wg, op)
    if not meeting.complete:
        yield Blocked(
            op,
            lambda: meeting.complete,
            lambda: f"named barrier {_number(wg, op)}; {meeting.state()}",
        )
    wg.effect(op, "wait", "named barrier", wg.everyone, _number(wg, op))
    wg.cta.clocks.acquire(wg.everyone, meeting.clock)


def named_barrier_arrive(wg: Warpgroup, op: ops.NamedBarrierArrive) -> None:
    _come(wg, op)


def fence_async_proxy(wg: Warpgroup, op: ops.FenceAsyncProxy) -> None:
    clocks = wg.cta.clocks
    wg.effect(op, "fence", "shared", wg.actors)
    clocks.fence(wg.actors, clocks.proxy_fences)
    if op.everywhere:
        wg.effect(op, "fence", "global", wg.actors)
        clocks.fence(wg.actors, clocks.global_fences)


def sync_warp(wg: Warpgroup, op: ops.SyncWarp) -> None:
    for i in range(4):
        wg.effect(op, "arrive", "warp", wg.warp(i))
        wg.effect(op, "wait", "warp", wg.warp(i))
    wg.cta.clocks.sync_warps(wg.everyone)
