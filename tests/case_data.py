"""Data for the kernels of the tests: random inputs, what is expected of them, and how close."""

from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.case_table import Case
from wsdsl import Schedule
from wsdsl.diagnostics import LaunchError
from wsdsl.dispatch.compiled import Compiled
from wsdsl.ir.op import Kernel
from wsdsl.ir.ops import Contract
from wsdsl.ir.rewriter import walk
from wsdsl.simulator.simulation import simulate

Arrays = Mapping[str, Any]
DTYPES: dict[str, Any] = {
    "bf16": ml_dtypes.bfloat16,
    "f16": np.float16,
    "f32": np.float32,
    "tf32": np.float32,
    "f8e4m3": ml_dtypes.float8_e4m3fn,
    "f8e5m2": ml_dtypes.float8_e5m2,
    "f8e8m0": ml_dtypes.float8_e8m0fnu,
    "f6e2m3": ml_dtypes.float6_e2m3fn,
    "f6e3m2": ml_dtypes.float6_e3m2fn,
    "f4e2m1": np.uint8,
    "i32": np.int32,
    "i8": np.int8,
    "u8": np.uint8,
    "bool": np.bool_,
}
TOLERANCE = {
    "bf16": 2.0**-8,
    "f16": 2.0**-10,
    "f32": 2e-5,
    "tf32": 2.0**-11,
    "f8e4m3": 2.0**-4,
    "f8e5m2": 2.0**-3,
    # Of floats that were rounded to integers, some were close to the next one.
    "i32": 2.0**-8,
    "i8": 2.0**-8,
    "u8": 2.0**-8,
    "bool": 0.0,
}
TENSOR_CORES = 1e-3
"""They keep 14 bits of a sum of fp8 products until it is promoted."""
UNWRITTEN = 113
"""What integers hold that are only written; floats hold NaN."""


def inputs(found: Case, seed: int = 0, **sizes: int) -> dict[str, Any]:
    """Random arrays and scalars for every parameter; what is only written is poisoned with NaN."""
    rng = np.random.default_rng(seed)
    kernel, dims = found.kernel, {**found.sizes, **sizes}
    if "NB" in dims:
        dims["NB"] = -(-dims["N"] // 64)
    only_written = kernel.access.only_written
    made: dict[str, Any] = {}
    for p in kernel.tile_ir.params:
        kind: Any = p.type
        if not hasattr(kind, "dims"):
            made[p.name] = 1.5
            continue
        shape = [dims.get(d, d) for d in kind.dims]
        dtype = DTYPES[kind.dtype.name]
        if kind.dtype.bits == 4:
            made[p.name] = rng.integers(0, 256, (*shape[:-1], shape[-1] // 2), np.uint8)
        elif kind.dtype.name == "f8e8m0" or ("scale" in p.name and kind.dtype.bits == 8):
            # Rows as TMA takes them; none is negative.
            least = 122 if kind.dtype.name == "f8e8m0" else 40
            whole = rng.integers(
                least, least + 11, (*shape[:-1], -(-shape[-1] // 16) * 16), np.uint8
            )
            made[p.name] = whole.view(dtype)[..., : shape[-1]]
        elif kind.dtype.bits == 8 and kind.dtype.is_integer:
            known = np.iinfo(dtype)
            made[p.name] = rng.integers(known.min, known.max + 1, shape).astype(dtype)
        elif kind.dtype.is_integer:
            made[p.name] = rng.integers(0, dims.get("T", 5), shape).astype(dtype)
        elif kind.dtype.bits == 8:
            made[p.name] = rng.standard_normal(shape).astype(np.float32).astype(dtype)
        else:
            made[p.name] = rng.standard_normal(shape).astype(dtype)
        if p.name in only_written:
            made[p.name][...] = np.nan if kind.dtype.is_float else UNWRITTEN
    return made


def expected(found: Case, arrays: Arrays) -> dict[str, Any]:
    types: dict[str, Any] = {p.name: p.type for p in found.kernel.tile_ir.params}

    def wide(name: str, held: Any) -> Any:
        if types[name].dtype.bits == 4:
            both = np.stack([held & 15, held >> 4], axis=-1).reshape(*held.shape[:-1], -1)
            return both.view(ml_dtypes.float4_e2m1fn).astype(np.float64)
        if types[name].dtype.name == "tf32":
            # The tensor cores ignore the lower 13 bits.
            held = (held.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
        return np.asarray(held).astype(np.float64) if isinstance(held, np.ndarray) else held

    written = found.kernel.access.only_written
    return found.expected(**{n: wide(n, a) for n, a in arrays.items() if n not in written})


def check(found: Case, arrays: Arrays, wanted: Mapping[str, Any]) -> None:
    """Every output written, and close to what is meant."""
    for name, want in wanted.items():
        got = np.asarray(arrays[name])
        kind: Any = next(p.type for p in found.kernel.tile_ir.params if p.name == name)
        wide = got.astype(np.float64)
        assert np.isfinite(wide).all() or not np.isfinite(want).all(), f"{name}: not all written"
        scale = max(float(np.linalg.norm(want)), 1e-30)
        error = float(np.linalg.norm(wide - want)) / scale
        allowed = max(TOLERANCE[kind.dtype.name], TENSOR_CORES if _sums_fp8(found) else 0.0)
        assert error <= allowed, f"{name}: relative error {error:.2g}"


def _sums_fp8(found: Case) -> bool:
    products = (op for op in walk(found.kernel.tile_ir.body) if isinstance(op, Contract))
    return any("f8" in str(op.a.type) for op in products)


def simulated(
    case: Case,
    made: Schedule | Kernel | None = None,
    seed: int = 0,
    num_sms: int | None = None,
    **sizes: int,
) -> dict[str, Any]:
    """Simulate a case by a schedule, or a lowered kernel; return the arrays, which are right."""
    arrays = inputs(case, seed, **sizes)
    wanted = expected(case, arrays)
    if isinstance(made, Kernel):
        simulate(made, arrays, seed=seed, num_sms=num_sms)
    else:
        case.kernel.simulate(*arrays.values(), schedule=made, seed=seed)
    check(case, arrays, wanted)
    return arrays


def right_and_proved(case: Case, schedule: Schedule, **whole: int) -> Compiled:
    """The kernel with that schedule, in the simulator. `whole`: dimensions that are taken so."""
    arrays = inputs(case)
    wanted = expected(case, arrays)
    compiled = case.kernel.compile(schedule=schedule, **whole)
    compiled.simulate(*arrays.values())
    check(case, arrays, wanted)
    assert compiled.certificate is not None
    return compiled


def rejects(message: str, call: Callable[..., Any], *arguments: Any, **options: Any) -> None:
    """Check that a call raises a LaunchError with a message that the pattern matches."""
    with pytest.raises(LaunchError, match=message):
        call(*arguments, **options)
