"""Runs what the first warps of a SCHEDULED kernel's PTX do."""

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from tests.codegen.ptx_interpreter import Memory, Program
from tests.codegen.support import ptx_of
from wsdsl.artifact.signature import PointerArgument, SizeArgument, StrideArgument
from wsdsl.codegen.launch_signature import signature
from wsdsl.ir.op import Kernel
from wsdsl.ir.types import Tensor

BASE = 1 << 20


def run_warp(
    kernel: Kernel, sizes: Mapping[str, int], given: Mapping[str, Any], made: str, size: int
) -> Any:
    """The `size` bytes of the tensor `made`: the warp must write each of them and no other; `given`
    are the other arrays. Rows are contiguous.
    """
    return run_warps(kernel, sizes, given, made, size)[0]


def run_warps(
    kernel: Kernel,
    sizes: Mapping[str, int],
    given: Mapping[str, Any],
    made: str,
    size: int,
    warps: int = 1,
    shared: int = 0,
) -> tuple[Any, Memory]:
    """Run several warps with `shared` bytes of SMEM; return the memory that they leave."""
    held = bytearray()
    starts = dict[str, int]()
    for name, array in given.items():
        starts[name] = BASE + len(held)
        held += array.tobytes()
    starts[made], first = BASE + len(held), len(held)
    memory = Memory(BASE, held + bytes(size), bytearray(shared))
    kinds = {p.name: p.type for p in kernel.params}
    arguments: list[int] = []
    for argument in signature(kernel).arguments:
        if isinstance(argument, PointerArgument):
            arguments.append(starts[argument.tensor])
        elif isinstance(argument, StrideArgument):
            kind = kinds[argument.tensor]
            assert isinstance(kind, Tensor)
            inner = kind.dims[argument.dim + 1 :]
            arguments.append(prod(d if isinstance(d, int) else sizes[d] for d in inner))
        else:
            assert isinstance(argument, SizeArgument)
            arguments.append(sizes[argument.dim])
    Program(ptx_of(kernel)).run_warps(arguments, memory, warps)
    assert sorted(memory.written) == [*range(first, first + size)]
    written = np.array([memory.written[i] for i in sorted(memory.written)], np.uint8)
    return written, memory
