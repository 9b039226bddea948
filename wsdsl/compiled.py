"""A compiled kernel: every form that it takes on the way to the GPU, made when it is asked for."""

from __future__ import annotations

import dataclasses
import threading
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from wsdsl import knobs
from wsdsl.diagnostics import CompileError, Finding, LaunchError
from wsdsl.ir import op as ir
from wsdsl.schedule import Schedule

if TYPE_CHECKING:
    from wsdsl.codegen.ptxas import Assembled, Resources
    from wsdsl.codegen.signature import Signature
    from wsdsl.prover.prove import Certificate
    from wsdsl.runtime.access import Access
    from wsdsl.runtime.arguments import Call
    from wsdsl.runtime.launch import Launcher
    from wsdsl.runtime.prepared import Prepared
    from wsdsl.runtime.recent import Recent, Start


class Callee:
    """What is called with a kernel's arrays and numbers, and knows calls like one before."""

    name: str

    @property
    def params(self) -> Sequence[ir.Value]:
        raise NotImplementedError

    @cached_property
    def access(self) -> Access:
        raise NotImplementedError

    @property
    def fixed_sizes(self) -> Mapping[str, int]:
        """Dimensions that it was compiled for."""
        return {}

    @cached_property
    def _recent(self) -> Recent:
        from wsdsl.runtime.recent import Recent

        return Recent()

    def in_order(self, args: tuple[Any, ...], named: Mapping[str, Any]) -> tuple[Any, ...]:
        """The arguments by position."""
        from wsdsl.runtime.arguments import in_order

        return in_order(self.name, self.params, self.access, args, named) if named else args

    def resolve(self, args: tuple[Any, ...]) -> Call:
        """The arguments checked, with outputs for those left out. LaunchError if they do not fit.

        An `ArrayView` is taken for the array that it describes.
        """
        from wsdsl.runtime.arguments import resolve

        return resolve(self.name, self.params, self.access, args, self.fixed_sizes)


