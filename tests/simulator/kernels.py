"""Sample kernels, the gemm changed by text, and inputs for them."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.kernels import CASES
from wsdsl import Schedule
from wsdsl.diagnostics import VerifyError
from wsdsl.ir.op import Kernel
from wsdsl.ir.parser import parse_kernel
from wsdsl.ir.verify.verifier import verify
from wsdsl.simulator.simulation import SimulationReport, simulate

SAMPLES = Path(__file__).parents[1] / "samples"
STREAM_K = Schedule(tile=dict(m=128, n=128), stages=4, mode="cooperative", scheduler="stream_k")
BF16 = ml_dtypes.bfloat16


@cache
def sample_text(name: str) -> str:
    """A kernel of `tests/samples`, or a GEMM lowered with `STREAM_K`."""
    if name == "stream_k":
        kernel = CASES["gemm"].kernel._compile(STREAM_K, {}, ()).scheduled
        return str(replace(kernel, schedule=None))
    return (SAMPLES / f"{name}.scheduled.ir").read_text()


def sample(name: str) -> Kernel:
    return parse_kernel(sample_text(name), f"{name}.ir")


def changed(text: str, *changes: tuple[str, str]) -> str:
    """The text with others in it exchanged; each must be there."""
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return text


def rejected(text: str, old: str, new: str, words: str, count: int = -1) -> VerifyError:
    """The spec's message about a text with another in it, at a caret."""
    assert old in text, old
    with pytest.raises(VerifyError) as caught:
        verify(parse_kernel(text.replace(old, new, count)))
    assert words in str(caught.value) and "^" in str(caught.value)
    return caught.value


def gemm(*changes: tuple[str, str], stages: int = 4) -> Kernel:
    """The sample with texts exchanged."""
    text = sample_text("gemm")
    for old in ("num=4", "mbarrier<4>", "shared<32768 x 4>"):
        text = text.replace(
            old, old.replace("4", str(stages)) if "x" not in old else (f"shared<32768 x {stages}>")
        )
    return parse_kernel(changed(text, *changes), "gemm.ir")


def padded(values: Any) -> Any:
    """The array in one whose rows start at multiples of 16 bytes, as TMA needs."""
    unit = 16 // values.itemsize
    columns = values.shape[1]
    whole = np.zeros((values.shape[0], -(-columns // unit) * unit), values.dtype)
    whole[:, :columns] = values
    return whole[:, :columns]


def inputs(m: int, n: int, k: int, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {
        "A": padded(rng.standard_normal((m, k)).astype(BF16)),
        "B": padded(rng.standard_normal((n, k)).astype(BF16)),
        "C": padded(np.full((m, n), np.nan, BF16)),
    }


def run(
    kernel: Kernel, m: int = 256, n: int = 384, k: int = 320, seed: int = 0, num_sms: int = 2
) -> SimulationReport:
    """Simulate a gemm and compare with NumPy. Two CTAs by default, so that each has more tiles."""
    arrays = inputs(m, n, k)
    report = simulate(kernel, arrays, seed=seed, num_sms=num_sms)
    check(arrays)
    return report


def check(arrays: dict[str, Any]) -> None:
    wanted = arrays["A"].astype(np.float64) @ arrays["B"].astype(np.float64).T
    error = np.abs(arrays["C"].astype(np.float64) - wanted)
    assert np.all(error <= 2.0**-8 * np.abs(wanted).max(initial=1.0))


def gemm_by_threads(*changes: tuple[str, str]) -> Kernel:
    """The sample with its operands copied by all threads of the load partition, without TMA."""
    copies = (
        "          mbarrier_arrive_expect_tx(barriers=%full, state=%f1, tx_bytes=32768)\n",
        "          tma_load(map=%a_map, coordinates=(%m, %k), shared=%slots, state=%f1, "
        "barriers=%full)\n",
        "          tma_load(map=%b_map, coordinates=(%n, %k), shared=%slots, offset=16384, "
        "state=%f1, barriers=%full)\n",
    )
    by_threads = (
        "          thread_load(tensor=%A, coordinates=(%m, %k), row_dim=0, rows=128, columns=64, "
        'swizzle="128B", shared=%slots, state=%f1)\n',
        "          thread_load(tensor=%B, coordinates=(%n, %k), row_dim=0, rows=128, columns=64, "
        'swizzle="128B", shared=%slots, offset=16384, state=%f1)\n',
        "          fence_async_proxy()\n"
        "          mbarrier_arrive(barriers=%full, state=%f1, each_thread=True)\n",
    )
    elect = (
        "    elect() {\n      %free",
        "    %yes: bool = constant(value=True)\n    if(cond=%yes) {\n      %free",
    )
    end = (
        "        yield(values=(%f3,))\n      }\n    }",
        "        yield(values=(%f3,))\n      }\n    yield() } { yield() }",
    )
    arrivals = ('label="full", arrivals=1', 'label="full", arrivals=128')
    return gemm(*zip(copies, by_threads, strict=True), elect, end, arrivals, *changes)
