"""View a call's arrays as tensors of other types: groups of adjacent elements, or flat arrays."""

import math
from collections.abc import Sequence
from dataclasses import replace

from wsdsl.ir.hardware.gmem_limits import MAX_SIZE
from wsdsl.ir.types import Tensor, Value
from wsdsl.runtime.arguments import Call
from wsdsl.runtime.arrays.views import ArrayView, contiguous_strides, normalise


def retyped(call: Call, params: Sequence[Value]) -> Call | None:
    """The call of a kernel that has these parameters, of the same names; its arrays stay what they
    are. None where one does not lie as they have it.
    """
    views, dims = dict[str, ArrayView](), dict[str, int]()
    for param in params:
        if isinstance(kind := param.type, Tensor):
            own = call.views[param.name]
            view = _in_words(own, kind) if own.dtype != kind.dtype else own
            flat = view and len(view.shape) > len(kind.dims)
            view = _on_one_axis(view) if view and flat else view
            if view is None:
                return None
            views[param.name] = view
            for dim, size in zip(kind.dims, view.shape, strict=True):
                # Of a call that is supposed some are not known.
                if isinstance(dim, str) and (flat or dim in call.dims):
                    dims[dim] = size
    return replace(call, views=views, dims=dims)


def _in_words(view: ArrayView, kind: Tensor) -> ArrayView | None:
    """The view as groups, each the whole last dimension."""
    *outer, last = normalise(view).strides
    num = view.shape[-1]
    if last != 1 or any(stride % num for stride in outer) or view.pointer % kind.dtype.bytes:
        return None
    strides = tuple(stride // num for stride in outer)
    fits = strides[-1] == 1 or view.shape[-2] == 1
    return replace(view, dtype=kind.dtype, shape=view.shape[:-1], strides=strides) if fits else None


def _on_one_axis(view: ArrayView) -> ArrayView | None:
    size, whole = math.prod(view.shape), contiguous_strides(view.shape)
    if normalise(view).strides != whole or size > MAX_SIZE:
        return None
    return replace(view, shape=(size,), strides=(1,))
