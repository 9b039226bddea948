"""Calls of exported kernels with arrays on a GPU that is not there; it needs no compiler."""

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple

from tests.runtime.fake_driver import MAIN, FakeDriver
from wsdsl import Schedule
from wsdsl.ir.types import Tensor
from wsdsl.runtime import device
from wsdsl.runtime.arrays.packed import packed_strides
from wsdsl.runtime.arrays.views import ArrayView, contiguous_strides
from wsdsl.runtime.device import Device


class Case(NamedTuple):
    """A kernel that is exported for `sizes` and called with `calls`, whose sizes are in the buckets
    of these, and with these `scalars`."""

    kernel: Any
    sizes: Mapping[str, Any]
    calls: tuple[Mapping[str, int], ...]
    scalars: Mapping[str, float] = MappingProxyType({})
    schedule: Schedule | None = None

    def arguments(self, call: Mapping[str, int]) -> dict[str, Any]:
        """The call's arguments: views of contiguous arrays, each 64 GiB after the one before."""
        made: dict[str, Any] = {}
        for i, param in enumerate(self.kernel.params):
            if isinstance(kind := param.type, Tensor):
                shape = tuple(d if isinstance(d, int) else call[d] for d in kind.dims)
                strides = packed_strides(shape) if kind.packed else contiguous_strides(shape)
                at = (i + 1) << 36
                view = ArrayView(at, kind.dtype, shape, strides, "cuda:0", packed=kind.packed)
                made[param.name] = view
            else:
                made[param.name] = self.scalars[param.name]
        return made


def install_gpu(patch: Any = setattr) -> FakeDriver:
    """Have launches see an H200 that is not there; return its driver."""
    fake = FakeDriver()
    fake.install(patch)
    gpu = Device(0, "H200", 132, (9, 0), (12, 9))
    patch(device, "num_devices", lambda: 1)
    patch(device, "device_properties", cache(lambda index: gpu))
    return fake


def prepared_call(
    kernel: Any, case: Case, call: Mapping[str, int], **options: Any
) -> tuple[int, int, str]:
    """Grid, threads and packed arguments of a call."""
    made = kernel.prepare(**case.arguments(call), stream=MAIN, **options)
    return made.grid, made._signature.threads, bytes(made._packed).hex()


def call_lines(kernel: Any, arguments: Mapping[str, Any]) -> str:
    """A call as tests/export/program.c reads it."""
    lines = list[str]()
    for param in kernel.params:
        x = arguments[param.name]
        if isinstance(x, ArrayView):
            values = len(x.shape), x.pointer, 0, *x.shape, *x.strides
        else:
            values = 0, 0, x
        lines.append(" ".join(map(str, values)))
    return "\n".join(lines)
