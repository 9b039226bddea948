"""What `wsdsl.kernels.matmul` says of calls that can not be meant."""

from typing import Any

import numpy as np
import pytest

from tests.matmul_cases import BF16, F8, array
from wsdsl.diagnostics import LaunchError, ScheduleError
from wsdsl.kernels import matmul

F32 = array(8, 16, dtype=np.float32)
EIGHT = array(8, 16, dtype=F8), array(24, 16, dtype=F8).T
A, B = array(8, 16), array(16, 24)
SHARED, READ_ONLY = array(24, 24), array(8, 24)
READ_ONLY.flags.writeable = False
MISTAKES: dict[str, tuple[tuple[Any, ...], dict[str, Any], list[str]]] = {
    "inner sizes": ((A, array(24, 16)), {}, ["K is 16 in a and 24 in b", "transpose_b=True"]),
    "batches": ((array(2, 8, 16), array(3, 16, 8)), {}, ["a has batch dimensions (2,), b"]),
    "f32": ((F32, F32.T), {}, ["a is f32 and b is f32", 'operand_dtype="tf32"']),
    "mixed": ((A, array(16, 8, dtype=np.float16)), {}, ["a is bf16 and b is f16", "both bf16"]),
    "float64": ((A.astype(float), B), {}, ["a is float64 and b is bf16"]),
    "bits": ((A, B), {"operand_dtype": "f16"}, ["a is bf16, which cannot be multiplied as f16"]),
    "bytes": ((EIGHT[0].view(np.uint8), EIGHT[1]), {"operand_dtype": "f8e4m3"}, ["a is u8"]),
    "three types": ((A, B), {"operand_dtype": ("f16",) * 3}, ["operand_dtype is", "one type"]),
    "fp8 rows of b": ((EIGHT[0], array(16, 24, dtype=F8)), {}, ["b has shape (16, 24)", "K of"]),
    "fp8 columns of a": ((array(16, 8, dtype=F8).T, EIGHT[1]), {}, ["a has shape", "row-major"]),
    "no contiguous axis": ((A[:, ::2], B[::2]), {}, ["a has shape (8, 8)", "neither"]),
    "no array": (("a", B), {}, ["a: a str is not an array"]),
    "nothing": ((None, B), {}, ["a is None"]),
    "a number": ((A, 2.0), {}, ["b is a number"]),
    "scalars": ((np.zeros((), BF16), B), {}, ["a is a scalar"]),
    "flag of a vector": ((A[0], B), {"transpose_a": True}, ["transpose_a is True"]),
    "bias": ((A, B), {"bias": array(8)}, ["bias has shape (8,), expected [24]"]),
    "bias dtype": ((A, B), {"bias": array(24, dtype=F8)}, ["bias is f8e4m3", "f32, f16"]),
    "bias strides": ((A, B), {"bias": array(48)[::2]}, ["bias has stride 2, expected 1"]),
    "residual": ((A, B), {"residual": array(24, 8)}, ["residual has shape (24, 8), exp"]),
    "activation": ((A, B), {"activation": "elu"}, ["activation is 'elu'", "relu"]),
    "out_dtype": ((A, B), {"out_dtype": "f64"}, ["out_dtype is 'f64'"]),
    "bool": ((A, B), {"out_dtype": bool}, ["out_dtype is bool", "convert"]),
    "out shape": ((A, B), {"out": array(8, 16)}, ["out has shape (8, 16), expected (8, 24)"]),
    "two outputs": ((A, B), {"out": array(8, 24), "out_dtype": "f32"}, ["bf16 and f32"]),
    "nothing to add to": ((A, B), {"accumulate": True}, ["needs out", "give out"]),
    "a broadcast": (
        (A, B), {"out": np.lib.stride_tricks.as_strided(array(24), (8, 24), (0, 2))},
        ["its elements share memory"],
    ),
    "an input": ((SHARED[:8, :16], B), {"out": SHARED[:8]}, ["out: the kernel", "with a ("]),
    "read-only": ((A, B), {"out": READ_ONLY}, ["out: ", "read-only"]),
    "scales": ((*EIGHT,), {"scales": 2.0}, ["expected a pair", "(scale_a, None)"]),
    "scale": ((*EIGHT,), {"scales": (array(9, dtype=np.float32), None)}, ["(9,)", "[8, 1]"]),
    "scale dtype": ((*EIGHT,), {"scales": (array(8), None)}, ["scale_a is bf16, expected f32"]),
    "blocks of integers": (
        (array(8, 256, dtype=np.int8), array(24, 256, dtype=np.int8).T),
        {"scales": (array(8, 2, dtype=np.float32), None)}, ["accumulator is an integer"],
    ),
    "too many batches": (
        (np.zeros((2, 3, 2, 3, 8, 16), BF16).transpose(1, 0, 3, 2, 4, 5), array(3, 2, 3, 2, 16, 8)),
        {}, ["4 batch dimensions", "contiguous"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(name: str) -> None:
    args, options, words = MISTAKES[name]
    with pytest.raises(LaunchError) as caught:
        matmul(*args, **options)
    for word in words:
        assert word in str(caught.value)


def test_what_is_no_schedule() -> None:
    given: Any = dict(stages=2)
    with pytest.raises(ScheduleError, match="is not a schedule"):
        matmul(*EIGHT, schedule=given)
