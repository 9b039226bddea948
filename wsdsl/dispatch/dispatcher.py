"""Dispatch calls to compiled kernels by shape bucket and alignment of arrays, and calls without a
compiled kernel by `on_miss`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from wsdsl.deprecation import Renamed
from wsdsl.diagnostics import CompileError, LaunchError, counted
from wsdsl.dispatch.callee import Callee
from wsdsl.dispatch.compiled import Compiled
from wsdsl.dispatch.execution import runs_simulated
from wsdsl.ir.hardware.gmem_limits import MAX_SIZE, is_size
from wsdsl.lazy import cached_property, remember
from wsdsl.schedule import Schedule, as_schedule

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from wsdsl.artifact.artifact import Access, Declaration, Representatives
    from wsdsl.artifact.shape_bucket import ShapeBucket
    from wsdsl.dispatch.misses import Misses
    from wsdsl.dispatch.variants import Variants
    from wsdsl.ir import op as ir
    from wsdsl.records.entry import Request
    from wsdsl.runtime.arguments import Call
    from wsdsl.runtime.arrays.alignment import Alignment, Alignments

OnMiss = Literal["wait", "nearest"]
MAX_CALLED = 1024
"""Calls of different sizes whose compiled kernel is remembered."""


class Dispatcher(Callee):
    """Dispatch of a kernel's calls to compiled kernels."""

    def derived(self, change: Callable[[ir.Kernel], ir.Kernel], how: str) -> Self:
        """Return a kernel whose TILE IR is that of this one after a change; `how` identifies it."""
        raise NotImplementedError

    tile_ir: Any
    """The kernel at the level TILE."""
    simulate: Callable[..., Any]
    _find_key: Callable[[], str | None]
    _called: dict[tuple[Any, ...], Compiled]
    _schedule: Schedule | None = None

    @cached_property
    def _variants(self) -> Variants:
        from wsdsl.dispatch.variants import Variants

        return Variants(self._find_key(), lambda: self.tile_ir)

    @property
    def declaration(self) -> Declaration:
        """The source's properties that calls use. ParseError or TypeCheckError as of `tile_ir`."""
        return self._variants.declaration

    @cached_property
    def params(self) -> tuple[ir.Value, ...]:
        return self.declaration.params

    @cached_property
    def access(self) -> Access:
        return self.declaration.access

    @property
    def whole_dims(self) -> tuple[str, ...]:
        """Dimensions that are taken whole (`:`, or by a loop that reduces all of it): compiled
        kernels are for one size of each.
        """
        return self.declaration.whole_dims

    @property
    def dims(self) -> tuple[str, ...]:
        """Names of the dimensions, in order of appearance."""
        return self.declaration.dims

    def _default_schedule(self, schedule: Schedule | None) -> Schedule | None:
        return self._schedule if schedule is None else as_schedule(schedule)

    exact: bool = False
    """Whether calls run kernels whose schedule is chosen for their exact sizes."""
    on_miss: OnMiss = "wait"
    """Calls without a compiled kernel: "wait" for the compilation, or run the "nearest" one."""
    size_class = Renamed("shape_bucket")
    warm = Renamed("precompile")

    def shape_bucket(self, /, **sizes: int) -> ShapeBucket:
        """Return the bucket of sizes whose calls share a compiled kernel with these sizes."""
        from wsdsl.artifact.shape_bucket import shape_bucket

        return shape_bucket(self.declaration, self._checked(None, sizes)[1])

    def _checked(
        self, schedule: Schedule | None, sizes: Mapping[str, int]
    ) -> tuple[Schedule | None, dict[str, int]]:
        """Check the schedule and sizes of a user. CompileError for unknown dimensions or sizes."""
        self._check_names(sizes)
        wrong = [f"{name} = {size!r}" for name, size in sizes.items() if not is_size(size)]
        if wrong:
            message = f"WS0024 {', '.join(wrong)}: expected sizes from 0 to {MAX_SIZE}"
            raise CompileError(message, self.tile_ir.loc)
        return self._default_schedule(schedule), {
            name: operator.index(n) for name, n in sizes.items()
        }

    def _check_names(self, names: Iterable[str]) -> None:
        if unknown := [name for name in names if name not in self.dims]:
            self._reject_sizes(f"WS0025 {self.name} has no dimension {', '.join(unknown)}")

    def _need_all(self, dims: Iterable[str], sizes: Mapping[str, int]) -> None:
        if missing := [name for name in dims if name not in sizes]:
            self._reject_sizes(f"WS0026 {self.name} needs a size for {', '.join(missing)}")

    def _reject_sizes(self, message: str) -> None:
        raise CompileError(message, self.tile_ir.loc, f"give sizes of {', '.join(self.dims)}")

    def _record_note(
        self, schedule: Schedule | None, sizes: Mapping[str, int], compiled: Compiled
    ) -> Iterator[str]:
        from wsdsl.records.entry import agrees

        alignment = self._alignment_of(schedule, sizes)
        if record := self._variants.request(schedule, sizes, *alignment).record:
            taken = agrees(record.whole, compiled.schedule)
            how = "chosen by" if taken else "rejected schedule of"
            yield f"{how} a tuning-cache entry: {record}"

    def _bucket_notes(
        self, schedule: Schedule | None, sizes: Mapping[str, int], compiled: Compiled
    ) -> Iterator[str]:
        """Describe the kernel that serves calls of these sizes, if all are known."""
        if len(sizes) < len(self.dims) or self.exact:
            return
        request = self._request_for(schedule, sizes, exact=False)
        bucket = request.schedule, sizes, request.unaligned, request.padded
        shared = self._variants.representatives(*bucket) if request.shared else None
        own = self._variants.lowered(request)
        yield f"shape bucket of calls: {self.shape_bucket(**sizes)}"
        if own.schedule != compiled.schedule:
            yield f"  whose schedule is {own.schedule!r}"
        signature, card = own.signature, own.scheduled.target
        if signature.widths > 1:
            room = card.num_sms, card.cluster_room(signature.cluster)
            dim, widest = signature.tiles[signature.narrowed]
            width = widest - signature.narrowing(sizes, *room)
            among = f"the fastest of {signature.widths} tile_n_variants"
            yield f"  with tiles of {width} along {dim}: {among}"
        if shared is not None:
            yield from self._range_notes(shared, sizes)

    def _range_notes(self, shared: Representatives, sizes: Mapping[str, int]) -> Iterator[str]:
        """Describe the buckets that share their kernel."""
        dim = self.declaration.rows
        low, high = shared.low + 1, shared.ends[-1]
        spans = ", ".join(f"{a} to {b}" for a, b in shared.spans(shared.of(sizes[dim])))
        num = counted(len(shared.schedules), "kernel")
        yield f"  compiled for {dim} {spans}"
        yield (
            f"  {num} for {dim} {low} to {high}, predicted to be {shared.longer} slower on average "
            "than the best evaluated schedules"
        )

    def _compile(
        self,
        schedule: Schedule | None,
        sizes: Mapping[str, int],
        unaligned: tuple[str, ...],
        padded: tuple[str, ...] = (),
    ) -> Compiled:
        return self._variants.lowered(self._variants.request(schedule, sizes, unaligned, padded))

    def precompile(
        self,
        /,
        schedule: Schedule | None = None,
        *,
        processes: int | None = None,
        executor: Executor | None = None,
        **sizes: int | Iterable[int],
    ) -> tuple[Compiled, ...]:
        """Compile all that calls of these sizes will run, `M=range(1, 4097), N=4096, K=4096`, in as
        many processes as there are CPUs, or in the `executor`, with a bar on stderr. For contiguous
        arrays; others that TMA cannot load compile at their first call. Return the compiled
        kernels, each once.
        """
        found = self.precompiled(schedule, sizes, processes, executor).values()
        return tuple(dict.fromkeys(compiled for _, compiled in found))

    def precompiled(
        self,
        schedule: Schedule | None,
        sizes: Mapping[str, int | Iterable[int]],
        processes: int | None = None,
        executor: Executor | None = None,
    ) -> dict[tuple[Dispatcher, Request], tuple[dict[ShapeBucket, None], Compiled]]:
        """Run `precompile`; return the compiled kernel of each request, and its shape buckets."""
        from wsdsl.ahead.jobs import Job
        from wsdsl.ahead.precompile import combinations, compile_all
        from wsdsl.artifact.shape_bucket import exact_bucket
        from wsdsl.dispatch.compile_child import compile_job

        self._check_names(sizes)
        buckets = dict[tuple[Dispatcher, "Request"], dict["ShapeBucket", None]]()
        for given in combinations(self.name, self.dims, sizes):
            kernel, whole, own = self._select(schedule, given)
            request = kernel, kernel._request_for(whole, own, exact=self.exact)
            bucket = exact_bucket(own) if self.exact else kernel.shape_bucket(**own)
            buckets.setdefault(request, {})[bucket] = None
        jobs = [
            Job(kernel._text, kernel._variants.key, *each[:4], exact=True, shared=each.shared)
            for kernel, each in buckets
        ]
        variants = [kernel._variants for kernel, _ in buckets]
        compile_all(
            f"precompile {self.name}", zip(variants, jobs), compile_job, processes, executor
        )
        found = {request: request[0]._variants.find_built(request[1]) for request in buckets}
        return {key: (buckets[key], made) for key, made in found.items() if made is not None}

    def record_call(
        self, call: Call, schedule: Schedule | None, stream: Any, *, exact: bool | None
    ) -> bool:
        """Record a call in this thread's `precompiling` block; return False without a block."""
        from wsdsl.runtime.native.recorded_launches import recorder

        if recorder.calls is None:
            return False
        from wsdsl.ahead.jobs import Job
        from wsdsl.runtime.device import see_device
        from wsdsl.runtime.launcher import reject_capture

        if call.device != "cpu":
            reject_capture(next(iter(call.views.values())), stream)
            see_device(call.device)
        exact = self.exact if exact is None else exact
        alignment = self._alignment(call, schedule, exact=exact)
        sizes = call.dims if exact else self.shape_bucket(**call.dims).sizes
        given = schedule, tuple(sorted(sizes.items())), *alignment, exact
        if (key := (self._variants, *given)) not in recorder.calls:
            job = Job(self._text, self._variants.key, *given, tile=self.tile_ir)
            recorder.calls[key] = self._variants, job
        return True

    @cached_property
    def _text(self) -> str:
        """The kernel's text at the level TILE."""
        return str(self.tile_ir)

    def _select(
        self, schedule: Schedule | None, sizes: Mapping[str, int]
    ) -> tuple[Dispatcher, Schedule | None, dict[str, int]]:
        """Return the kernel for contiguous arrays of these sizes, and the sizes of its dims."""
        raise NotImplementedError

    def dispatch(
        self,
        call: Call,
        schedule: Schedule | None = None,
        *,
        exact: bool | None = None,
        on_miss: OnMiss | None = None,
    ) -> tuple[Compiled, bool]:
        """Return the kernel of a call, and whether later calls of its bucket use it too."""
        exact = self.exact if exact is None else exact
        on_miss = self.on_miss if on_miss is None else on_miss
        if on_miss not in ("wait", "nearest"):
            raise LaunchError(f'WS0027 on_miss is {on_miss!r}, expected "wait" or "nearest"')
        if on_miss == "nearest" and not exact and not (call.device == "cpu" and runs_simulated()):
            given = as_schedule(schedule)
            alignment = self._alignment(call, given, exact=False)
            if (found := self._misses.dispatch(call, given, alignment)) is not None:
                return found
        return self.compiled_for(call, schedule, exact=exact), True

    @cached_property
    def _misses(self) -> Misses:
        from wsdsl.dispatch.misses import Misses

        return Misses(self.name, self._variants, lambda: self._text)

    def compiled_for(
        self,
        call: Call,
        schedule: Schedule | None = None,
        *,
        assembled: bool = False,
        exact: bool | None = None,
    ) -> Compiled:
        """Return the kernel of a call: compiled for the shape bucket of its sizes, or `exact`ly
        these, and for the alignment of its arrays. The simulator's kernel is compiled for the exact
        sizes, and ptxas assembles it only if `assembled`.
        """
        schedule, device = as_schedule(schedule), call.device
        simulated = device == "cpu" and runs_simulated()
        exact = simulated or (self.exact if exact is None else exact)
        if not self._called and not simulated:
            from wsdsl.runtime.device import see_device

            see_device(device)
        alignment = self._alignment(call, schedule, exact=exact)
        if simulated:
            made = self._variants.build if assembled else self._variants.lowered
            return made(self._variants.request(schedule, call.dims, *alignment))
        key = schedule, device, exact, tuple(call.dims.items()), *alignment
        found = self._called.get(key)
        if found is None:
            found = self._fitting(call, schedule, alignment, exact=exact)
            remember(self._called, key, found, MAX_CALLED)
        return found

    def padded_for(self, call: Call, schedule: Schedule | None = None) -> tuple[str, ...]:
        """Return the TMA-incompatible operands that are copied before a launch."""
        return self._alignment(call, as_schedule(schedule), exact=self.exact)[1]

    def _fitting(
        self, call: Call, schedule: Schedule | None, alignment: Alignment, *, exact: bool
    ) -> Compiled:
        """Compile for a call. If more CTAs wait for each other than fit on the device's SMs (of a
        smaller GPU, or a part of one), choose the schedule for these SMs and the exact sizes.
        """
        from wsdsl.runtime.device import num_sms_of

        make_request = self._variants.request if exact else self._variants.bucket_request
        compiled = self._variants.build(make_request(schedule, call.dims, *alignment))
        if not compiled.signature.together or compiled.fits(call):
            return compiled
        num_sms = num_sms_of(call.device)
        request = self._variants.request(schedule, call.dims, *alignment, num_sms=num_sms)
        return self._variants.build(request)

    def _alignment(self, call: Call, schedule: Schedule | None, *, exact: bool = True) -> Alignment:
        def decide(*blocked: tuple[str, ...]) -> tuple[str, ...]:
            sizes = call.dims if exact else self.shape_bucket(**call.dims).sizes
            return self._variants.padded(schedule, sizes, *blocked)

        return self._alignments.of(call, schedule, decide, exact=exact)

    def _alignment_of(
        self, schedule: Schedule | None, sizes: Mapping[str, int], *, exact: bool = True
    ) -> Alignment:
        """Return the alignment of contiguous arrays; copies need all sizes to be known."""
        from wsdsl.runtime.arrays.alignment import contiguous

        call = contiguous(self.params, self.access, sizes)
        if len(sizes) < len(self.dims):
            return tuple(sorted(call.tma_blocked())), ()
        return self._alignment(call, schedule, exact=exact)

    def _request_for(
        self, schedule: Schedule | None, sizes: Mapping[str, int], *, exact: bool
    ) -> Request:
        """Return the request of calls with contiguous arrays of these sizes."""
        make_request = self._variants.request if exact else self._variants.bucket_request
        return make_request(schedule, sizes, *self._alignment_of(schedule, sizes, exact=exact))

    @cached_property
    def _alignments(self) -> Alignments:
        from wsdsl.runtime.arrays.alignment import Alignments

        return Alignments()


DispatcherT = TypeVar("DispatcherT", bound=Dispatcher)