class Compiled(Callee):
    """A kernel with its schedule, for tensors that TMA can take or (`unaligned`) can not.

    `ir(level)`, `llvm`, `ptx`, `cubin` and `sass` are its forms; calling it runs it.
    """

    def __init__(self, kernel: ir.Kernel, sizes: Mapping[str, int] | None = None) -> None:
        """`kernel` at any level; `sizes`, where known, guide the choice of the schedule.

        Raises CompileError, ScheduleError or VerifyError; nothing is assembled yet.
        """
        from wsdsl.lowering.pipeline import lower

        self.name = kernel.name
        self.source = kernel
        self._levels: dict[str, ir.Kernel] = {kernel.level: kernel}
        started = time.perf_counter()
        for level in ("partitioned", "scheduled"):
            if ir.LEVELS.index(level) > ir.LEVELS.index(kernel.level):
                kernel = lower(kernel, level, sizes, [self._dump_pass] if knobs.DUMP.get() else [])
                self._levels[level] = kernel
        if self.source.level == "scheduled":
            lower(self.source)  # verifies it
        self.scheduled = kernel
        self.lowering_seconds = time.perf_counter() - started
        self._refused: tuple[tuple[str, bool], CompileError] | None = None
        self.notes: tuple[str, ...] = ()
        """What else `explain` tells of how the schedule was chosen."""

    def __repr__(self) -> str:
        return f"<compiled {self.name}: {self.schedule!r}>"

    # Forms ----------------------------------------------------------------------------------------

    @property
    def schedule(self) -> Schedule:
        """The whole schedule, with what the compiler chose."""
        return self.scheduled.schedule or Schedule()

    @property
    def partitioned(self) -> ir.Kernel:
        """The kernel at the level PARTITIONED, if it was not compiled from a later one."""
        return self._levels.get("partitioned", self.scheduled)

    def ir(self, level: ir.Level = "scheduled") -> str:
        """The kernel's text at a level; `wsdsl.compile_ir` takes it back, edited or not."""
        if level not in self._levels:
            has = ", ".join(self._levels)
            raise CompileError(Finding(f"{self.name} was not compiled from {level}; it has {has}"))
        return str(self._levels[level])

    @cached_property
    def llvm(self) -> str:
        from wsdsl.codegen.module import emit_llvm

        return self._dumped("ll", emit_llvm(self.scheduled))

    @cached_property
    def ptx(self) -> str:
        from wsdsl.codegen.emit import emit_ptx

        return self._dumped("ptx", emit_ptx(self.llvm))

    @cached_property
    def assembled(self) -> Assembled | None:
        """What ptxas made and said; None without a ptxas. CompileError where that is not good.

        Nothing that is not proved comes further than here: ProofError.
        """
        from wsdsl.codegen.ptxas import assemble_checked

        asked = path, allow_spills = knobs.PTXAS.get(), knobs.ALLOW_SPILLS.get()
        if path == "off":
            self.prove()
            return None
        if self._refused and self._refused[0] == asked:
            raise self._refused[1].with_traceback(None)
        ptx = self.ptx
        # ptxas is a process of its own: the proof is made meanwhile.
        assembling = Background(
            lambda: assemble_checked(self.scheduled, ptx, path or None, allow_spills=allow_spills)
        )
        try:
            self.prove()
        finally:
            assembling.join()
        try:
            return assembling.result()
        except CompileError as error:
            self._refused = asked, error
            raise

    @property
    def cubin(self) -> bytes:
        """The machine code. CompileError if there is no ptxas (the driver assembles then)."""
        return self._need_assembled().cubin

    @property
    def resources(self) -> Resources:
        """Registers, all of a CTA's SMEM, spills and the version of ptxas."""
        held = self._need_assembled().resources
        return dataclasses.replace(held, smem_bytes=held.smem_bytes + self.signature.smem_bytes)

    def _need_assembled(self) -> Assembled:
        if self.assembled is None:
            hint = "pip install nvidia-cuda-nvcc; `wsdsl doctor` tells what is found"
            raise CompileError(Finding("there is no ptxas here", hint=hint))
        return self.assembled

    @cached_property
    def sass(self) -> str:
        from wsdsl.codegen.ptxas import disassemble

        return self._dumped("sass", disassemble(self.cubin))

    @cached_property
    def certificate(self) -> Certificate:
        """What was proved of the kernel, and how. ProofError, with the way to a failure, if not."""
        from wsdsl.prover.prove import prove

        return prove(self.scheduled)

    def prove(self) -> Certificate:
        """Prove that the kernel neither deadlocks nor races, and that its PTX synchronises as it
        does. ProofError tells the shortest way to a failure.
        """
        from wsdsl.prover.early_accesses import check_early_accesses
        from wsdsl.prover.skeleton import check_skeleton

        if "_skeleton_checked" not in vars(self):
            certificate = self.certificate
            check_skeleton(self.scheduled, self.ptx)
            check_early_accesses(self.scheduled, self.ptx, self.signature.owners)
            self._skeleton_checked = True
            return certificate
        return self.certificate

    @cached_property
    def signature(self) -> Signature:
        from wsdsl.codegen.signature import signature

        return signature(self.scheduled)

    def explain(self) -> str:
        """Why the kernel is cut, buffered and sized as it is."""
        from wsdsl.report.explain import explain

        return "\n".join((explain(self.scheduled, self.signature), *self.notes))

    # Running --------------------------------------------------------------------------------------

    @property
    def params(self) -> Sequence[ir.Value]:
        return self.scheduled.params

    @property
    def fixed_sizes(self) -> Mapping[str, int]:
        return dict(self.scheduled.sizes)

    @cached_property
    def access(self) -> Access:
        from wsdsl.runtime.access import access_of

        whole = access_of(self.source).whole
        return dataclasses.replace(access_of(self.scheduled), whole=whole)

    @cached_property
    def launcher(self) -> Launcher:
        from wsdsl.runtime.launch import Launcher

        if self.assembled is None:
            message = f"{self.name}: without ptxas the driver assembles, and spills go unseen"
            warnings.warn(f"{message}; `wsdsl doctor` tells more", stacklevel=3)
        image = self.assembled.cubin if self.assembled is not None else self.ptx
        return Launcher(image, self.signature, self.access, self.schedule.arch)

    def __call__(self, *args: Any, stream: Any = None, **named: Any) -> Any:
        """Run on the arrays' device (NumPy arrays: on a GPU if there is one, else simulated).

        Returns the output, or a tuple of them. LaunchError if the arrays do not fit.
        """
        args = self.in_order(args, named) if named else args
        recent = self._recent
        look = recent.look(args, None, None, stream)
        if (done := recent.again(look)) is not None:
            return done[0]
        call = self.resolve(args)
        start = look and partial(recent.first, look)
        return self.run(call, stream, start)

    def fits(self, call: Call) -> bool:
        """Whether all CTAs that wait for each other can run at the same time on the call's GPU."""
        from wsdsl.runtime.device import device_properties
        from wsdsl.runtime.launch import has_room

        index = int(call.device.removeprefix("cuda:")) if call.device != "cpu" else 0
        return has_room(self.signature, call.dims, device_properties(index).num_sms)

    def run(self, call: Call, stream: Any = None, start: Start | None = None) -> Any:
        """`start` runs it on a GPU, in its own way."""
        if call.device != "cpu" and start is not None:
            start(self.launcher, call)
        elif call.device != "cpu":
            self.prepare_call(call, stream, keepalive=False)()
        elif runs_simulated():
            self.simulate_call(call)
        else:
            from wsdsl.runtime.staging import run_staged

            run_staged(self.launcher, call, stream)
        return call.result()

    def prepare(self, *args: Any, stream: Any = None, **named: Any) -> Prepared:
        """Everything resolved once; calling the result is only the launch."""
        return self.prepare_call(self.resolve(self.in_order(args, named)), stream)

    def prepare_call(self, call: Call, stream: Any = None, *, keepalive: bool = True) -> Prepared:
        """`prepare`, of arguments that are resolved already."""
        if call.device == "cpu":
            hint = "give arrays of torch, CuPy or JAX that are on a GPU"
            raise LaunchError(Finding("prepare() needs arrays on a GPU", hint=hint))
        return self.launcher.prepare(
            call.views, call.scalars, call.dims, stream, call.zeroed, keepalive=keepalive
        )

    def simulate(self, *args: Any, seed: int = 0, **named: Any) -> Any:
        """Run barrier by barrier on the CPU, on NumPy arrays, in an order that `seed` chooses.

        SimulationError for a race, a deadlock, a slot read too early or overwritten too soon.
        """
        return self.simulate_call(self.resolve(self.in_order(args, named)), seed)

    def simulate_call(self, call: Call, seed: int = 0) -> Any:
        """`simulate`, of arguments that are resolved already."""
        from wsdsl.runtime.padding import padded_array, to_pad
        from wsdsl.simulator.machine import simulate

        if call.device != "cpu":
            raise LaunchError(Finding("the simulator takes NumPy arrays", hint="copy to the CPU"))
        copies = {n: padded_array(call.arrays[n]) for n in to_pad(self.access, call.views)}
        simulate(self.scheduled, {**call.arrays, **copies, **call.scalars}, seed=seed)
        return call.result()

    # Dumps ----------------------------------------------------------------------------------------

    def _dump_pass(self, name: str, before: ir.Kernel, after: ir.Kernel) -> None:
        if before != after:
            self._dump_number = getattr(self, "_dump_number", 0) + 1
            self._dumped(f"{self._dump_number:02}.{name}.ir", str(after))

    def _dumped(self, suffix: str, text: str) -> str:
        folder = knobs.DUMP.get()
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{self.name}.{suffix}").write_text(text)
        return text


class Background:
    """A call in a thread of its own; `result` gives what it returned, or raises what it raised."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._outcome: tuple[Any, BaseException | None] = None, None
        self._thread = threading.Thread(target=self._run, args=(call,), daemon=True)
        self._thread.start()

    def _run(self, call: Callable[[], Any]) -> None:
        try:
            self._outcome = call(), None
        except BaseException as error:
            self._outcome = None, error

    def join(self) -> None:
        self._thread.join()

    def result(self) -> Any:
        self.join()
        value, error = self._outcome
        if error is not None:
            raise error
        return value


def runs_simulated() -> bool:
    """Whether NumPy arrays go to the simulator: by WSDSL_BACKEND, or since there is no GPU."""
    backend = knobs.BACKEND.get()
    if backend == "simulator":
        return True
    from wsdsl.runtime.device import gpu_available

    if backend == "gpu" and not gpu_available():
        raise LaunchError(Finding("there is no Hopper GPU here", hint="`wsdsl doctor` tells more"))
    return not gpu_available()
