"""Let CTAs share the contraction of a tile (split-K, stream-K, clusters along it): each sums a
piece, one finishes, or each a part of the columns.

Before:
    for_work(index=(%m, %n), dims=("M", "N"), scheduler="stream_k") {
      %acc = for_tiles(index=%k, init=(%zeros,), args=(%x,)) { ... }
      store(tensor=%C, index=(%m, %n), value=%acc)
    }
After:
    for_work(index=(%m, %n), dims=("M", "N"), scheduler="stream_k", contraction=(("K", 64),),
             piece=(%slot, %begin, %end)) {
      %acc = for_tiles(index=%k, start=%begin, stop=%end, init=(%zeros,), args=(%x,)) { ... }
      splitk_fixup(sums=(%acc,), slot=%slot, begin=%begin, end=%end, contraction="K",
                   args=(%sum,)) {
        store(tensor=%C, index=(%m, %n), value=%sum)
      }
    }

Why here: the two sides have their own loops, and must walk the same pieces.
"""

from wsdsl.ir.op import Kernel, Op, Region, Value, regions, uses, walk, with_fields
from wsdsl.ir.ops import ConsumerRelease, ForTiles, ForWork, Partition, SplitkFixup, Yield
from wsdsl.ir.rewriter import (
    Namer,
    copy_region,
    makers,
    replace_operands,
    rewrite,
    with_regions,
    yielded,
)
from wsdsl.ir.types import Axis
from wsdsl.lowering.builder import INT
from wsdsl.lowering.cooperation import cluster_splits_beside
from wsdsl.lowering.split_k_rules import joined_by
from wsdsl.schedule import Schedule


def split_contractions(kernel: Kernel) -> Kernel:
    schedule = kernel.schedule or Schedule()
    compute = next(op for op in kernel.body if isinstance(op, Partition) and op.role == "compute")
    work = next(op for op in walk(compute.body) if isinstance(op, ForWork))
    sharing = cluster_splits_beside(schedule, work.index)
    if not schedule.cuts_tiles and sharing == 1:
        return kernel
    loop = next(op for op in work.body if isinstance(op, ForTiles))
    cut = _Cut(loop.index.as_axis, schedule, sharing, Namer.of(kernel))
    return kernel.with_body(tuple(with_regions(op, cut.region) for op in kernel.body))


class _Cut:
    def __init__(self, axis: Axis, schedule: Schedule, sharing: int, namer: Namer) -> None:
        self.axis, self.schedule, self.sharing, self.namer = axis, schedule, sharing, namer
        self.reduction = "cluster" if sharing > 1 else schedule.reduction or "serial"

    def region(self, region: Region) -> Region:
        return tuple(self.work(op) if isinstance(op, ForWork) else op for op in region)

    def work(self, op: ForWork) -> ForWork:
        together = self.reduction == "parallel"
        in_parts = together or self.sharing > 1
        names = ("slot", "begin", "end", *(("part", "parts") if in_parts else ()))
        piece = tuple(Value(self.namer.new(wish), INT) for wish in names)
        return with_fields(
            op,
            contraction=((self.axis.dim, self.axis.size),),
            splits=self.schedule.splits or 0,
            together=together,
            sharing=self.sharing,
            piece=piece,
            body=self.finished(self.bounded(op.body, piece), piece),
            skip=self.bounded(op.skip, piece),
        )

    def bounded(self, region: Region, piece: tuple[Value, ...]) -> Region:
        """The loop over the contraction, within the piece."""
        _, begin, end, *which = piece
        apart = dict(offset=begin) if self.sharing > 1 else dict(start=begin)
        if self.reduction == "parallel":
            apart["every"] = which[1]

        def change(op: Op) -> tuple[Op]:
            cut = isinstance(op, ForTiles) and op.dim == self.axis.dim
            return (with_fields(op, stop=end, **apart) if cut else op,)

        return rewrite(region, change)

    def finished(self, body: Region, piece: tuple[Value, ...]) -> Region:
        """What comes behind the sums is done with all of them."""
        at = next((i for i, op in enumerate(body) if isinstance(op, ForTiles) and op.init), None)
        if at is None:
            return body
        loop, after = body[at], body[at + 1 :]
        assert isinstance(loop, ForTiles)
        whole = tuple(Value(self.namer.again(v.name), v.type) for v in loop.result)
        swap = dict(zip(loop.result, whole, strict=True))
        slot, begin, end, *which = piece
        # Slots that were held around the loop are given back by every piece.
        given_back = tuple(op for op in after if isinstance(op, ConsumerRelease))
        rest = tuple(
            replace_operands(op, swap)
            for op in after
            if not isinstance(op, (ConsumerRelease, Yield))
        )
        if which:
            # A slice of the tile computes for itself what it needs.
            before = tuple(op for op in body[:at] if not regions(op))
            rest = copy_region((*makers(before, uses(rest)), *rest), self.namer)
        carried = zip(loop.args, yielded(loop.body), strict=True)
        fns = tuple(joined_by(loop.body, *each) for each in carried)
        finish = SplitkFixup(
            sums=loop.result,
            fns=fns if {*fns} != {"add"} else (),
            slot=slot,
            begin=begin,
            end=end,
            contraction=self.axis.dim,
            reduction=self.reduction,
            args=whole,
            part=which[0] if which else None,
            parts=which[1] if which else None,
            sharing=self.sharing,
            body=rest,
            loc=loop.loc,
        )
        return (*body[: at + 1], *given_back, finish)
