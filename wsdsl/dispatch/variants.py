"""Compile and cache variants of a kernel, by schedule, sizes, and TMA-compatible tensors."""

import dataclasses
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from weakref import WeakSet

from wsdsl import config
from wsdsl.ahead.jobs import Built, Job
from wsdsl.artifact.artifact import Artifact, Choice, Declaration, Names, Rejection, Representatives
from wsdsl.artifact.cache import get_or_compute, lookup
from wsdsl.artifact.serialization import from_bytes
from wsdsl.artifact.shape_bucket import beside_rows, is_round, row_range, shape_bucket
from wsdsl.artifact.versions import artifact_key, assembler, digest, digest_of
from wsdsl.diagnostics import CompileError, ScheduleError, WsdslError, of_default
from wsdsl.dispatch.compiled import Compiled
from wsdsl.dispatch.ir_dumps import pass_dumps
from wsdsl.gc_pause import held_back
from wsdsl.ir import op as ir
from wsdsl.ir.hardware.target import Target, target_of
from wsdsl.lazy import after_fork, cached_property, remember
from wsdsl.records import find
from wsdsl.records.card import card_of
from wsdsl.records.entry import Request, Sizes
from wsdsl.runtime.arrays.alignment import Alignment
from wsdsl.schedule import Schedule

MOST_TRIES = 8
"""Schedules to try if the code of the first is rejected; ptxas takes 0.5 to 2 seconds for each."""
MAX_CHOICES = 1024
"""Calls of different sizes whose compiled kernel is remembered."""
Code = tuple["Schedule | None", Sizes, tuple[str, ...]]


