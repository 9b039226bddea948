"""The microbenchmarks, in the order in which they run: each measures a few rates."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from wsdsl.calibrate import dram, issue, kernels, l2, latency, power, smem, synchronization, tensor
from wsdsl.calibrate.asm import Kernel
from wsdsl.calibrate.gpu import Gpu


class Bench(NamedTuple):
    name: str
    measure: Callable[[Gpu], dict[str, float]]
    kernels: tuple[Kernel, ...]


def benches(power_seconds: float) -> tuple[Bench, ...]:
    """`power_seconds`: seconds to keep the GPU busy until its clock has settled."""
    return (
        Bench("card", kernels.measure_card, kernels.CARD_KERNELS),
        Bench("tensor", tensor.measure, tensor.KERNELS),
        Bench("smem", smem.measure, smem.KERNELS),
        Bench("smem_sharing", smem.measure_sharing, smem.SHARING_KERNELS),
        Bench("issue", issue.measure, issue.KERNELS),
        Bench("barriers", synchronization.measure, synchronization.KERNELS),
        Bench("cluster", synchronization.measure_cluster, synchronization.CLUSTER_KERNELS),
        Bench("hand_over", synchronization.measure_hand_over, synchronization.HAND_OVER_KERNELS),
        Bench("latency", latency.measure, latency.KERNELS),
        Bench("kernels", kernels.measure, kernels.KERNELS),
        Bench("l2", l2.measure, l2.KERNELS),
        Bench("l2_threads", l2.measure_threads, l2.THREAD_KERNELS),
        Bench("dram", dram.measure, dram.KERNELS),
        Bench("power", lambda gpu: power.measure(gpu, power_seconds), power.KERNELS),
    )
