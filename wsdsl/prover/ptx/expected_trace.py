"""The synchronising events of a SCHEDULED kernel, as codegen is to emit them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from wsdsl.ir import ops
from wsdsl.ir.hardware.swizzle import PACKED_SPAN
from wsdsl.ir.hardware.wgmma_shapes import k_step
from wsdsl.ir.op import Kernel, Op, Region, Value
from wsdsl.ir.ops import (
    BLOCK_BYTES,
    BLOCK_COLUMNS,
    HELD_BYTES,
    Partition,
    by_warpgroup,
)
from wsdsl.ir.rewriter import yielded
from wsdsl.ir.types import DTYPES, Barriers, Fragment
from wsdsl.prover.ptx.accessed_bytes import kinds_of
from wsdsl.prover.ptx.expected_paths import Change, Fill, Items, Places, Skeleton, of_warps
from wsdsl.prover.ptx.loop_events import both_ways, loop_events, of_several
from wsdsl.prover.ptx.register_values import FOLDED
from wsdsl.prover.ptx.sync_events import EVERYBODY, EVERYWHERE, Letter
from wsdsl.prover.ptx.sync_trace_builder import ThreadSet, TraceBuilder
from wsdsl.prover.ptx.tma_store_fills import partial_fills, store_fills, wgmma_told
from wsdsl.prover.ptx.tmem_events import operand_event, tensor_events

CONDITIONAL = "conditional "
"""An event that depends on more than which thread it is."""
ASK, QUERY = "clusterlaunchcontrol.try_cancel", "clusterlaunchcontrol.query_cancel"
IS_CLAIMED, CLAIMED = f"{QUERY}.is_canceled", f"{QUERY}.get_first_ctaid::x"
"""The cluster of a response is read where it has one."""


def skeleton_of_kernel(kernel: Kernel, together: bool = False) -> tuple[Skeleton, Places]:
    """With `together`, loops of the same bounds that stand one behind the other all run or none."""
    made = _Builder(together, kernel.definers)
    num = sum(op.num_warpgroups for op in kernel.body if isinstance(op, Partition)) or 1
    made.places.num_threads = 128 * num
    made.region(kernel.body, ThreadSet(num=num))
    made.graph.end = made.now
    return made.graph, made.places


class _Builder(TraceBuilder):
    # Shapes of control ---------------------------------------------------------------------------

    def region(self, region: Region, who: ThreadSet) -> None:
        at = 0
        while at < len(region):
            op, last = region[at], at + 1
            if self.together and (bounds := of_several(self, op, region[last:])):
                both_ways(self, bounds, region[at:], who)
                return
            if isinstance(op, Partition):
                while last < len(region) and isinstance(region[last], Partition):
                    last += 1
                self.partitions(region[at:last])
            else:
                self.op(op, who)
            at = last

    def partitions(self, members: Sequence[Op]) -> None:
        """Each warpgroup runs one, and those of its further warps; the last one what is left."""
        bodies: list[tuple[list[tuple[Region, ThreadSet]], int]] = []
        first = 0
        for together in by_warpgroup([op for op in members if isinstance(op, Partition)]):
            who = ThreadSet(first, together[0].num_warpgroups, inside=True)
            sharing = [(op.body, replace(who, warp=warp)) for warp, op in enumerate(together)]
            bodies.append((sharing, who.one_in(1)))
            first += together[0].num_warpgroups
        self.either(bodies)

    def either(self, bodies: Sequence[tuple[Sequence[tuple[Region, ThreadSet]], int]]) -> None:
        before, ends = self.now, list[int]()
        for sharing, threads in bodies:
            self.now = self.silent(before, threads=threads)
            for body in sharing:
                self.region(*body)
            ends.append(self.now)
        self.now = self.silent(*ends)

    def branches(self, op: ops.If, who: ThreadSet) -> None:
        known, before, ends = self.known.get(op.cond), self.now, list[int]()
        own = self.by_warpgroup.get(op.cond, (known,) * (self.places.num_threads // 128))
        for body, wanted in (op.then, True), (op.orelse, False):
            if not (groups := [g for g, x in enumerate(own) if x is None or bool(x) == wanted]):
                continue
            threads = EVERYBODY
            if len(groups) < len(own):
                threads = sum(ThreadSet(group, 1).one_in(1) for group in groups)
            self.now = self.silent(before, threads=threads)
            self.region(body, who)
            self.changed(list(zip(op.result, yielded(body), strict=True)))
            ends.append(self.now)
        self.now = self.silent(*ends)

    def elect(self, op: ops.Elect, who: ThreadSet) -> None:
        before = self.now
        threads = 1
        if who.inside:
            threads = (1 << 32) - 1 << 128 * who.first + 32 * who.warp
            self.now = self.graph.node(Letter("elect.sync"), op, threads)
            self.graph.join(before, self.now)
        else:
            self.now = self.silent(before, threads=threads)
        asked = self.now
        self.region(op.body, replace(who, elected=True))
        # Which lane is elected is not known.
        done = self.silent(self.now, *([asked] if who.inside else []))
        self.now = self.silent(done, self.silent(before, threads=~threads))

    def fold_by(self, held: dict[Value, tuple[int, ...]], op: ops.Map) -> None:
        num = len(next(held[x] for x in op.args if x in held))
        each = [held.get(x) or (self.known.get(x),) * num for x in op.args]
        if None in sum(each, ()):
            return
        if op.fn not in ("floordiv", "mod") or 0 not in each[1]:
            found = (FOLDED[op.fn](*x) for x in zip(*each, strict=True))
            held[op.result] = tuple(int(x) for x in found)

    # Ops -----------------------------------------------------------------------------------------

    def op(self, op: Op, who: ThreadSet) -> None:
        # Scale factors are read between stores to TMEM (`tmem_events.py`).
        for kind in () if isinstance(op, ops.StoreScaleFactors) else kinds_of(op, self.definers):
            self.emit(op, kind)
        match op:
            case ops.Constant():
                self.known[op.result] = op.value
            case ops.CtaRank():
                self.by_rank[op.result] = tuple(range(self.cluster))
            case ops.WarpgroupIndex():
                groups = range(self.places.num_threads // 128)
                self.by_warpgroup[op.result] = tuple(g - who.first for g in groups)
            case ops.Map() if op.fn in FOLDED and any(x in self.by_warpgroup for x in op.args):
                self.fold_by(self.by_warpgroup, op)
            case ops.Map() if op.fn in FOLDED and any(x in self.by_rank for x in op.args):
                self.fold_by(self.by_rank, op)
            case ops.Map() if op.fn in FOLDED and all(x in self.known for x in op.args):
                args = [self.known[v] for v in op.args]
                if args[-1] or op.fn not in ("floordiv", "mod"):
                    self.known[op.result] = FOLDED[op.fn](*args)
            case ops.If():
                self.branches(op, who)
            case ops.InitialState() | ops.Advance():
                of, num = (op.parity, 0) if isinstance(op, ops.InitialState) else (op.state, op.num)
                self.now = self.silent(self.now)
                self.graph.changes[self.now] = Change(((op.result, of, num),))
            case ops.ForRange():
                loop_events(self, op, who)
            case ops.Elect():
                self.elect(op, who)
            case ops.LaunchGrid():
                self.cluster = self.places.ranks = op.cluster
            case ops.AllocateMbarriers():
                name, num = f"{op.label} (at {op.offset})", op.result.type_as(Barriers).num
                self.places.barriers[op.result] = Items(name, op.offset, num)
                self.arrivals[op.result] = op.arrivals
            case ops.MakeTensorMap():
                self.packed |= {op.result} if op.swizzle in PACKED_SPAN else set()
                self.boxes[op.result] = op.tensor.as_tensor.dtype.size(math.prod(op.box))
            case ops.AllocateShared():
                self.shared[op.result] = op
            case _:
                self.event(op, who)

    def event(self, op: Op, who: ThreadSet) -> None:
        match op:
            case ops.MbarrierInit():
                items, count = self.places.barriers[op.barriers], str(self.arrivals[op.barriers])
                for i in range(items.num):
                    self.emit(op, "mbarrier.init", count, f"{items.name}[{i}]")
            case ops.FenceMbarrierInit():
                self.emit(op, "fence.mbarrier_init")
                self.emit(op, "fence.proxy.async")
            case ops.GriddepWait():
                self.emit(op, "griddepcontrol", "wait")
            case ops.GriddepLaunchDependents():
                self.emit(op, "griddepcontrol", "launch_dependents")
            case ops.SyncCta():
                self.emit(op, "bar.sync", "0")
            case ops.SyncCluster():
                self.emit(op, "barrier.cluster.arrive" + ".relaxed" * op.relaxed)
                self.emit(op, "barrier.cluster.wait")
            case ops.NamedBarrierSync() | ops.NamedBarrierArrive():
                kind = "bar.sync" if isinstance(op, ops.NamedBarrierSync) else "bar.arrive"
                items, threads = self.of_warpgroups(op.item), str(128 * op.num_warpgroups)
                number = [x if x is None else op.barrier + x for x in items for _ in range(4)]
                detail = f"{op.barrier}, {threads}" if op.item is None else threads
                fill = None if op.item is None else Fill(number=of_warps(number))
                self.emit(op, kind, detail, fill=fill)
            case ops.SyncWarp():
                self.emit(op, "bar.warp.sync")
            case ops.FenceAsyncProxy():
                self.emit(op, "fence.proxy.async", EVERYWHERE if op.everywhere else "")
            case ops.Setmaxnreg():
                self.emit(op, f"setmaxnreg.{'inc' if op.increase else 'dec'}", str(op.count))
            case ops.MbarrierWait():
                fill = Fill(self.places.barriers[op.barriers], op.state, parity=True)
                self.emit(op, "mbarrier.try_wait", fill=fill)
            case ops.MbarrierArrive():
                kind = "mbarrier.arrive" if op.cta is None else "remote mbarrier.arrive"
                threads = EVERYBODY if op.each_thread else who.one()
                if op.each_warp:
                    threads = who.one_in(32)
                pred = True if op.pred is None else self.known.get(op.pred)
                if pred is not None:
                    threads = threads if pred else 0
                else:
                    kind = CONDITIONAL + kind
                items, cta = self.places.barriers[op.barriers], self.of_ranks(op.cta)
                self.emit(op, kind, threads=threads, fill=Fill(items, op.state, cta=cta))
            case ops.MbarrierArriveExpectTx():
                kind = "remote " * (op.cta is not None) + "mbarrier.arrive.expect_tx"
                items, cta = self.places.barriers[op.barriers], self.of_ranks(op.cta)
                self.emit(op, kind, str(op.tx_bytes), fill=Fill(items, op.state, cta=cta))
            case ops.ClcTryCancel():
                start, stride = self.item(op.shared, 0)
                fill = Fill(self.places.barriers[op.barriers], op.state, start=start, stride=stride)
                self.emit(op, "multicast " * (op.ctas > 1) + ASK, fill=fill)
            case ops.ClcQueryCancel():
                self.emit(op, IS_CLAIMED)
                self.emit(op, CONDITIONAL + CLAIMED)
            case ops.SemaphoreArrive():
                kind = f"red.{'release' if op.release else 'relaxed'}.gpu"
                kind += ".inc" if op.wrap is not None else ".add"
                told = str(op.amount) if op.by is op.wrap is None else "a register"
                self.emit(op, kind, told, threads=who.one())
            case ops.SemaphoreWait():
                self.emit(op, "ld.acquire.gpu")
            case _:
                self.copy_or_product(op, who)

    def copy_or_product(self, op: Op, who: ThreadSet) -> None:
        match op:
            case ops.TmaLoad():
                kind = "multicast " * (op.multicast is not None) + "TMA load"
                kind = "pair's " * (op.cta is not None) + kind
                # Lines of a block and bytes of a line are dimensions of their own.
                rank = f"{len(op.coordinates) + 2 * (op.map in self.packed)}d"
                self.emit(op, kind, rank, fill=self.destination(op))
            case ops.SendFragment():
                for block in range(op.value.as_fragment.columns // BLOCK_COLUMNS):
                    self.emit(op, "st.async", "16 bytes", fill=self.sent(op, block * BLOCK_BYTES))
            case ops.StorePartials() if op.barriers is not None:
                start = self.shared[op.shared].offset + op.offset
                for lanes, fill in partial_fills(op, self.places, start, who.first, who.num):
                    threads = sum(who.one_in(32) << lane for lane in lanes)
                    self.emit(op, "st.async", "4 bytes", threads=threads, fill=fill)
            case ops.TmaStore():
                kind = "TMA reduction" if op.accumulate else "TMA store"
                rank, start = f"{len(op.coordinates)}d", self.shared[op.shared].offset
                places = self.boxes[op.map], start, self.of_warpgroups(op.item)
                for warps, fill in store_fills(op, *places):
                    threads = sum(who.one_in(128) << 32 * warp for warp in warps)
                    self.emit(op, kind, rank, threads=threads, fill=fill)
            case ops.TmaStoreCommit():
                self.emit(op, "cp.async.bulk.commit_group", threads=who.one_in(32))
            case ops.TmaStoreWait():
                kind = "cp.async.bulk.wait_group" + ".read" * op.read
                self.emit(op, kind, str(op.pending), threads=who.one_in(32))
            case ops.WgmmaFence():
                self.emit(op, "wgmma.fence")
            case ops.EmptyAccumulator():
                self.empty.add(op.result)
            case ops.Wgmma():
                known = self.known.get(op.accumulate)
                if known is False and op.acc not in self.empty:
                    known = None  # It takes over registers, by a flag that nobody can fold.
                for step in range(op.k // k_step(DTYPES[op.dtype])):
                    self.emit(op, "wgmma.mma_async", wgmma_told(op, step, known))
                    for x in (op.a, op.b):
                        if not isinstance(x.type, Fragment):
                            operand_event(self, op, x, step)
            case ops.SmemDescriptor():
                self.operands[op.result] = op
            case ops.WgmmaCommit():
                self.emit(op, "wgmma.commit_group")
            case ops.WgmmaWait():
                self.emit(op, "wgmma.wait_group", str(op.pending))
            case _:
                tensor_events(self, op, who.first)

    def sent(self, op: ops.SendFragment, further: int) -> Fill:
        start, stride = self.item(op.shared, op.offset + further)
        barriers, cta = self.places.barriers[op.barriers], self.of_ranks(op.cta)
        shifts = self.of_warpgroups(op.shift)

        def place(tid: int, _: int) -> int | None:
            shift = shifts[tid // 128]
            return None if shift is None else shift + HELD_BYTES * (tid % 128)

        return Fill(barriers, op.state, start=start, stride=stride, further=place, cta=cta)

    def destination(self, op: ops.TmaLoad) -> Fill:
        start, stride = self.item(op.shared, op.offset)
        fill = Fill(self.places.barriers[op.barriers], op.state, start=start, stride=stride)
        further = self.of_ranks(op.shift) or fill.further
        return replace(fill, further=further, cta=self.of_ranks(op.multicast or op.cta))
