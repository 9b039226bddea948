"""One matmul of given arrays: its kernel, to run, compile, explain, prove or tune."""

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from wsdsl.artifact.artifact import Certificate
from wsdsl.diagnostics import LaunchError
from wsdsl.dispatch.compiled import Compiled
from wsdsl.dispatch.dispatcher import OnMiss
from wsdsl.dispatch.kernel import Kernel
from wsdsl.dynamo import opaque
from wsdsl.ir.types import F32
from wsdsl.kernels.gemm.call_plan import Plan
from wsdsl.kernels.gemm.matmul_source import kernel_of
from wsdsl.lazy import cached_property
from wsdsl.runtime.arguments import Call, as_scalar
from wsdsl.runtime.arrays.views import ArrayView
from wsdsl.runtime.prepared import Prepared
from wsdsl.runtime.recent import Start
from wsdsl.schedule import Schedule, as_schedule, with_constants
from wsdsl.tune import Tuned

PLACE = re.compile(r"argument \d+ \((\w+)\)")


class Product:
    """A call of `matmul` with everything decided but the schedule.

    `out` is the result's array, allocated if the call gave none.
    """

    def __init__(
        self,
        plan: Plan,
        views: Mapping[str, ArrayView],
        numbers: Mapping[str, float],
        out: Any,
        constant: tuple[str, ...] = (),
    ) -> None:
        """`views` and `numbers` by the name of the kernel's parameter; `constant` are such, too."""
        self.plan, self.views, self.numbers, self.out = plan, views, numbers, out
        self.constant = constant

    def __repr__(self) -> str:
        return f"<product by\n{self.source}>"

    @cached_property
    def kernel(self) -> Kernel:
        """Can be compiled for other sizes, too, dumped and proved."""
        return kernel_of(self.plan.form)

    @property
    def source(self) -> str:
        """The kernel's text."""
        return self.kernel.source

    @property
    def arguments(self) -> tuple[Any, ...]:
        """Arguments of the kernel's call."""
        given = {**self.views, **self.numbers}
        return tuple(given[p.name] for p in self.plan.form.params)

    @cached_property
    def call(self) -> Call:
        """LaunchError where an array does not fit for more than its geometry.

        Plans are of one geometry, so of a second call on the GPU only overlaps are left to check.
        """
        plan, views = self.plan, self.views
        fit = plan.dims is not None and all(map(_is_f32, self.numbers.values()))
        if fit and plan.dims is not None and not self._may_overlap():
            return Call(views, views, self.numbers, plan.dims, ("out",))
        try:
            call = self.kernel.resolve(self.arguments)
        except LaunchError as error:
            # As the caller of `matmul` knows the arguments: "argument 1 (A): …" is "a: …".
            named = partial(PLACE.sub, lambda m: m[1].lower())
            found = [replace(f, message=named(f.message)) for f in error.findings]
            raise LaunchError(found) from None
        if call.device != "cpu":
            plan.dims = call.dims
        return call

    def _may_overlap(self) -> bool:
        """Whether the range of the result's bytes crosses another's."""
        *inputs, out = self.plan.slots
        start = self.views["out"].pointer
        low, high = start + out.low, start + out.high
        for slot in inputs:
            pointer = self.views[slot.param].pointer
            if pointer + slot.low < high and low < pointer + slot.high:
                return True
        return False

    @property
    def sizes(self) -> Mapping[str, int]:
        """The kernel's dimensions; rows that several batches make are counted as one M."""
        return self.call.dims

    def compile(self, schedule: Schedule | None = None) -> Compiled:
        """Compile the kernel of `run` on a GPU; if it spills registers, with narrower tiles.
        CompileError or ScheduleError.
        """
        return self._compiled(schedule, assembled=True)

    def _compiled(
        self, schedule: Schedule | None, *, assembled: bool = False, exact: bool | None = None
    ) -> Compiled:
        call, aligned = self.call, self.views["out"].pointer & 15
        exact = self.kernel.exact if exact is None else exact
        asked = as_schedule(schedule), self.constant, aligned, assembled, exact
        found = self.plan.compiled.get(asked)
        if found is None:
            given = with_constants(schedule, self.constant)
            found = self.kernel.compiled_for(call, given, assembled=assembled, exact=exact)
            self.plan.compiled[asked] = found
        return found

    def explain(self, schedule: Schedule | None = None) -> str:
        copied = self.kernel.padded_for(self.call, with_constants(schedule, self.constant))
        said = f"before each launch: copies of {', '.join(copied)} to TMA-compatible rows"
        return "\n".join((self._compiled(schedule).explain(), *([said] if copied else [])))

    def prove(self, schedule: Schedule | None = None) -> Certificate:
        return self._compiled(schedule).prove()

    def tune(self, schedule: Schedule | None = None, **how: Any) -> Tuned:
        """As kernels are tuned. Calls that ran before go on as they were: `matmul.tune` is for
        these, too.
        """
        given = with_constants(as_schedule(schedule), self.constant)
        assert self.call  # raises in terms of the caller's arguments
        return self.kernel.tune(*self.arguments, schedule=given, **how)

    @opaque
    def run(
        self,
        schedule: Schedule | None = None,
        stream: Any = None,
        start: Start | None = None,
        *,
        exact: bool | None = None,
        on_miss: OnMiss | None = None,
    ) -> Any:
        """On the GPU, there by `start` if given, or NumPy arrays without one in the simulator.
        Returns `out`.
        """
        given = with_constants(as_schedule(schedule), self.constant)
        if self.kernel.record_call(self.call, given, stream, exact=exact):
            return self.out
        if on_miss is None or on_miss == "wait":
            self._compiled(schedule, exact=exact).run(self.call, stream, start)
            return self.out
        found, settled = self.kernel.dispatch(self.call, given, exact=exact, on_miss=on_miss)
        found.run(self.call, stream, start if settled else None)
        return self.out

    @opaque
    def simulate(self, schedule: Schedule | None = None, seed: int = 0) -> Any:
        """Barrier by barrier on the CPU, in an order that `seed` chooses. Returns `out`."""
        self._compiled(schedule).simulate_call(self.call, seed)
        return self.out

    def prepare(self, schedule: Schedule | None = None, stream: Any = None) -> Prepared:
        """Calling what is returned is only the launch, into `out`."""
        return self._compiled(schedule).prepare_call(self.call, stream)


def _is_f32(number: float) -> bool:
    try:
        as_scalar(number, F32)
    except LaunchError:
        return False
    return True
