"""Have the clusters of a "dynamic" grid claim the tiles of those that have not started.

Before:
    partition(role="load") {
      %s3 = for_range(index=%work, start=%cta, stop=%num_work, step=%num_ctas, init=(%s,), ...) {
        ... copies ...
        yield(values=(%s2,))
      }
    }
After:
    partition(role="load") {
      %s3, ... = for_range(index=%work, start=%cta, stop=%num_work, step=%num_ctas, claimed=True,
                           init=(%s, %read, %asked, %cta), args=(%s1, %read1, %asked1, ...)) {
        ... copies ...
        mbarrier_arrive_expect_tx(barriers=%full, state=%read1, tx_bytes=16)
        mbarrier_wait(barriers=%empty, state=%asked1)
        clc_try_cancel(shared=%claims, state=%asked1, barriers=%full)
        mbarrier_wait(barriers=%full, state=%read1)
        %next: i32 = clc_query_cancel(shared=%claims, state=%read1)
        fence_async_proxy()
        mbarrier_arrive(barriers=%empty, state=%read1)
        yield(values=(%s2, %read2, %asked2, %next))
      }
    }

The first partition issues the claim when its copies are in flight: after the tile has begun, so
that a CTA with a long tile leaves the next tile to other CTAs, and still early, since MMAs have the
stages of the pipeline meanwhile. Each partition reads the response when its tile is complete. In a
cluster the first CTA claims for all, and their partitions release the response to it; at its end it
waits for these releases.

Before this pass each cluster computes its own tile, which is correct too: the loop has one trip.

Why here: no later pass reads loops over tiles, and barriers are known before they are initialized.
"""

from __future__ import annotations

import dataclasses
from contextlib import nullcontext
from typing import Any

from wsdsl.ir import ops
from wsdsl.ir.op import Kernel, Value, with_fields
from wsdsl.ir.ops import ANSWER_BYTES, DEPTH, Partition, Yield
from wsdsl.ir.rewriter import Namer, yielded
from wsdsl.ir.types import Barriers, Shared, State
from wsdsl.lowering.builder import FLAG, INT, Builder
from wsdsl.lowering.cooperation import by_one_thread
from wsdsl.lowering.cta_pairs import in_pairs
from wsdsl.lowering.placed_ring import drain
from wsdsl.lowering.raster import work_loop
from wsdsl.record import record

WARPS = 4
FIRST = 0
"""The rank of the CTA that asks."""


def claim_tiles(kernel: Kernel) -> Kernel:
    grid = ops.grid_of(kernel)
    if grid is None or grid.scheduler != "dynamic":
        return kernel
    readers = [op for op in kernel.body if isinstance(op, Partition) and work_loop(kernel, op.body)]
    b = Builder(Namer.of(kernel))
    ring = _Ring.of(b, grid.cluster)
    made = [_Reader(kernel, b, ring, op, op is readers[0]) for op in readers]
    claiming = {reader.of: reader.partition() for reader in made}
    arrivals = sum(reader.arrivals for reader in made)
    empty = ops.AllocateMbarriers(result=ring.empty, label=ring.empty.name, arrivals=arrivals)
    b.declarations.append(empty)
    body = [
        claiming[op] if isinstance(op, Partition) and op in claiming else op for op in kernel.body
    ]
    return kernel.with_body(b.declared(tuple(body)))


@record
class _Ring:
    """The pipeline of CLC responses in each CTA; readers release it to the first CTA of the
    cluster.
    """

    claims: Value
    full: Value
    empty: Value
    ctas: int

    @classmethod
    def of(cls, b: Builder, ctas: int) -> _Ring:
        claims = b.shared("claims", Shared(ANSWER_BYTES, DEPTH))
        return cls(claims, b.barriers("full", DEPTH, 1), b.value("empty", Barriers(DEPTH)), ctas)


class _Reader:
    """A partition that goes through the tiles that its cluster has claimed."""

    def __init__(
        self, kernel: Kernel, b: Builder, ring: _Ring, partition: Partition, asks: bool
    ) -> None:
        loop = work_loop(kernel, partition.body)
        assert loop is not None
        self.b, self.ring, self.of, self.loop, self.asks = b, ring, partition, loop, asks
        self.alone = by_one_thread(partition)
        leads = partition.role == "mma" and in_pairs(kernel.schedule)
        """Of a pair the first CTA multiplies for both."""
        warps = 1 if self.alone else WARPS * partition.num_warpgroups
        self.arrivals = warps * (1 if leads else ring.ctas)

    def partition(self) -> Partition:
        at = self.of.body.index(self.loop)
        self.b.loc = self.loop.loc
        with self.b.region() as members:
            self.claimed()
        body = (*self.of.body[:at], *members, *self.of.body[at + 1 :])
        return dataclasses.replace(self.of, body=body)

    def claimed(self) -> None:
        """The loop, of claimed tiles."""
        b, loop = self.b, self.loop
        first: Value | None = None
        if self.asks and self.ring.ctas > 1:
            first = b.map("eq", b.rank(), b.integer(FIRST), type=FLAG, wish="asks")
        other = b.integer(FIRST) if self.ring.ctas > 1 else None
        parities = (0, 1) if self.asks else (0,)
        states = [b.first_state(parity) for parity in parities]
        args = [b.value("s", State()) for _ in states]
        with b.region() as body:
            b.ops += loop.body[:-1]
            if self.asks:
                self.ask(args[0], args[1], first)
            following = self.read(args[0], other)
            handed = [b.next_state(arg, DEPTH) for arg in args]
            b.add(Yield(values=(*yielded(loop.body), *handed, following), loc=loop.loc))
        results = [b.value("s", State()) for _ in states]
        result = (*loop.result, *results, b.value("last", INT))
        args = (*loop.args, *args, b.value("claimed", INT))
        carried = dict(result=result, init=(*loop.init, *states, loop.start), args=args)
        b.add(with_fields(loop, claimed=True, **carried, body=tuple(body)))
        if first:
            with b.when(first), b.elected(not self.alone):
                drain(b, self.ring.empty, results[-1])

    def ask(self, read: Value, asked: Value, first: Value | None) -> None:
        """For the tile behind this one. Each CTA of the cluster gets the answer, and expects it."""
        b, ring = self.b, self.ring
        with b.elected(not self.alone):
            b.expect(ring.full, read, ANSWER_BYTES)
            with nullcontext() if first is None else b.when(first):
                b.wait(ring.empty, asked)
                where = dict[str, Any](shared=ring.claims, state=asked, barriers=ring.full)
                b.add(ops.ClcTryCancel(**where, ctas=ring.ctas, loc=b.loc))

    def read(self, state: Value, other: Value | None) -> Value:
        b, ring = self.b, self.ring
        b.wait(ring.full, state)
        answer = dict[str, Any](shared=ring.claims, state=state, ctas=ring.ctas)
        made = b.make(ops.ClcQueryCancel, "next", INT, **answer)
        b.fence_smem()
        if not self.alone:
            b.sync_threads(None)
        b.arrive(ring.empty, state, cta=other, each_warp=not self.alone)
        return made
