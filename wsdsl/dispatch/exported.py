"""`load_exported`: kernels of an exported folder, which launch without the compiler."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

from wsdsl.artifact.artifact import Declaration
from wsdsl.artifact.dispatch_table import Form
from wsdsl.diagnostics import CompileError, LaunchError
from wsdsl.dispatch.callee import Callee
from wsdsl.dispatch.compiled import Compiled
from wsdsl.dispatch.dispatcher import MAX_CALLED
from wsdsl.dispatch.execution import runs_simulated
from wsdsl.dispatch.kernel import Kernel
from wsdsl.export.manifest import Manifest
from wsdsl.lazy import cached_property, remember
from wsdsl.runtime.arguments import Call
from wsdsl.schedule import Schedule


def load_exported(folder: str | Path) -> Exported:
    """Load the kernel of a folder that `Kernel.export` wrote. Its calls and `prepare` launch the
    exported variants; no compiler is needed. LaunchError for a missing or damaged file, and for a
    manifest of another version.
    """
    from wsdsl.export.manifest import read
    from wsdsl.runtime.native.native_code import add_shipped

    manifest = read(Path(folder))
    add_shipped(*manifest.native)
    return Exported(manifest, manifest.form)


class Exported(Kernel):
    """An exported kernel, or a form of one."""

    def __init__(self, manifest: Manifest, form: Form) -> None:
        super().__init__(manifest.name, self._need_source, doc=manifest.doc)
        self._manifest, self._form = manifest, form
        names = form.declaration.forms
        self._forms = {n: Exported(manifest, f) for n, f in zip(names, form.forms, strict=True)}
        self._kernels: dict[int, Compiled] = {}

    def __repr__(self) -> str:
        return f"<exported kernel {self.name} of {self._manifest.path.parent}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return load_exported, (self._manifest.path.parent,)

    @property
    def declaration(self) -> Declaration:
        return self._form.declaration

    @cached_property
    def tile_ir(self) -> Any:
        self._need_source()

    @cached_property
    def _variants(self) -> Any:
        self._need_source()

    def _need_source(self) -> NoReturn:
        message = f"WS1157 {self.name} is an exported kernel; only its calls and prepare() run"
        raise CompileError(message, hint="use the kernel that was exported")

    resolve = Callee.resolve

    def record_call(
        self, call: Call, schedule: Schedule | None, stream: Any, *, exact: Any
    ) -> bool:
        from wsdsl.runtime.native.recorded_launches import recorder

        return recorder.calls is not None

    def dispatch(
        self, call: Call, schedule: Schedule | None = None, **_: Any
    ) -> tuple[Compiled, bool]:
        return self.compiled_for(call, schedule), True

    def compiled_for(self, call: Call, schedule: Schedule | None = None, **_: Any) -> Compiled:
        """Return the exported variant of a call. LaunchError if none was exported for its sizes,
        the alignment of its arrays and its GPU; an exported kernel has no other `schedule`.
        """
        blocked = tuple(sorted(call.tma_blocked()))
        key = call.device, tuple(call.dims.items()), blocked
        if schedule is not None:
            self._need_source()
        if call.device == "cpu" and runs_simulated():
            message = f"WS1160 {self.name} is an exported kernel, and no supported GPU was found"
            raise LaunchError(message, hint="run `wsdsl doctor`")
        found = self._called.get(key)
        if found is None:
            found = remember(self._called, key, self._variant(call, blocked), MAX_CALLED)
        return found

    def _variant(self, call: Call, blocked: tuple[str, ...]) -> Compiled:
        from wsdsl.runtime.device import device_properties

        device = device_properties(int(call.device.partition(":")[2] or 0))
        if device.driver < self._manifest.driver:
            has, needs = (".".join(map(str, x)) for x in (device.driver, self._manifest.driver))
            message = f"WS1158 the driver is for CUDA {has}; {self.name} was exported for {needs}"
            raise LaunchError(f"{message} or newer", hint="update the driver")
        for variant in self._form.variants:
            if variant.serves(device.arch, call.dims, blocked):
                return self._compiled(variant.kernel)
        sizes = ", ".join(f"{dim} = {size}" for dim, size in call.dims.items())
        message = f"WS1159 {self.name} was not exported for {sizes} on {device}"
        if blocked:
            message += f" with TMA-incompatible {', '.join(blocked)}"
        raise LaunchError(message, hint="export these sizes; give contiguous arrays")

    def _compiled(self, index: int) -> Compiled:
        if index not in self._kernels:
            made = Compiled.from_artifact(self._manifest.artifact(index), self._need_source)
            self._kernels.setdefault(index, made)
        return self._kernels[index]
