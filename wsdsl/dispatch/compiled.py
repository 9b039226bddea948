"""A compiled kernel: its forms from IR to machine code, each computed on first use."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import TYPE_CHECKING, Any, TypeVar

from wsdsl import config
from wsdsl.artifact.cache import get_or_compute
from wsdsl.artifact.versions import artifact_key, emitter, require_compiler
from wsdsl.background import in_background, in_fork
from wsdsl.deprecation import Renamed
from wsdsl.diagnostics import CompileError, warn
from wsdsl.dispatch.execution import Executable
from wsdsl.dispatch.ir_dumps import dumped, pass_dumps
from wsdsl.lazy import cached_property
from wsdsl.schedule import Schedule
from wsdsl.version import __version__

if TYPE_CHECKING:
    from wsdsl.artifact.artifact import Access, Artifact, Assembled, Certificate, Resources
    from wsdsl.artifact.signature import Signature
    from wsdsl.ir import op as ir
    from wsdsl.ir.plan import Plan
    from wsdsl.runtime.launcher import Launcher

T = TypeVar("T")


class Compiled(Executable):
    """A kernel with its schedule, for TMA-compatible or (`unaligned`) TMA-incompatible tensors.

    `ir(level)`, `llvm`, `ptx`, `cubin` and `sass` are its forms; a call launches it.
    """

    def __init__(
        self,
        kernel: ir.Kernel,
        sizes: Mapping[str, int] | None = None,
        key: str | None = None,
        chosen: ir.Kernel | None = None,
    ) -> None:
        """Lower a kernel of any level. `sizes`, where known, guide the schedule heuristics;
        `chosen` is the result of `scheduled_tile`; `key` is the cache key of the artifact.

        Raises CompileError, ScheduleError or VerifyError; ptxas runs later, on first use.
        """
        self.name, self._sizes, self._key = kernel.name, sizes, key
        self._make_source: Callable[[], ir.Kernel] = lambda: kernel
        self._rejected: tuple[tuple[str, bool], CompileError] | None = None
        self.notes: tuple[str, ...] = ()
        """Lines about the choice of the schedule that `explain` appends."""
        self._levels = self._lowered(chosen)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state with the source in place of its function, and without the launcher and
        the check of the PTX: pickle cannot serialize these three.
        """
        state = vars(self) | {"source": self.source}
        omitted = "_make_source", "_ptx_check", "launcher"
        return {n: x for n, x in state.items() if n not in omitted}

    @classmethod
    def from_artifact(cls, artifact: Artifact, make_source: Callable[[], ir.Kernel]) -> Compiled:
        """Return the compiled kernel of an artifact. Forms that the artifact lacks are computed on
        first use, from the kernel that `make_source` returns.
        """
        compiled = object.__new__(cls)
        compiled.name, compiled._sizes, compiled._key = artifact.name, None, None
        compiled._make_source, compiled._rejected, compiled.notes = make_source, None, ()
        compiled._take(artifact)
        return compiled

    def _take(self, artifact: Artifact) -> None:
        """Copy the fields of an artifact, which are not computed again."""
        for name in ("schedule", "params", "sizes", "signature", "access", "certificate"):
            self.__dict__[name] = getattr(artifact, name)
        self.__dict__["artifact"] = artifact

    def __repr__(self) -> str:
        return f"<compiled {self.name}: {self.schedule!r}>"

    # Forms ----------------------------------------------------------------------------------------

    @cached_property
    def source(self) -> ir.Kernel:
        """The kernel that was given, of any level."""
        return self._make_source()

    @cached_property
    def _levels(self) -> dict[str, ir.Kernel]:
        return self._lowered(None)

    def _lowered(self, chosen: ir.Kernel | None) -> dict[str, ir.Kernel]:
        from wsdsl.ir.op import LEVELS
        from wsdsl.lowering.pipeline import lower

        source, is_chosen = self.source, chosen is not None
        levels, kernel, dumps = {source.level: source}, chosen or source, pass_dumps()
        for level in ("partitioned", "scheduled"):
            if LEVELS.index(level) > LEVELS.index(kernel.level):
                kernel = lower(kernel, level, self._sizes, dumps, is_chosen=is_chosen)
                levels[level] = kernel
        if source.level == "scheduled":
            lower(kernel)  # verifies it
        return levels

    @cached_property
    def scheduled(self) -> ir.Kernel:
        """The kernel at the level SCHEDULED."""
        return self._levels["scheduled"]

    @cached_property
    def schedule(self) -> Schedule:
        """The complete schedule, with the fields that the compiler chose."""
        return self.scheduled.schedule or Schedule()

    @property
    def plan(self) -> Plan:
        """The decisions of lowering; their text is a page. CompileError for IR of a later level."""
        if (plan := self.partitioned.plan) is None:
            raise CompileError(f"WS0003 {self.name} was not compiled from TILE IR; it has no plan")
        return plan

    @cached_property
    def params(self) -> tuple[ir.Value, ...]:
        """Tensors and scalars, in the order of a call."""
        return self.scheduled.params

    @cached_property
    def sizes(self) -> tuple[tuple[str, int], ...]:
        """The dimensions with fixed sizes."""
        return self.scheduled.sizes

    @property
    def partitioned(self) -> ir.Kernel:
        """The kernel at the level PARTITIONED, if it was not compiled from a later one."""
        return self._levels.get("partitioned", self.scheduled)

    def has(self, level: str) -> bool:
        """Whether the kernel has a text at a level: the level of its source or a later one."""
        return level in self._levels or (level == "plan" and self.partitioned.plan is not None)

    def ir(self, level: ir.Level = "scheduled") -> str:
        """Return the kernel's text at a level; `wsdsl.compile_ir` compiles it, edited or not."""
        if level not in self._levels:
            message = f"WS0004 {self.name} was not compiled from `{level}` IR"
            raise CompileError(message, hint=f"use one of {', '.join(self._levels)}")
        return str(self._levels[level])

    @cached_property
    def llvm(self) -> str:
        require_compiler("llvmlite")
        from wsdsl.codegen.llvm_module import emit_llvm

        return dumped(self.name, "ll", emit_llvm(self.scheduled))

    @cached_property
    def ptx(self) -> str:
        if self.is_built:
            return self.artifact.ptx
        from wsdsl.codegen.ptx_emission import emit_ptx

        return dumped(self.name, "ptx", emit_ptx(self.llvm, self.scheduled.target))

    is_made = Renamed("is_built")

    @property
    def is_built(self) -> bool:
        """Whether the artifact is built or loaded."""
        return "artifact" in vars(self)

    @cached_property
    def artifact(self) -> Artifact:
        """The artifact of a launch, proved and, where ptxas is available, assembled: loaded from
        the cache or built. CompileError for diagnostics of ptxas, ProofError.
        """
        from wsdsl.artifact.artifact import Artifact

        options = config.PTXAS.get(), config.ALLOW_SPILLS.get()
        if self._rejected and self._rejected[0] == options:
            raise self._rejected[1].with_traceback(None)
        make = partial(self._make_artifact, *options)
        try:
            found = get_or_compute(artifact_key(self._key), Artifact, make)
        except CompileError as error:
            self._rejected = options, error
            raise
        self._take(found)
        return found

    def _make_artifact(self, path: str, allow_spills: bool) -> Artifact:
        from wsdsl.artifact.artifact import Artifact, Versions, deflated
        from wsdsl.codegen.ptxas import assemble_checked

        assembled, ptx = None, self.ptx
        if path == "off":
            self.prove()
        else:
            # ptxas is a separate process; the prover runs in parallel, and forks before the thread.
            _ = self._ptx_check
            given = self.scheduled, ptx, path or None
            call = partial(assemble_checked, *given, allow_spills=allow_spills)
            assembling = in_background(call)
            try:
                self.prove()
            finally:
                assembling.exception()  # waits
            assembled = assembling.result()
        resources = assembled and assembled.resources
        ptxas = resources.ptxas_version if resources else ""
        return Artifact(
            name=self.name,
            params=self.params,
            sizes=self.sizes,
            schedule=self.schedule,
            signature=self.signature,
            access=self.access,
            certificate=self.certificate,
            deflated_ir=deflated(str(self.scheduled)),
            deflated_ptx=deflated(ptx),
            cubin=assembled and assembled.cubin,
            resources=resources,
            log=assembled.log if assembled else "",
            versions=Versions(__version__, emitter() or "", ptxas),
        )

    @property
    def assembled(self) -> Assembled | None:
        """The output and diagnostics of ptxas; None without ptxas. CompileError for diagnostics.

        Only proved kernels are assembled: ProofError.
        """
        return self.artifact.assembled

    @property
    def cubin(self) -> bytes:
        """The machine code. CompileError without ptxas (the driver assembles the PTX then)."""
        return self._need(self.artifact.cubin)

    @property
    def resources(self) -> Resources:
        """Registers, spills, the total SMEM of a CTA, and the version of ptxas."""
        static = self._need(self.artifact.resources)
        smem_bytes = static.smem_bytes + self.signature.smem_bytes
        return dataclasses.replace(static, smem_bytes=smem_bytes)

    def _need(self, value: T | None) -> T:
        if value is None:
            hint = "pip install nvidia-cuda-nvcc; `wsdsl doctor` lists the tools that it finds"
            raise CompileError("WS0005 ptxas is not installed", hint=hint)
        return value

    @cached_property
    def sass(self) -> str:
        from wsdsl.codegen.ptxas import disassemble

        return dumped(self.name, "sass", disassemble(self.cubin))

    @cached_property
    def certificate(self) -> Certificate:
        """The proved properties, and how. ProofError, with the trace of a failure, otherwise."""
        from wsdsl.prover.prove import prove

        return prove(self.scheduled)

    def prove(self) -> Certificate:
        """Prove that the kernel has neither deadlocks nor races, and that its PTX synchronizes as
        its IR does. ProofError has the shortest trace of a failure.
        """
        if not self.is_built:
            _ = self.certificate
            self._ptx_check()
        return self.certificate

    @cached_property
    def _ptx_check(self) -> Callable[[], object]:
        """Start to check the PTX, in a fork if that is permitted; the call waits for it."""
        from wsdsl.prover.memory.early_accesses import check_early_accesses
        from wsdsl.prover.ptx.check_ptx import check_skeleton

        x, ptx, owners = self.scheduled, self.ptx, self.signature.owners
        return cache(
            in_fork(lambda: (check_skeleton(x, ptx), check_early_accesses(x, ptx, owners)))
        )

    @cached_property
    def signature(self) -> Signature:
        from wsdsl.codegen.launch_signature import signature

        return signature(self.scheduled)

    def explain(self) -> str:
        """Return the plan, and how each tensor moves between GMEM, SMEM and registers."""
        from wsdsl.report.tensor_moves import tensor_moves

        plan = [str(self.plan)] if self.has("plan") else []
        return "\n".join((self.name, *plan, *tensor_moves(self.scheduled), *self.notes))

    # Running --------------------------------------------------------------------------------------

    @property
    def fixed_sizes(self) -> Mapping[str, int]:
        return dict(self.sizes)

    @cached_property
    def access(self) -> Access:
        from wsdsl.codegen.launch_signature import access_of

        access, source = access_of(self.scheduled), access_of(self.source)
        return dataclasses.replace(access, whole=source.whole, positive=source.positive)

    @cached_property
    def launcher(self) -> Launcher:
        from wsdsl.runtime.launcher import launcher_of

        if self.artifact.cubin is None:
            message = f"{self.name}: without ptxas the driver assembles and does not report spills"
            warn(f"{message}; run `wsdsl doctor`", UserWarning)
        return launcher_of(self.artifact)
