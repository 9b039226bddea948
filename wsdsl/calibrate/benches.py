"""The microbenchmarks, in the order in which they run: each measures a few rates."""

from collections.abc import Callable
from typing import NamedTuple

from wsdsl.calibrate import (
    barrier_latency,
    dram,
    issue,
    kernels,
    l2,
    latency,
    power,
    smem_bandwidth,
    tensor,
)
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
        Bench("smem", smem_bandwidth.measure, smem_bandwidth.KERNELS),
        Bench("smem_sharing", smem_bandwidth.measure_sharing, smem_bandwidth.SHARING_KERNELS),
        Bench("issue", issue.measure, issue.KERNELS),
        Bench("barriers", barrier_latency.measure, barrier_latency.KERNELS),
        Bench("cluster", barrier_latency.measure_cluster, barrier_latency.CLUSTER_KERNELS),
        Bench("hand_over", barrier_latency.measure_hand_over, barrier_latency.HAND_OVER_KERNELS),
        Bench("latency", latency.measure, latency.KERNELS),
        Bench("kernels", kernels.measure, kernels.KERNELS),
        Bench("l2", l2.measure, l2.KERNELS),
        Bench("l2_threads", l2.measure_threads, l2.THREAD_KERNELS),
        Bench("dram", dram.measure, dram.KERNELS),
        Bench("power", lambda gpu: power.measure(gpu, power_seconds), power.KERNELS),
    )
