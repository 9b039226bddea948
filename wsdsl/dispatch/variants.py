"""Compile variants of a kernel, by schedule, sizes, and TMA-compatible tensors; cache them."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from weakref import WeakSet

from wsdsl import config
from wsdsl.ahead.jobs import Built, Job
from wsdsl.artifact.artifact import Artifact, Choice, Declaration, Names, Refused, StandIns
from wsdsl.artifact.cache import kept, look
from wsdsl.artifact.serialization import from_bytes
from wsdsl.artifact.shape_bucket import beside_rows, is_round, row_range, shape_bucket
from wsdsl.artifact.versions import artifact_key, assembler, digest, digest_of
from wsdsl.diagnostics import CompileError, ScheduleError, WsdslError, of_default
from wsdsl.dispatch.compiled import Compiled
from wsdsl.dispatch.ir_dumps import pass_dumps
from wsdsl.ir import op as ir
from wsdsl.ir.hardware.target import Target, target_of
from wsdsl.lazy import after_fork, cached_property, remember
from wsdsl.records import find
from wsdsl.records.card import card_of
from wsdsl.records.entry import Asked, Sizes
from wsdsl.runtime.arrays.alignment import Alignment
from wsdsl.schedule import Schedule

MOST_TRIES = 8
"""Schedules to try if the code of the first is rejected; ptxas takes 0.5 to 2 seconds for each."""
MAX_CHOICES = 1024
"""Calls of different sizes whose compiled kernel is remembered."""
Code = tuple["Schedule | None", Sizes, tuple[str, ...]]


class Variants:
    """Two steps are kept, in the process and on disk: which schedule a call gets (`Choice`), and
    the code for a schedule (`Artifact`), which is the same for most sizes.
    """

    def __init__(self, key: str | None, tile: Callable[[], ir.Kernel]) -> None:
        """`key` is that of the text; `tile` gives the kernel at the level TILE."""
        self.key, self._tile = key, tile
        self._compiled: dict[Code, Compiled] = {}
        self.choices: dict[Asked, Compiled] = {}
        self._representatives: dict[tuple[object, ...], StandIns] = {}
        self._lock = threading.RLock()
        _instances.add(self)

    def reset_lock(self) -> None:
        """The thread that holds the lock may not be in this process."""
        self._lock = threading.RLock()

    def _source_key(self, name: str, *parts: object) -> str | None:
        """Return the key of a result of the source and `parts`."""
        return self.key and digest(name, self.key, *parts)

    def _gpu_key(self, name: str, *parts: object) -> str | None:
        """Return the key of a result that also depends on the GPU, whose rates decide schedules."""
        return self._source_key(name, card_of(Schedule().arch).name, *parts)

    @cached_property
    def declaration(self) -> Declaration:
        return kept(self._source_key("declaration"), Declaration, self._declare)

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
        told = whole, rows, digest_of(tile), outer, held, forms_of(tile)
        return Declaration(tile.params, access_of(tile), *told)

    def request(
        self,
        schedule: Schedule | None,
        sizes: Mapping[str, int],
        *alignment: *Alignment,
        num_sms: int | None = None,
        shared: Schedule | None = None,
    ) -> Asked:
        known = tuple(sorted(sizes.items()))
        asked = Asked(schedule, known, *alignment, num_sms=num_sms, shared=shared)
        return asked if shared else asked._replace(record=find(self.declaration, asked))

    def forget_choices(self) -> None:
        """They are made anew, by what was measured meanwhile."""
        self.choices.clear()

    def bucket_request(
        self, schedule: Schedule | None, sizes: Mapping[str, int], *alignment: *Alignment
    ) -> Asked:
        """The request that serves the shape bucket of these sizes, independent of earlier calls.
        ScheduleError if the schedule fits no size.
        """
        found = self._bucket_request(schedule, sizes, *alignment, anew=True)
        assert found is not None
        return found

    def _bucket_request(
        self,
        schedule: Schedule | None,
        sizes: Mapping[str, int],
        *alignment: *Alignment,
        anew: bool,
    ) -> Asked | None:
        """None where it was not found out yet, and shall not be `anew`."""
        found = shape_bucket(self.declaration, sizes)
        own = self.request(schedule, found.sizes, *alignment)
        if own.record or not self._is_shared(sizes):
            return own
        held = self.representatives(schedule, sizes, *alignment, anew=anew)
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
        anew: bool = True,
        adopted: StandIns | None = None,
    ) -> StandIns | None:
        """Return the bucket representatives of the range of rows; None if they are unknown and not
        computed `anew`. `adopted`: those that another process computed.
        """
        found = shape_bucket(self.declaration, sizes)
        span, others = dict(found.spans)[found.rows], beside_rows(self.declaration, found)

        def make() -> StandIns:
            from wsdsl.lowering.shape_buckets import stand_ins

            asked = Asked(schedule, tuple(sorted(others.items())), *alignment)
            with self._report_default(asked):
                return stand_ins(self._specialized(asked), found.rows, span, others)

        rows = row_range(sizes[found.rows])
        alike = span.step, span.unlike, rows, tuple(sorted(others.items()))
        asked = repr(schedule), *alignment, *alike
        held = self._representatives.get(asked, adopted)
        if held is None:
            key = self._gpu_key("stand-ins", *asked)
            held = kept(key, StandIns, make) if anew else look(key, StandIns)
        if held is not None:
            self._representatives[asked] = held
        return held

    def padded(
        self,
        schedule: Schedule | None,
        sizes: Mapping[str, int],
        blocked: tuple[str, ...],
        able: tuple[str, ...],
        singly: tuple[str, ...],
    ) -> tuple[str, ...]:
        """The TMA-incompatible tensors that are worth a copy; `padded_operands` describes `able`
        and `singly`.
        """

        def make() -> Names:
            from wsdsl.lowering.heuristics import padding

            posed = self._specialized(Asked(schedule, known, blocked))
            return Names(padding.padded_operands(posed, sizes, able, singly))

        known = tuple(sorted(sizes.items()))
        key = self._gpu_key("padded", repr(schedule), known, blocked, able, singly)
        return kept(key, Names, make).names

    def lowered(self, asked: Asked) -> Compiled:
        """With a whole schedule; nothing is assembled or proved yet."""
        if (found := self.choices.get(asked)) is not None:
            return found
        try:
            return self._lower(asked)
        except WsdslError:
            if asked.whole is None:
                raise
            return self._choose(asked, self.lowered(asked.without_record))

    def _lower(self, asked: Asked) -> Compiled:
        with self._lock:
            from wsdsl.lowering.pipeline import scheduled_tile

            kernel = self._specialized(asked)
            with self._report_default(asked):
                chosen = scheduled_tile(kernel, dict(asked.sizes), pass_dumps())
            code = (chosen.schedule, kernel.sizes, asked.unaligned)
            if code not in self._compiled:
                kernel = dataclasses.replace(kernel, schedule=chosen.schedule)
                self._compiled[code] = Compiled(kernel, key=self._code_key(*code), chosen=chosen)
            return self._choose(asked, self._compiled[code])

    def build(self, asked: Asked) -> Compiled:
        """The proved kernel, assembled if ptxas is installed. If the compiler's choice of tiles
        exceeds the registers, it chooses narrower tiles.
        """
        if (found := self.choices.get(asked)) is not None and found.is_built:
            return found

        def make() -> Choice:
            made = self._build_within_registers(asked)
            self._choose(asked, made)
            return Choice(made.source.schedule or Schedule(), made.notes)

        choice = kept(self._choice_key(asked), Choice, make)
        found = self.choices.get(asked)
        return found if found is not None and found.is_built else self._chosen(asked, choice)

    def _chosen(self, asked: Asked, choice: Choice) -> Compiled:
        """By a choice that another kernel of the same text, or another process, has made."""
        code = self._code_of(asked, choice)
        with self._lock:
            found = self._compiled.get(code)
        artifact = None
        if found is None or not found.is_built:
            artifact = look(artifact_key(self._code_key(*code)), Artifact)
        return self.adopt(asked, choice, artifact)

    def adopt(self, asked: Asked, choice: Choice, artifact: Artifact | None) -> Compiled:
        """Adopt a choice and its artifact from elsewhere; without an artifact, compile it here."""
        settled = asked.without_record._replace(schedule=choice.schedule)
        code = self._code_of(asked, choice)
        with self._lock:
            found = self._compiled.get(code)
            if artifact is not None and not (found and found.is_built):
                found = Compiled.from_artifact(artifact, lambda: self._specialized(settled))
            elif found is None:
                found = Compiled(self._specialized(settled), key=self._code_key(*code))
            self._compiled[code] = found
            found.notes = choice.notes or found.notes
        _ = found.artifact
        return self._choose(asked, found)

    def _code_of(self, asked: Asked, choice: Choice) -> Code:
        return choice.schedule, self.static(asked.sizes), asked.unaligned

    def find_bucket(
        self, schedule: Schedule | None, sizes: Mapping[str, int], *alignment: *Alignment
    ) -> Compiled | None:
        """The kernel that serves the shape bucket of these sizes, if built, here or on disk."""
        asked = self._bucket_request(schedule, sizes, *alignment, anew=False)
        return None if asked is None else self.find_built(asked)

    def find_built(self, asked: Asked) -> Compiled | None:
        """The kernel of a request, if built, here or on disk."""
        held = self.choices.get(asked)
        if held is not None and held.is_built:
            return held
        choice = look(self._choice_key(asked), Choice)
        if choice is None:
            return None
        code = self._code_of(asked, choice)
        artifact = look(artifact_key(self._code_key(*code)), Artifact)
        return artifact and self.adopt(asked, choice, artifact)

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
        asked = self.request(job.schedule, dict(result.sizes), *alignment, shared=result.shared)
        self.adopt(asked, choice, artifact)

    def _choose(self, asked: Asked, compiled: Compiled) -> Compiled:
        return remember(self.choices, asked, compiled, MAX_CHOICES)

    def _code_key(self, schedule: Schedule | None, *parts: object) -> str | None:
        """Of all that a kernel's code is made of, but for the tools."""
        return self._gpu_key("code", repr(schedule), *parts)

    def _choice_key(self, asked: Asked) -> str | None:
        tools = assembler(), config.ALLOW_SPILLS.get()
        return self._gpu_key("choice", repr(asked.schedule), *asked[1:], *tools)

    def static(self, sizes: Sizes) -> Sizes:
        """Those for which code is compiled, and not launched with."""
        known = dict(sizes)
        return tuple((d, known[d]) for d in self.declaration.exact_dims if d in known)

    def _specialized(self, asked: Asked) -> ir.Kernel:
        return dataclasses.replace(
            self._tile(),
            schedule=asked.whole or asked.schedule,
            sizes=self.static(asked.sizes),
            unaligned=asked.unaligned,
            padded=asked.padded,
            card=self._card(asked),
        )

    def _card(self, asked: Asked) -> Target | None:
        """The machine's, if kernels are not chosen for it anyhow."""
        arch = (asked.schedule or Schedule()).arch
        found = card_of(arch, asked.num_sms)
        return None if found == target_of(arch) else found

    def _build_within_registers(self, asked: Asked) -> Compiled:
        """The first of `MOST_TRIES` schedules whose code fits the registers. A rejection is cached
        by the code, so that compiles for other sizes do not repeat it. CompileError, that of the
        first, if all are rejected.
        """
        first = compiled = self.lowered(asked)
        try:
            rejected = self._rejection(first)
        except CompileError as error:
            if asked.whole is None:
                raise
            rejected = Refused(error.findings[0].message)
        if rejected and asked.whole is not None:
            return self._build_within_registers(asked.without_record)
        tried = [(first.schedule, rejected)] if rejected else []
        others = islice(self._others(asked, first, tried), MOST_TRIES - 1)
        while rejected:
            other = next(others, None)
            if other is None:
                with self._report_default(asked):
                    _ = first.artifact
                return first
            try:
                compiled = self.lowered(asked._replace(schedule=other))
                rejected = self._rejection(compiled)
            except (ScheduleError, CompileError) as error:
                rejected = Refused(error.findings[0].message)
            if rejected:
                tried.append((other, rejected))
        if tried:
            told = f"of {len(tried) + 1} schedules that were tried"
            compiled.notes = tuple(f"{told}, {own!r}: {why.message}" for own, why in tried)
        return compiled

    def _rejection(self, compiled: Compiled) -> Refused | None:
        """Why the code of a schedule is rejected, now or before, with any raster of the tiles."""
        from wsdsl.codegen.ptxas_diagnostics import OverwrittenError, SpillError

        like = dataclasses.replace(compiled.schedule, raster=None, swizzle=None, launch_pdl=None)
        code = artifact_key(self._code_key(like, compiled.sizes, compiled.source.unaligned))
        key = code and digest("refused", code)
        known = None if compiled.is_built else look(key, Refused)
        if known is not None:
            return known
        try:
            _ = compiled.artifact
        except (OverwrittenError, SpillError) as error:
            by = isinstance(error, OverwrittenError), getattr(error, "spilled", 0)
            known = Refused(error.findings[0].message, *by)
            return kept(key, Refused, lambda: known)
        return None

    @contextmanager
    def _report_default(self, asked: Asked) -> Generator[None]:
        """A user who gave no schedule, nor tiles in the text, is not told to change these."""
        from wsdsl.codegen.ptxas_diagnostics import SpillError
        from wsdsl.ir.ops import ForTiles

        try:
            yield
        except (ScheduleError, SpillError) as error:
            given = dataclasses.replace(asked.schedule or Schedule(), arch=Schedule().arch)
            fixed = any(op.index.as_axis.size for op in self._tile().of(ForTiles))
            if given != Schedule() or fixed:
                raise
            raise type(error)(of_default(error.findings)) from None

    def _others(
        self, asked: Asked, wide: Compiled, tried: Sequence[tuple[Schedule, Refused]]
    ) -> Iterator[Schedule]:
        """Schedules to try in place of `wide`, by what was `tried` when each is asked for."""
        from wsdsl.lowering.heuristics.register_room import MOST_FEWER, narrower
        from wsdsl.lowering.pipeline import schedule_with_fewer_sums

        schedule, sizes = asked.schedule or Schedule(), dict(asked.sizes)
        if tried[-1][1].overwritten:  # Operands that are made in SMEM are safe.
            if not schedule.operand_transform:
                yield dataclasses.replace(schedule, operand_transform="smem")
            return
        given = self._specialized(asked)
        for _ in range(MOST_FEWER):
            failed, why = tried[-1]
            other = schedule_with_fewer_sums(given, failed, why.spilled, sizes)
            if other is None:
                break
            yield other
        # wgmma's M axis is fixed: with a given tile it would be chosen anew.
        settled = dataclasses.replace(schedule, mma_m=wide.schedule.mma_m)
        yield from narrower(wide.source, wide.partitioned, settled)


_instances: WeakSet[Variants] = WeakSet()


def _forked() -> None:
    for variants in list(_instances):
        variants.reset_lock()


after_fork(_forked)
