"""Derive variants of a kernel whose arrays are viewed as other tensors: packed groups of adjacent
elements, or one axis of contiguous arrays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from wsdsl.diagnostics import LaunchError
from wsdsl.dispatch.compiled import Compiled
from wsdsl.dispatch.dispatcher import Dispatcher, DispatcherT
from wsdsl.ir.hardware.gmem_limits import L2_LINE

if TYPE_CHECKING:
    from wsdsl.ir import op as ir
    from wsdsl.runtime.arguments import Call
    from wsdsl.schedule import Schedule


def select_variant(
    kernel: DispatcherT, call: Call, schedule: Schedule | None
) -> tuple[DispatcherT, Call]:
    """Return the variant for a call, and the call with the variant's views."""
    from wsdsl.artifact.artifact import ON_ONE_AXIS
    from wsdsl.runtime.arrays.retyped import retyped

    for name in kernel.declaration.forms:
        if name == ON_ONE_AXIS and not _pays(kernel, call, schedule):
            continue
        form = form_of(kernel, name)
        if (view_call := retyped(call, form.params)) is not None:
            return select_variant(form, view_call, schedule)
    return kernel, call


def _pays(kernel: Dispatcher, call: Call, schedule: Schedule | None) -> bool:
    """Check whether rows are not whole L2 lines, and the schedule does not fix the axes."""
    rows = (v.shape[-1] * v.dtype.bytes for v in call.views.values() if len(v.shape) > 1)
    known = all(dim in call.dims for dim in kernel.dims)
    return known and not (schedule and schedule.fixes_axes) and any(row % L2_LINE for row in rows)


def form_of(kernel: DispatcherT, name: str) -> DispatcherT:
    """Return a form of a kernel, derived on first use."""

    def change(tile: ir.Kernel) -> ir.Kernel:
        from wsdsl.lowering.packed_components import FORMS

        made = FORMS[name](tile)
        assert made is not None
        return made

    known: dict[str, DispatcherT] = kernel.__dict__.setdefault("_forms", {})
    if name not in known:
        known[name] = kernel.derived(change, name)
    return known[name]


class VectorizedVariant(Compiled):
    """A compiled form, for calls of the kernel that the form is derived from."""

    outer: Dispatcher

    @classmethod
    def of(cls, made: Compiled, outer: Dispatcher) -> VectorizedVariant:
        variant = cls.__new__(cls)
        variant.__dict__.update(made.__dict__)
        variant.outer = outer
        return variant

    def in_order(self, args: tuple[Any, ...], named: Any) -> tuple[Any, ...]:
        return self.outer.in_order(args, named)

    def resolve(self, args: tuple[Any, ...]) -> Call:
        from wsdsl.runtime.arrays.retyped import retyped
        from wsdsl.runtime.bind import bind

        call = retyped(self.outer.resolve(args), self.params)
        if call is None:
            message = f"WS0013 {self.name} was compiled for contiguous arrays of aligned addresses"
            hint = "call the kernel itself, which is compiled for the alignment of its arrays"
            raise LaunchError(message, hint=hint)
        made = frozenset(call.views.keys() - call.sources.keys())
        bind(self.params, call.views, self.fixed_sizes, access=self.access, allocated=made)
        return call