class Variants:
    """Caches two steps, in the process and on disk: the schedule of a call (`Choice`), and the code
    of a schedule (`Artifact`), which many sizes share.
    """

    def __init__(self, key: str | None, tile: Callable[[], ir.Kernel]) -> None:
        """`key` is the cache key of the source; `tile` returns the kernel at the level TILE."""
        self.key, self._tile = key, tile
        self._compiled: dict[Code, Compiled] = {}
        self.choices: dict[Request, Compiled] = {}
        self._representatives: dict[tuple[object, ...], Representatives] = {}
        self._lock = threading.RLock()
        _instances.add(self)

    def reset_lock(self) -> None:
        """Replace the lock after a fork: the thread that holds it is not in this process."""
        self._lock = threading.RLock()

    def _source_key(self, name: str, *parts: object) -> str | None:
        """Return the key of a result of the source and `parts`."""
        return self.key and digest(name, self.key, *parts)

    def _gpu_key(self, name: str, *parts: object) -> str | None:
        """Return the key of a result that also depends on the GPU, whose rates decide schedules."""
        return self._source_key(name, card_of(Schedule().arch).name, *parts)

    @cached_property
    def declaration(self) -> Declaration:
        return get_or_compute(self._source_key("declaration"), Declaration, self._declare)

    def _declare(self) -> Declaration:
        from wsdsl.codegen.launch_signature import access_of
        from wsdsl.ir.ops import ForEach, ForTiles, Whole
        from wsdsl.ir.types import Axis
        from wsdsl.lowering.axes import output_nest
        from wsdsl.lowering.held_rows import held_dims, moved_dims
        from wsdsl.lowering.packed_components import forms_of

        tile = self._tile()
        found = [o.result for o in tile.of(Whole)] + [o.index for o in tile.of(ForTiles) if o.whole]
        whole = tuple(sorted({index.as_axis.dim for index in found}))
        walked = (op.dim for op in tile.of(ForTiles) if not op.whole)
        rows = next((dim for dim in walked if dim not in whole), "")
        nest = (op.dim if isinstance(op, ForEach) else op.index.type for op in output_nest(tile)[0])
        outer = tuple(kind.dim if isinstance(kind, Axis) else str(kind) for kind in nest)
        held = tuple(sorted(held_dims(tile) | moved_dims(tile)))
        rest = whole, rows, digest_of(tile), outer, held, forms_of(tile)
        return Declaration(tile.params, access_of(tile), *rest)

    def request(
        self,
        schedule: Schedule | None,
        sizes: Mapping[str, int],
        *alignment: *Alignment,
        num_sms: int | None = None,
        shared: Schedule | None = None,
    ) -> Request:
        known = tuple(sorted(sizes.items()))
        request = Request(schedule, known, *alignment, num_sms=num_sms, shared=shared)
        return request if shared else request._replace(record=find(self.declaration, request))

    def forget_choices(self) -> None:
        """Drop choices, which new measurements may change."""
        self.choices.clear()

    def bucket_request(
        self, schedule: Schedule | None, sizes: Mapping[str, int], *alignment: *Alignment
    ) -> Request:
        """Return the request of the shape bucket of these sizes, independent of earlier calls.
        ScheduleError if the schedule fits no size.
        """
        found = self._bucket_request(schedule, sizes, *alignment, compute=True)
        assert found is not None
        return found

    def _bucket_request(
        self,
        schedule: Schedule | None,
        sizes: Mapping[str, int],
        *alignment: *Alignment,
        compute: bool,
    ) -> Request | None:
        """Return the request of the bucket; None if it is unknown, and `compute` is false."""
        found = shape_bucket(self.declaration, sizes)
        own = self.request(schedule, found.sizes, *alignment)
        if own.record or not self._is_shared(sizes):
            return own
        held = self.representatives(schedule, sizes, *alignment, compute=compute)
        if held is None:
            return None
        at = held.of(sizes[found.rows])
        sizes = {**beside_rows(self.declaration, found), found.rows: held.sizes[at]}
        return self.request(schedule, sizes, *alignment, shared=held.schedules[at])

    def _is_shared(self, sizes: Mapping[str, int]) -> bool:
        rows = self.declaration.rows
        is_known = rows in sizes and len(sizes) == len(self.declaration.dims)
        return is_known and not is_round(sizes[rows])

    def representatives(
        self,
        schedule: Schedule | None,
        sizes: Mapping[str, int],
        *alignment: *Alignment,
        compute: bool = True,
        adopted: Representatives | None = None,
    ) -> Representatives | None:
        """Return the bucket representatives of the range of rows; None if they are unknown and not
        computed. `adopted`: representatives from another process.
        """
        found = shape_bucket(self.declaration, sizes)
        span, others = dict(found.spans)[found.rows], beside_rows(self.declaration, found)

        def make() -> Representatives:
            from wsdsl.lowering.shape_buckets import stand_ins

            request = Request(schedule, tuple(sorted(others.items())), *alignment)
            with self._report_default(request):
                return stand_ins(self._specialized(request), found.rows, span, others)

        rows = row_range(sizes[found.rows])
        alike = span.step, span.unlike, rows, tuple(sorted(others.items()))
        request = repr(schedule), *alignment, *alike
        held = self._representatives.get(request, adopted)
        if held is None:
            key = self._gpu_key("stand-ins", *request)
            held = (
                get_or_compute(key, Representatives, make)
                if compute
                else lookup(key, Representatives)
            )
        if held is not None:
            self._representatives[request] = held
        return held

    def padded(
        self,
        schedule: Schedule | None,
        sizes: Mapping[str, int],
        blocked: tuple[str, ...],
        able: tuple[str, ...],
        singly: tuple[str, ...],
    ) -> tuple[str, ...]:
        """Return the TMA-incompatible tensors that are copied; `padded_operands` describes `able`
        and `singly`.
        """

        def make() -> Names:
            from wsdsl.lowering.heuristics import padding

            posed = self._specialized(Request(schedule, known, blocked))
            return Names(padding.padded_operands(posed, sizes, able, singly))

        known = tuple(sorted(sizes.items()))
        key = self._gpu_key("padded", repr(schedule), known, blocked, able, singly)
        return get_or_compute(key, Names, make).names

    def lowered(self, request: Request) -> Compiled:
        """Lower a request with a complete schedule, without assembling or proving."""
        if (found := self.choices.get(request)) is not None:
            return found
        try:
            return self._lower(request)
        except WsdslError:
            if request.whole is None:
                raise
            return self._choose(request, self.lowered(request.without_record))

    @held_back()
    def _lower(self, request: Request) -> Compiled:
        with self._lock:
            from wsdsl.lowering.pipeline import scheduled_tile

            kernel = self._specialized(request)
            with self._report_default(request):
                chosen = scheduled_tile(kernel, dict(request.sizes), pass_dumps())
            code = (chosen.schedule, kernel.sizes, request.unaligned)
            if code not in self._compiled:
                kernel = dataclasses.replace(kernel, schedule=chosen.schedule)
                self._compiled[code] = Compiled(kernel, key=self._code_key(*code), chosen=chosen)
            return self._choose(request, self._compiled[code])

    def build(self, request: Request) -> Compiled:
        """Return the proved kernel, assembled if ptxas is installed. If the compiler's choice of
        tiles exceeds the registers, it chooses narrower tiles.
        """
        if (found := self.choices.get(request)) is not None and found.is_built:
            return found

        def make() -> Choice:
            made = self._build_within_registers(request)
            self._choose(request, made)
            return Choice(made.source.schedule or Schedule(), made.notes)

        choice = get_or_compute(self._choice_key(request), Choice, make)
        found = self.choices.get(request)
        return found if found is not None and found.is_built else self._chosen(request, choice)

    def _chosen(self, request: Request, choice: Choice) -> Compiled:
        """Return the kernel of a choice by another kernel of this source, or another process."""
        code = self._code_of(request, choice)
        with self._lock:
            found = self._compiled.get(code)
        artifact = None
        if found is None or not found.is_built:
            artifact = lookup(artifact_key(self._code_key(*code)), Artifact)
        return self.adopt(request, choice, artifact)

    def adopt(self, request: Request, choice: Choice, artifact: Artifact | None) -> Compiled:
        """Adopt a choice and its artifact from elsewhere; without an artifact, compile it here."""
        settled = request.without_record._replace(schedule=choice.schedule)
        code = self._code_of(request, choice)
        with self._lock:
            found = self._compiled.get(code)
            if artifact is not None and not (found and found.is_built):
                found = Compiled.from_artifact(artifact, lambda: self._specialized(settled))
            elif found is None:
                found = Compiled(self._specialized(settled), key=self._code_key(*code))
            self._compiled[code] = found
            found.notes = choice.notes or found.notes
        _ = found.artifact
        return self._choose(request, found)

    def _code_of(self, request: Request, choice: Choice) -> Code:
        return choice.schedule, self.static(request.sizes), request.unaligned

    def find_bucket(
        self, schedule: Schedule | None, sizes: Mapping[str, int], *alignment: *Alignment
    ) -> Compiled | None:
        """Return the kernel of the shape bucket of these sizes, if built, here or on disk."""
        request = self._bucket_request(schedule, sizes, *alignment, compute=False)
        return None if request is None else self.find_built(request)

    def find_built(self, request: Request) -> Compiled | None:
        """Return the kernel of a request, if built, here or on disk."""
        held = self.choices.get(request)
        if held is not None and held.is_built:
            return held
        choice = lookup(self._choice_key(request), Choice)
        if choice is None:
            return None
        code = self._code_of(request, choice)
        artifact = lookup(artifact_key(self._code_key(*code)), Artifact)
        return artifact and self.adopt(request, choice, artifact)

    def is_built(self, job: Job) -> bool:
        """Check whether a job's kernel is built, in this process or on disk."""
        given = job.schedule, dict(job.sizes), job.unaligned, job.padded
        if not job.exact:
            return self.find_bucket(*given) is not None
        return self.find_built(self.request(*given, shared=job.shared)) is not None

    def adopt_result(self, job: Job, result: Built) -> None:
        """Adopt the kernel that another process compiled."""
        choice, artifact = from_bytes(job.text, result.entry).value
        alignment = job.unaligned, job.padded
        if result.representatives:
            bucket = job.schedule, dict(job.sizes), *alignment
            self.representatives(*bucket, adopted=result.representatives)
        request = self.request(job.schedule, dict(result.sizes), *alignment, shared=result.shared)
        self.adopt(request, choice, artifact)

    def _choose(self, request: Request, compiled: Compiled) -> Compiled:
        return remember(self.choices, request, compiled, MAX_CHOICES)

    def _code_key(self, schedule: Schedule | None, *parts: object) -> str | None:
        """Return the key of a kernel's code, without the versions of tools."""
        return self._gpu_key("code", repr(schedule), *parts)

    def _choice_key(self, request: Request) -> str | None:
        tools = assembler(), config.ALLOW_SPILLS.get()
        return self._gpu_key("choice", repr(request.schedule), *request[1:], *tools)

    def static(self, sizes: Sizes) -> Sizes:
        """Return the sizes that are constants of the code."""
        known = dict(sizes)
        return tuple((d, known[d]) for d in self.declaration.exact_dims if d in known)

    def _specialized(self, request: Request) -> ir.Kernel:
        return dataclasses.replace(
            self._tile(),
            schedule=request.whole or request.schedule,
            sizes=self.static(request.sizes),
            unaligned=request.unaligned,
            padded=request.padded,
            card=self._card(request),
        )

    def _card(self, request: Request) -> Target | None:
        """Return the machine's GPU, if it is not the default of the architecture."""
        arch = (request.schedule or Schedule()).arch
        found = card_of(arch, request.num_sms)
        return None if found == target_of(arch) else found

    def _build_within_registers(self, request: Request) -> Compiled:
        """Return the first of `MOST_TRIES` schedules whose code fits the registers. Rejections are
        cached by code, so that compiles for other sizes do not repeat them. CompileError of the
        first, if all are rejected.
        """
        first = compiled = self.lowered(request)
        try:
            rejected = self._rejection(first)
        except CompileError as error:
            if request.whole is None:
                raise
            rejected = Rejection(error.findings[0].message)
        if rejected and request.whole is not None:
            return self._build_within_registers(request.without_record)
        tried = [(first.schedule, rejected)] if rejected else []
        others = islice(self._others(request, first, tried), MOST_TRIES - 1)
        while rejected:
            other = next(others, None)
            if other is None:
                with self._report_default(request):
                    _ = first.artifact
                return first
            try:
                compiled = self.lowered(request._replace(schedule=other))
                rejected = self._rejection(compiled)
            except (ScheduleError, CompileError) as error:
                rejected = Rejection(error.findings[0].message)
            if rejected:
                tried.append((other, rejected))
        if tried:
            note = f"of {len(tried) + 1} schedules that were tried"
            compiled.notes = tuple(f"{note}, {own!r}: {why.message}" for own, why in tried)
        return compiled

    def _rejection(self, compiled: Compiled) -> Rejection | None:
        """Return why a schedule's code is rejected, with any tile raster; None if it is legal."""
        from wsdsl.codegen.ptxas_diagnostics import OverwrittenError, SpillError

        like = dataclasses.replace(compiled.schedule, raster=None, swizzle=None, launch_pdl=None)
        code = artifact_key(self._code_key(like, compiled.sizes, compiled.source.unaligned))
        key = code and digest("refused", code)
        known = None if compiled.is_built else lookup(key, Rejection)
        if known is not None:
            return known
        try:
            _ = compiled.artifact
        except (OverwrittenError, SpillError) as error:
            by = isinstance(error, OverwrittenError), getattr(error, "spilled", 0)
            known = Rejection(error.findings[0].message, *by)
            return get_or_compute(key, Rejection, lambda: known)
        return None

    @contextmanager
    def _report_default(self, request: Request) -> Generator[None]:
        """Replace hints about schedules in errors, if no schedule and no tile sizes were given."""
        from wsdsl.codegen.ptxas_diagnostics import SpillError
        from wsdsl.ir.ops import ForTiles

        try:
            yield
        except (ScheduleError, SpillError) as error:
            given = dataclasses.replace(request.schedule or Schedule(), arch=Schedule().arch)
            fixed = any(op.index.as_axis.size for op in self._tile().of(ForTiles))
            if given != Schedule() or fixed:
                raise
            raise type(error)(of_default(error.findings)) from None

    def _others(
        self, request: Request, wide: Compiled, tried: Sequence[tuple[Schedule, Rejection]]
    ) -> Iterator[Schedule]:
        """Yield schedules to try in place of `wide`; each depends on the ones `tried` so far."""
        from wsdsl.lowering.heuristics.register_room import MOST_FEWER, narrower
        from wsdsl.lowering.pipeline import schedule_with_fewer_sums

        schedule, sizes = request.schedule or Schedule(), dict(request.sizes)
        if tried[-1][1].overwritten:  # Operands in SMEM are safe.
            if not schedule.operand_transform:
                yield dataclasses.replace(schedule, operand_transform="smem")
            return
        given = self._specialized(request)
        for _ in range(MOST_FEWER):
            failed, why = tried[-1]
            other = schedule_with_fewer_sums(given, failed, why.spilled, sizes)
            if other is None:
                break
            yield other
        # wgmma's M axis is fixed: a given tile could change it.
        settled = dataclasses.replace(schedule, mma_m=wide.schedule.mma_m)
        yield from narrower(wide.source, wide.partitioned, settled)


_instances: WeakSet[Variants] = WeakSet()


def _forked() -> None:
    for variants in list(_instances):
        variants.reset_lock()


after_fork(_forked)
