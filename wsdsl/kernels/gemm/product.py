"""One matrix product of given arrays: the kernel behind it, and what can be done with it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from wsdsl.diagnostics import Finding, LaunchError
from wsdsl.kernels.gemm.form import kernel_of
from wsdsl.kernels.gemm.plan import Plan
from wsdsl.runtime.views import ArrayView
from wsdsl.schedule import Schedule

if TYPE_CHECKING:
    from wsdsl.compiled import Compiled
    from wsdsl.compiler import Kernel
    from wsdsl.prover.prove import Certificate
    from wsdsl.runtime.arguments import Call
    from wsdsl.runtime.launch import Prepared

PLACE = re.compile(r"argument \d+ \((\w+)\)")


@dataclass(frozen=True)
class Product:
    """A call of `matmul` with everything decided but the schedule.

    out: the result's array, allocated if the call gave none
    kernel, source: the kernel, which can be compiled for other sizes, too, and its text
    arguments: what the kernel is called with
    """

    plan: Plan
    arguments: tuple[Any, ...]
    out: Any

    @property
    def kernel(self) -> Kernel:
        return kernel_of(self.plan.form)

    @property
    def source(self) -> str:
        return self.kernel.source

    @cached_property
    def call(self) -> Call:
        """LaunchError where an array does not fit for more than its shape."""
        try:
            return self.kernel.resolve(self.arguments)
        except LaunchError as error:
            found = [Finding(_renamed(f.message), f.loc, f.hint) for f in error.findings]
            raise LaunchError(found) from None

    @property
    def sizes(self) -> Mapping[str, int]:
        """The kernel's dimensions; rows that several batches make are counted as one M."""
        return self.call.dims

    def compile(self, schedule: Schedule | None = None) -> Compiled:
        """What `run` runs. CompileError or ScheduleError."""
        return self.kernel.compiled_for(self.call, schedule)

    def explain(self, schedule: Schedule | None = None) -> str:
        return self.compile(schedule).explain()

    def prove(self, schedule: Schedule | None = None) -> Certificate:
        return self.compile(schedule).prove()

    def run(self, schedule: Schedule | None = None, stream: Any = None) -> Any:
        """On the GPU, or NumPy arrays without one in the simulator. Returns `out`."""
        call = self.call
        self.kernel.compiled_for(call, schedule).run(call, stream)
        return self.out

    def simulate(self, schedule: Schedule | None = None, seed: int = 0) -> Any:
        """Barrier by barrier on the CPU, in an order that `seed` chooses. Returns `out`."""
        self.compile(schedule).simulate(*self.arguments, seed=seed)
        return self.out

    def prepare(self, schedule: Schedule | None = None, stream: Any = None) -> Prepared:
        """Calling what is returned is only the launch, into `out`."""
        return self.compile(schedule).prepare(*self.arguments, stream=stream)


def _renamed(message: str) -> str:
    """As the caller of `matmul` knows the arguments: "argument 1 (A): …" is "a: …"."""
    return PLACE.sub(lambda m: m[1].lower(), message)


def slotted(view: ArrayView, shape: tuple[int, ...], strides: tuple[int, ...]) -> ArrayView:
    """The same memory, walked as the kernel's parameter walks it."""
    return ArrayView(
        view.pointer, view.dtype, shape, strides,
        view.device, view.readonly, view.framework, view.keepalive,
    )  # fmt: skip
