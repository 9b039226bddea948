"""Measure communication between threads of one CTA, of a cluster of two, and of different clusters,
through global memory.
"""

from contextlib import nullcontext

from wsdsl.calibrate.asm import Asm, Kernel, kernel
from wsdsl.calibrate.gpu import Gpu

COUNT = 2000
THREADS = 256
SENT = 32
"""Stores of 16 bytes of a thread to the other CTA, which are waited for together."""
ROUNDS = 100
STORERS = 128
TRIPS = 500
LINE = 128
"""Bytes that a flag has for itself."""
DATA = 2 * STORERS * 16


def meet(asm: Asm) -> None:
    asm("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;")


def turns() -> Kernel:
    """Two warps alternate: each arrives for the other."""
    asm = Asm()
    asm("mov.u32 bar, base;\nadd.u32 j, base, 8;")
    with asm.where("eq.u32 tid, 0"):
        asm.init("bar", 2)
    with asm.timed():
        for warp, own, other in ((0, "bar", "j"), (1, "j", "bar")):
            with asm.where(f"eq.u32 tid, {32 * warp}"), asm.loop("i", "count"):
                asm("and.b32 k, i, 1;")
                if warp:
                    asm.wait(own, "k")
                asm(f"mbarrier.arrive.shared::cta.b64 _, [{other}];")
                if not warp:
                    asm.wait(own, "k")
    return kernel("mbarrier_turns", asm, 64)


def named() -> Kernel:
    asm = Asm()
    with asm.timed(), asm.loop("i", "count"):
        asm(f"bar.sync 1, {THREADS};")
    return kernel("named_barrier", asm, THREADS)


def cluster_barrier() -> Kernel:
    asm = Asm()
    meet(asm)
    with asm.timed(), asm.loop("i", "count"):
        meet(asm)
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
    with asm.timed(), asm.loop("i", "count"):
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


def hand_over() -> Kernel:
    """Two CTAs alternate: all threads store, one sets the other CTA's flag; there one thread waits
    for it, and all load the stored data.
    """
    asm = Asm()
    asm(f"""
        .reg .b64 own, other, from, into;
        .reg .b32 v<4>, seen, wanted;
        xor.b32 k, cta, 1;
        mad.wide.u32 own, cta, {LINE}, flags;
        mad.wide.u32 other, k, {LINE}, flags;
        mul.wide.u32 address, tid, 16;
        add.u64 address, address, place;
        mad.wide.u32 into, cta, {STORERS * 16}, address;
        mad.wide.u32 from, k, {STORERS * 16}, address;
        mov.u32 v0, tid;
        mov.u32 v1, 0;
        mov.u32 v2, 0;
        mov.u32 v3, 0;""")
    with asm.timed(), asm.loop("i", "count"):
        asm("add.u32 wanted, i, 1;")
        with asm.where("eq.u32 cta, 1"):
            _take(asm)
        _give(asm)
        with asm.where("eq.u32 cta, 0"):
            _take(asm)
    asm.keep("v", 4)
    return kernel("hand_over", asm, STORERS, "u64 flags", "u64 place")


def _give(asm: Asm) -> None:
    asm("st.global.v4.b32 [into], {v0, v1, v2, v3};\nbar.sync 0;")
    with asm.where("eq.u32 tid, 0"):
        asm("red.release.gpu.global.add.u32 [other], 1;")


def _take(asm: Asm) -> None:
    with asm.where("eq.u32 tid, 0"):
        asm.until("ld.acquire.gpu.global.b32 seen, [own];\nsetp.ge.u32 done, seen, wanted;")
    asm("bar.sync 0;\nld.relaxed.gpu.global.v4.b32 {v0, v1, v2, v3}, [from];")


def counter() -> Kernel:
    asm = Asm()
    asm("mov.u32 k, 1;")
    with asm.timed(), asm.where("eq.u32 tid, 0"), asm.loop("i", "count"):
        asm("atom.relaxed.gpu.global.add.u32 k, [flags], k;")
    asm("xor.b32 sink, sink, k;")
    return kernel("counter", asm, 32, "u64 flags")


HAND_OVER, COUNTER = hand_over(), counter()
HAND_OVER_KERNELS = (HAND_OVER, COUNTER)


def measure_hand_over(gpu: Gpu) -> dict[str, float]:
    flags, place = gpu.buffer(2 * LINE), gpu.buffer(DATA)
    gpu.clear(place, DATA)
    taken: list[float] = []
    for _ in range(4):
        gpu.clear(flags, 2 * LINE)
        taken.append(gpu.once(HAND_OVER, 2, TRIPS, flags, place).cycles / TRIPS / 2)
    return {
        # The first one loads the kernel.
        "hand_over_cycles": sorted(taken[1:])[1],
        "atomic_cycles": gpu.run(COUNTER, 1, TRIPS, flags).cycles / TRIPS,
    }
