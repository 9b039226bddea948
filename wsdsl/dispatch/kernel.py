"""A kernel: its compilation, simulation, tuning and calls.

Only this module and the CLI import every layer, on first use, so that `import wsdsl` is fast.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from wsdsl.deprecation import Renamed
from wsdsl.diagnostics import LaunchError, TypeCheckError, WsdslError, did_you_mean
from wsdsl.dispatch.callee import called, repeated
from wsdsl.dispatch.compiled import Compiled
from wsdsl.dispatch.dispatcher import Dispatcher, OnMiss
from wsdsl.dispatch.vectorized_variants import VectorizedVariant, select_variant
from wsdsl.dynamo import opaque
from wsdsl.lazy import cached_property
from wsdsl.schedule import Schedule

if TYPE_CHECKING:
    from concurrent.futures import Executor
    from pathlib import Path

    from wsdsl.ir import op as ir
    from wsdsl.ir.plan import Plan
    from wsdsl.report.explanation import Explanation
    from wsdsl.report.timeline import Timeline
    from wsdsl.runtime.arguments import Call
    from wsdsl.runtime.prepared import Prepared
    from wsdsl.tune import Tuned


class Kernel(Dispatcher):
    """A kernel in the language, to call, compile, simulate, tune or inspect."""

    source: str
    schedule_of_calls = Renamed("dispatched_schedule")
    tile = Renamed("tile_ir")

    def __init__(
        self,
        name: str,
        make: Callable[[], ir.Kernel],
        source: str = "",
        doc: str | None = None,
        key: Callable[[], str | None] = lambda: None,
    ) -> None:
        """`key` returns equal keys for kernels whose `make` returns equal IR; None if equality
        cannot be determined.
        """
        vars(self).update(name=name, source=source)
        self.__name__ = self.__qualname__ = name
        self.__doc__ = doc
        self._make, self._find_key = make, key
        self._called: dict[tuple[Any, ...], Compiled] = {}

    def __repr__(self) -> str:
        return f"<kernel {self.name}>"

    def __setattr__(self, name: str, value: Any) -> None:
        known = "exact", "on_miss"
        if name not in known and not name.startswith("_"):
            hint = f"{did_you_mean(name, known)}; give options at a call, or @kernel(schedule=…)"
            raise WsdslError(f"WS0006 `{name}` of a kernel cannot be set", hint=hint)
        super().__setattr__(name, value)
        if name in known:
            self._forget()

    def __reduce__(self) -> str | tuple[Any, ...]:
        """Pickle by name a kernel that a module has, as functions are; others by their TILE IR."""
        if _importable(self):
            return self.__qualname__
        made = self.name, str(self.tile_ir), self.source, self.__doc__
        return _from_tile, made, {"_schedule": self._schedule}

    @cached_property
    def tile_ir(self) -> ir.Kernel:
        """The kernel at the level TILE. ParseError or TypeCheckError with all errors."""
        from wsdsl.artifact.artifact import Names
        from wsdsl.artifact.cache import get_or_compute
        from wsdsl.artifact.versions import digest, require_compiler

        require_compiler("lark")
        from wsdsl.frontend.settled_tile_sizes import doubts
        from wsdsl.ir.verify.verifier import verify

        made = self._make()
        verify(made)
        if not doubts(made):
            return made
        key = digest("tile sizes", str(made))
        found = get_or_compute(key, Names, lambda: Names(self._try_tile_sizes(made)))
        return dataclasses.replace(made, positive=found.names) if found.names else made

    def _try_tile_sizes(
        self, made: ir.Kernel, arrays: Mapping[str, Any] | None = None
    ) -> tuple[str, ...]:
        """Evaluate the kernel with several tile sizes, on given or generated arrays; TypeCheckError
        if results depend on the tile size. Most kernels need no evaluation. Returns the scalars
        that must be positive for independence.
        """
        from wsdsl.frontend.settled_tile_sizes import doubts
        from wsdsl.ir.types import Tile

        found = {doubt.axis: doubt for doubt in doubts(made)}
        if not found:
            return ()
        from wsdsl.simulator.reference.tile_trials import find_shown, find_shown_on

        shown = find_shown_on(made, arrays, [*found]) if arrays else find_shown(made, [*found])
        if not shown:
            return ()
        kinds = {p.name: p.type for p in made.params if isinstance(p.type, Tile)}
        names = [name for name, kind in kinds.items() if kind.dtype.is_float]
        if arrays or not names or find_shown(made, [*found], dict.fromkeys(names)):
            raise TypeCheckError(found[shown.axis].told(shown.nan))
        for name in [*names]:
            others = [n for n in names if n != name]
            names = names if find_shown(made, [*found], dict.fromkeys(others)) else others
        return tuple(names)

    def derived(self, change: Callable[[ir.Kernel], ir.Kernel], how: str) -> Self:
        def key() -> str | None:
            own = self._find_key()
            return None if own is None else f"{own} {how}"

        make = lambda: change(self.tile_ir)  # noqa: E731
        made: Any = Kernel(self.name, make, self.source, self.__doc__, key)
        return made

    def resolve(self, args: tuple[Any, ...]) -> Call:
        """Check arguments and allocate missing outputs. LaunchError for illegal arguments. A scalar
        that is not positive, as the evaluations assumed, is evaluated itself.
        """
        try:
            return super().resolve(args)
        except LaunchError:
            given = {p.name: x for p, x in zip(self.params, args) if p.name in self.access.positive}
            if not given or not all(isinstance(x, (int, float)) for x in given.values()):
                raise
            from wsdsl.frontend.settled_tile_sizes import doubts
            from wsdsl.runtime.arguments import resolve
            from wsdsl.simulator.reference.tile_trials import find_shown

            if find_shown(self.tile_ir, [doubt.axis for doubt in doubts(self.tile_ir)], given):
                raise
            access = dataclasses.replace(self.access, positive=())
            return resolve(self.name, self.params, access, args)

    # Packing --------------------------------------------------------------------------------------

    def packed(self, *names: str) -> Kernel:
        """Return the kernel with packed layouts of these tensors: the register layout of the
        threads that compute a transformed operand. Calls with packed arrays select it:
        `kernel(x, kernel.pack(w))`. Block scale factors are [row atoms, block atoms, 2, 256].

        LaunchError for an output, an element type of other than 8 or 16 bits, and tensors of one
        dimension or more than three.
        """
        if not names:
            return self
        from wsdsl.dispatch.packed_kernel import packed_kernel

        return packed_kernel(self, names)

    @opaque
    def pack(self, /, *arrays: Any, **named: Any) -> Any:
        """Convert arrays to the layout of `packed` kernels: by name, `w = kernel.pack(W=w)`, or, in
        order, the tensors of the only transformed operand. Arrays are of any framework and device;
        the result has `unpack()`, and replaces the array in calls of kernels with that layout.

        Returns a `Packed`, or a tuple; for scale factors an array, for `packed(…)`.
        """
        from wsdsl.dispatch.packed_kernel import pack_arrays

        return pack_arrays(self, arrays, named)

    def _packed_for(self, args: Sequence[Any]) -> Kernel:
        """Return the kernel for these arguments: this kernel, or `packed` for packed arrays."""
        packed = (p.name for p, x in zip(self.params, args) if type(x).__name__ == "Packed")
        kinds = {p.name: p.type for p in self.params}
        return self.packed(*(n for n in packed if not getattr(kinds[n], "packed", True)))

    # torch ----------------------------------------------------------------------------------------

    def torch_op(self, name: str, backward: Kernel | Callable[..., Any] | None = None) -> Any:
        """Register the kernel as an operator "namespace::name" of torch, for torch.compile, export
        and autograd; return the callable `torch.ops.namespace.name`.

        The operator takes the kernel's inputs in order and returns the tensors that the kernel only
        writes; tensors that it reads and writes are mutated.

        backward: a kernel or a function. Its parameters are inputs and results of the kernel, by
            name, and `grad_<result>`. A kernel writes `grad_<input>`; a function returns one
            gradient or None per tensor input, in order.

        WsdslError if the name is registered with another kernel. Calls raise LaunchError under
        vmap, and without a `backward` for arguments that require a gradient.
        """
        from wsdsl.dispatch.torch_op import register

        return register(self, name, backward)

    # Compiling ------------------------------------------------------------------------------------

    def compile(
        self, /, schedule: Schedule | None = None, arch: str = "sm_90a", **sizes: int
    ) -> Compiled:
        """Compile, and assemble if ptxas is available. `sizes` of dimensions guide the heuristics
        for missing fields of the schedule; dimensions without tiles (`:`) must be given. The result
        is for contiguous arrays of these sizes; other sizes are assumed to be TMA-compatible.

        Raises CompileError for unsupported code, spills and serialized MMAs; ScheduleError.
        """
        kernel, schedule, sizes = self._select(schedule, sizes)
        if arch != "sm_90a":
            schedule = dataclasses.replace(schedule or Schedule(), arch=arch)  # pyright: ignore[reportArgumentType]
        made = kernel._variants.build(kernel._request_for(schedule, sizes, exact=True))
        return made if kernel is self else VectorizedVariant.of(made, self)

    def schedule(self, /, schedule: Schedule | None = None, **sizes: int) -> Schedule:
        """Return the complete schedule for these sizes; its repr can be pasted back. If ptxas runs
        out of registers, `compile` selects a narrower schedule, returned here from then on.
        """
        kernel, schedule, sizes = self._select(schedule, sizes)
        return kernel._compiled_for(schedule, sizes).schedule

    def dispatched_schedule(self, /, schedule: Schedule | None = None, **sizes: int) -> Schedule:
        """Return the complete schedule for calls of these sizes: that of their shape bucket."""
        kernel, schedule, sizes = self._select(schedule, sizes)
        request = kernel._request_for(schedule, sizes, exact=self.exact)
        return kernel._variants.lowered(request).schedule

    def plan(self, /, schedule: Schedule | None = None, **sizes: int) -> Plan:
        """Return the decisions of lowering for the schedule of `schedule()`, as a page of text."""
        kernel, schedule, sizes = self._select(schedule, sizes)
        compiled = kernel._compiled_for(schedule, sizes)
        chosen_by = "; ".join(kernel._record_note(schedule, sizes, compiled))
        return dataclasses.replace(compiled.plan, chosen_by=chosen_by)

    def explain(self, /, schedule: Schedule | None = None, **sizes: Any) -> Explanation:
        """Explain the schedule of `schedule()` for these sizes: a text with waves, bytes,
        registers and alternatives, whose attributes have the predictions as values.

        For ragged loops `rows=` gives the mean number of rows per trip; or give the arrays of
        their bounds by name, such as `offsets=[0, 100, 300]`.

        Raises ScheduleError for a `schedule` that does not fit.
        """
        from wsdsl.report.schedule_choice import explain_choice
        from wsdsl.report.tensor_moves import scale_moves

        rows = None if "rows" in self.dims else sizes.pop("rows", None)
        bounds = {name: sizes.pop(name) for name in {*sizes} & {p.name for p in self.params}}
        kernel, schedule, sizes = self._select(schedule, sizes)
        compiled = kernel._compiled_for(schedule, sizes)
        lines = *compiled.notes, *scale_moves(compiled.scheduled)
        lines = *lines, *kernel._record_note(schedule, sizes, compiled)
        lines = *lines, *kernel._bucket_notes(schedule, sizes, compiled)
        explained = explain_choice(compiled.source, compiled.plan, schedule, sizes, rows, bounds)
        return explained.with_lines(*lines)

    def timeline(self, /, schedule: Schedule | None = None, **sizes: int) -> Timeline:
        """Return the cost model's timeline of all SMs for the schedule of `schedule()` (`wsdsl
        timeline --sms` draws it). Printed, or as `.worker`: the work of the partitions of one CTA
        and the edges they wait for, in predicted cycles. `.save("trace.json")` is for
        ui.perfetto.dev.

        ScheduleError for a `schedule` that does not fit; CompileError where sizes are missing.
        """
        from wsdsl.ir.analysis.launch_narrowing import narrowed
        from wsdsl.lowering.pipeline import scheduled_tile
        from wsdsl.report.timeline import timeline

        kernel, schedule, sizes = self._select(schedule, sizes)
        self._need_all(kernel.dims, sizes)
        compiled = kernel._compiled_for(schedule, sizes)
        made = compiled.scheduled
        room = made.target.num_sms, made.target.cluster_room(compiled.signature.cluster)
        own = narrowed(made, compiled.signature.narrowing(sizes, *room))
        return timeline(scheduled_tile(compiled.source, sizes), sizes, own)

    def _select(
        self, schedule: Schedule | None, sizes: Mapping[str, int]
    ) -> tuple[Kernel, Schedule | None, dict[str, int]]:
        """Return the kernel for contiguous arrays of these sizes, and the sizes of its dims."""
        from wsdsl.runtime.arrays.alignment import contiguous

        schedule, sizes = self._checked(schedule, sizes)
        call = contiguous(self.params, self.access, sizes)
        kernel, call = select_variant(self, call, schedule)
        return kernel, schedule, dict(call.dims)

    def _compiled_for(self, schedule: Schedule | None, sizes: Mapping[str, int]) -> Compiled:
        return self._variants.lowered(self._request_for(schedule, sizes, exact=True))

    def export(
        self,
        /,
        folder: str | Path,
        sizes: Mapping[str, int | Iterable[int]],
        archs: Sequence[str] = (),
        *,
        schedule: Schedule | None = None,
    ) -> Path:
        """Compile the kernel for these sizes, and write cubins, a JSON manifest and a C launcher to
        a folder, which is a Python package: `wsdsl.load_exported(folder)` launches the kernel
        without the compiler (docs/export.md). Return the folder.

        sizes: of each dimension a size, or several, as a `range`. The kernels serve all sizes of
            their shape buckets, and contiguous arrays.
        archs: architectures; default: that of the schedule.

        Raises CompileError or ScheduleError, also where ptxas is missing.
        """
        from pathlib import Path

        from wsdsl.dispatch.export_variants import export

        return export(self, Path(folder), sizes, self._default_schedule(schedule), archs)

    # Tuning ---------------------------------------------------------------------------------------

    @called
    def tune(
        self,
        *args: Any,
        seconds: float = 60.0,
        candidates: Sequence[Schedule] | int | None = None,
        progress: bool = True,
        plot: str | Path | None = None,
        schedule: Schedule | None = None,
        executor: Executor | None = None,
        **named: Any,
    ) -> Tuned:
        """Measure the best schedules of the cost model for this call, in about `seconds`. The
        fastest becomes a tuning-cache entry, which calls of this shape bucket use from then on, if
        it is faster than the current schedule by more than the noise.

        `schedule` has the fixed fields; `candidates` replace the cost model's, or are the number
        of these; `plot` is the path of a plot of time versus stages and tile width. Arrays are not
        modified: other processes measure, on new arrays of the same shapes. Measurements of an
        interrupted run are reused. An `executor` compiles in place of child processes.

        Returns the measurements, a table when printed. LaunchError without a GPU.
        """
        how = dict(seconds=seconds, candidates=candidates, progress=progress, plot=plot)
        return self._tuned(self.resolve(args), schedule, executor=executor, **how)

    def tune_for(
        self,
        sizes: Mapping[str, int],
        scalars: Mapping[str, int | float] | None = None,
        *,
        schedule: Schedule | None = None,
        **how: Any,
    ) -> Tuned:
        """Run `tune` for contiguous arrays of these sizes, without arrays."""
        from wsdsl.ir.types import Tile
        from wsdsl.runtime.arrays.alignment import contiguous

        schedule, known = self._checked(schedule, sizes)
        self._need_all(self.dims, known)
        ones = {p.name: 1 for p in self.params if isinstance(p.type, Tile)}
        call = contiguous(self.params, self.access, known)
        call = dataclasses.replace(call, scalars={**ones, **(scalars or {})})
        return self._tuned(call, schedule, **how)

    def _tuned(self, call: Call, schedule: Schedule | None, **how: Any) -> Tuned:
        from wsdsl.dispatch.compile_child import compile_job
        from wsdsl.runtime.native.repeated_calls import forget_all
        from wsdsl.tune.tuning import TuningTask, tune

        schedule = self._default_schedule(schedule)
        kernel, call = select_variant(self, call, schedule)
        if kernel is not self:
            tuned = kernel._tuned(call, schedule, **how)
            self._forget()
            return tuned
        alignment = self._alignment(call, schedule, exact=self.exact)
        make_request = self._variants.request if self.exact else self._variants.bucket_request
        today = self._variants.build(make_request(schedule, call.dims, *alignment))
        source = self.declaration, self._variants.key, self._text
        task = TuningTask(self.name, *source, call, schedule, *alignment, today.artifact)
        tuned = tune(task, compile_job, **how)
        if tuned.winner is not None:
            self._variants.forget_choices()
            self._called.clear()
            self._forget()
            forget_all()
        return tuned

    # Running --------------------------------------------------------------------------------------

    @repeated
    @called
    def __call__(
        self,
        *args: Any,
        schedule: Schedule | None = None,
        stream: Any = None,
        exact: bool | None = None,
        on_miss: OnMiss | None = None,
        **named: Any,
    ) -> Any:
        """Run on torch, CuPy, JAX or NumPy arrays, on the caller's current stream. Inside `jax.jit`
        the call becomes one call of XLA's FFI.

        On a GPU all calls of a shape bucket run one kernel; with `exact` the kernel is chosen for
        these sizes alone. With `on_miss="nearest"` a call of a bucket without a compiled kernel
        runs the kernel of another bucket, while another process compiles; without any compiled
        kernel it waits. The defaults of `exact` and `on_miss` are attributes of the kernel.

        Arguments are given by position or by name. Outputs that are left out (or None) are
        allocated like the first input. Returns the output, or a tuple of outputs. LaunchError for
        illegal arrays, before anything is written.
        """
        recent = self._recent
        exact = self.exact if exact is None else exact
        look = recent.look(args, exact, schedule, stream)
        if (done := recent.again(look)) is not None:
            return done[0]
        schedule = self._default_schedule(schedule)
        if look is None and "jax" in sys.modules:
            from wsdsl.dispatch.jax_ffi import call_traced, is_traced

            if is_traced(args):
                return call_traced(self, args, schedule, stream, exact)
        if (kernel := self._packed_for(args)) is not self:
            return kernel(*args, schedule=schedule, stream=stream, exact=exact, on_miss=on_miss)
        kernel, call = select_variant(self, self.resolve(args), schedule)
        if kernel.record_call(call, schedule, stream, exact=exact):
            return call.result()
        on_miss = self.on_miss if on_miss is None else on_miss
        compiled, settled = kernel.dispatch(call, schedule, exact=exact, on_miss=on_miss)
        start = partial(recent.first, look) if look and settled else None
        return compiled.run(call, stream, start)

    @called
    def prepare(
        self,
        *args: Any,
        schedule: Schedule | None = None,
        stream: Any = None,
        exact: bool | None = None,
        **named: Any,
    ) -> Prepared:
        """Check and compile once: a call of the result is only the launch."""
        schedule = self._default_schedule(schedule)
        if (kernel := self._packed_for(args)) is not self:
            return kernel.prepare(*args, schedule=schedule, stream=stream, exact=exact)
        exact = self.exact if exact is None else exact
        kernel, call = select_variant(self, self.resolve(args), schedule)
        return kernel.compiled_for(call, schedule, exact=exact).prepare_call(call, stream)

    @called
    def simulate(
        self, *args: Any, schedule: Schedule | None = None, seed: int = 0, **named: Any
    ) -> Any:
        """Run the scheduled kernel on the CPU, barrier by barrier, on NumPy arrays."""
        schedule = self._default_schedule(schedule)
        if (kernel := self._packed_for(args)) is not self:
            return kernel.simulate(*args, schedule=schedule, seed=seed)
        kernel, call = select_variant(self, self.resolve(args), schedule)
        alignment = kernel._alignment(call, schedule)
        return kernel._compile(schedule, call.dims, *alignment).simulate_call(call, seed)

    @called
    def reference(self, *args: Any, **named: Any) -> Any:
        """Evaluate the kernel by NumPy, tile by tile, without a schedule.

        TypeCheckError if, on these arrays, the result depends on the tile sizes.
        """
        from wsdsl.simulator.reference.numpy_evaluation import evaluate

        if (kernel := self._packed_for(args)) is not self:
            return kernel.reference(*args)
        call = self.resolve(args)
        arrays = {**call.on_host(), **call.scalars}
        self._try_tile_sizes(self.tile_ir, arrays)
        evaluate(self.tile_ir, arrays)
        return call.result()


def _importable(kernel: Kernel) -> bool:
    held: Any = sys.modules.get(kernel.__module__)
    for part in kernel.__qualname__.split("."):
        held = getattr(held, part, None)
    return held is kernel


def _from_tile(name: str, text: str, source: str, doc: str | None) -> Kernel:
    """Return the kernel of pickled TILE IR."""
    from wsdsl.ir.parser import parse_kernel

    return Kernel(name, lambda: parse_kernel(text), source, doc, lambda: text)
