"""Latencies of what threads of one CTA, and of a cluster of two, tell each other."""

from __future__ import annotations

from contextlib import nullcontext

from wsdsl.calibrate.asm import Asm, Kernel, kernel
from wsdsl.calibrate.gpu import Gpu

COUNT = 2000
THREADS = 256
SENT = 32
"""Stores of 16 bytes of a thread to the other CTA, which are waited for together."""
ROUNDS = 100


def meet(asm: Asm) -> None:
    asm("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;")


def turns() -> Kernel:
    """Two warps alternate: each arrives for the other."""
    asm = Asm()
    asm("mov.u32 bar, base;\nadd.u32 j, base, 8;")
    with asm.where("eq.u32 tid, 0"):
        asm.init("bar", 2)
    asm.start()
    for warp, own, other in ((0, "bar", "j"), (1, "j", "bar")):
        with asm.where(f"eq.u32 tid, {32 * warp}"), asm.loop("i", "count"):
            asm("and.b32 k, i, 1;")
            if warp:
                asm.wait(own, "k")
            asm(f"mbarrier.arrive.shared::cta.b64 _, [{other}];")
            if not warp:
                asm.wait(own, "k")
    asm.stop()
    return kernel("mbarrier_turns", asm, 64)


def named() -> Kernel:
    asm = Asm()
    asm.start()
    with asm.loop("i", "count"):
        asm(f"bar.sync 1, {THREADS};")
    asm.stop()
    return kernel("named_barrier", asm, THREADS)


def cluster_barrier() -> Kernel:
    asm = Asm()
    meet(asm)
    asm.start()
    with asm.loop("i", "count"):
        meet(asm)
    asm.stop()
    return kernel("cluster_barrier", asm, THREADS, cluster=2)


def exchange(name: str, threads: int, stores: int, by_turns: bool) -> Kernel:
    """`count` times each CTA of a pair stores to the other, whose mbarrier counts the bytes; the
    second one only when it has what the first one sent.
    """
    asm = Asm()
    expected = f"mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], {threads * stores * 16};"
    asm(".reg .b32 there, told;\n.reg .b32 v<4>;")
    asm(f"add.u32 bar, base, {threads * stores * 16};\nxor.b32 k, rank, 1;\nmov.u32 v0, tid;")
    asm("mov.u32 v1, 1;\nmov.u32 v2, 2;\nmov.u32 v3, 3;\nmad.lo.u32 j, tid, 16, base;")
    asm("mapa.shared::cluster.u32 there, j, k;\nmapa.shared::cluster.u32 told, bar, k;")
    with asm.where("eq.u32 tid, 0"):
        asm.init("bar", 1)
        asm(expected)
    meet(asm)
    asm.start()
    with asm.loop("i", "count"):
        asm("and.b32 x, i, 1;")
        if by_turns:
            with asm.where("eq.u32 rank, 1"):
                asm.wait("bar", "x")
        for n in range(stores):
            asm(
                "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 "
                f"[there+{16 * threads * n}], {{v0, v1, v2, v3}}, [told];"
            )
        with asm.where("eq.u32 rank, 0") if by_turns else nullcontext():
            asm.wait("bar", "x")
        # All have seen this phase before the next but one can begin.
        asm("bar.sync 0;")
        # For what comes next; where it is there already, it has been counted.
        with asm.where("eq.u32 tid, 0"):
            asm(expected)
    asm.stop()
    asm.keep("v", 4)
    meet(asm)
    return kernel(name, asm, threads, cluster=2)


TURNS, NAMED, CLUSTER = turns(), named(), cluster_barrier()
EXCHANGE = exchange("exchange", 32, 1, True)
SENDS = exchange("sends", THREADS, SENT, False)
KERNELS = (TURNS, NAMED)
CLUSTER_KERNELS = (CLUSTER, EXCHANGE, SENDS)


def measure(gpu: Gpu) -> dict[str, float]:
    return {
        "mbarrier_cycles": gpu.run(TURNS, 1, COUNT).cycles / COUNT / 2,
        "named_barrier_cycles": gpu.run(NAMED, 1, COUNT).cycles / COUNT,
    }


def measure_cluster(gpu: Gpu) -> dict[str, float]:
    grid = 2 * gpu.room(SENDS)
    return {
        "cluster_exchange_cycles": gpu.run(EXCHANGE, 2, COUNT).cycles / COUNT / 2,
        "cluster_barrier_cycles": gpu.run(CLUSTER, 2, COUNT).cycles / COUNT,
        "cluster_send_bytes": ROUNDS * THREADS * SENT * 16 / gpu.run(SENDS, grid, ROUNDS).cycles,
    }
