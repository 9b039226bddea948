"""What CTAs of a cluster, warpgroups and CTAs of a grid say to each other, as PTX has it."""

from __future__ import annotations

import re

import pytest

from tests.codegen.support import SAMPLES, assembled, gemm, kernel_of, needs_ptxas, ptx_of
from wsdsl.codegen.module import emit_llvm
from wsdsl.codegen.signature import signature
from wsdsl.ir.op import Kernel
from wsdsl.ir.parser import parse_kernel
from wsdsl.runtime.launch import num_ctas

SETUP = """
launch_grid(tiles=(("M", 64),), scheduler="grid", cluster={cluster})
%map: tensor_map = make_tensor_map(tensor=%X, box=(64, 64), swizzle="128B")
%slots: shared<8192 x 2> = allocate_shared(label="slots", offset=0)
%full: mbarrier<2> = allocate_barriers(label="full", arrivals=1, offset=16384)
%st: state = initial_state(parity=0)
%i: i32 = constant(value=1)
"""
PARAMS = "%X: tensor<bf16[M, N]>, %f: tensor<i32[T, 4]>, %n: i32, %p: bool"


def cluster_kernel(body: str, cluster: int = 2, warpgroups: int = 1) -> Kernel:
    return kernel_of(body, PARAMS, SETUP.format(cluster=cluster), warpgroups)


def lines(kernel: Kernel, words: str) -> list[str]:
    """Lines of PTX with one of the words, registers left out."""
    found = [line.strip() for line in ptx_of(kernel).splitlines() if re.search(words, line)]
    return [re.sub(r"\s+", " ", re.sub(r"%(r|rd|rs|p)\d+", "_", line)) for line in found]


@pytest.mark.parametrize("cluster", [1, 2, 4, 8])
def test_dimensions(cluster: int) -> None:
    ptx = ptx_of(cluster_kernel("sync_cta()", cluster))
    assert (f".reqnctapercluster {cluster}, 1, 1" in ptx) == (cluster > 1)
    assert (".explicitcluster" in ptx) == (cluster > 1)


def test_indices() -> None:
    body = """
%a: i32 = cluster_index()
%b: i32 = num_clusters()
%c: i32 = cta_rank()
%ab: i32 = map(fn="add", args=(%a, %b))
%abc: i32 = map(fn="add", args=(%ab, %c))
store_global(tensor=%f, index=(%i, %i), value=%abc)
"""
    registers = " ".join(lines(cluster_kernel(body), "cluster"))
    for name in ("%clusterid.x", "%nclusterid.x", "%cluster_ctarank"):
        assert name in registers


def test_all_of_a_cluster_meet() -> None:
    """Without a word for it arrive releases and wait acquires."""
    assert lines(cluster_kernel("sync_cluster()"), r"barrier\.cluster") == [
        "barrier.cluster.arrive.aligned;",
        "barrier.cluster.wait.aligned;",
    ]


@pytest.mark.parametrize("cluster", [1, 2])
def test_waits_are_no_fence_of_the_gpu(cluster: int) -> None:
    body = "wait_barrier(barriers=%full, state=%st)"
    (wait,) = lines(cluster_kernel(body, cluster), "try_wait")
    assert "mbarrier.try_wait.parity.shared::cta.b64 done, [_+16384]" in wait


@pytest.mark.parametrize("pred", ["", ", pred=%p"])
def test_arrivals_at_another_cta(pred: str) -> None:
    body = f"arrive_barrier(barriers=%full, state=%st, cta=%n{pred})"
    address, arrival = lines(cluster_kernel(body), "mapa|mbarrier.arrive")
    assert address == "mapa.shared::cluster.u32 remote, _, _;"
    want = "@_ mbarrier.arrive.shared::cluster.b64 _, [remote]; // full"
    assert arrival == want, "one thread of the warpgroup arrives"


def test_arrivals_of_every_thread_and_of_the_elected_one() -> None:
    arrive = "arrive_barrier(barriers=%full, state=%st, cta=%n{})"
    for body in (arrive.format(", each_thread=True"), f"elect() {{ {arrive.format('')} }}"):
        (arrival,) = lines(cluster_kernel(body), r"mbarrier\.arrive")
        assert arrival.startswith("mbarrier.arrive.shared::cluster")


def test_multicast() -> None:
    load = "tma_load(map=%map, coordinates=(%i, %n), shared=%slots, state=%st, barriers=%full{})"
    many, one = load.format(", multicast=%n"), load.format("")
    body = f"elect() {{ {many} {one} }}"
    first, second = lines(cluster_kernel(body), r"cp\.async\.bulk")
    assert "complete_tx::bytes.multicast::cluster [" in first
    assert first.endswith("], [_+16384], _;")
    assert "multicast" not in second
    assert second.endswith("], [_+16384];")


@pytest.mark.parametrize("warpgroups", [1, 2, 3])
def test_named_barriers(warpgroups: int) -> None:
    body = f"""
named_barrier_arrive(barrier=15, num_warpgroups={warpgroups})
named_barrier_sync(barrier=7, num_warpgroups={warpgroups})
"""
    threads = 128 * warpgroups
    found = lines(cluster_kernel(body, 1, warpgroups), r"\bbar(rier)?\.")
    assert found == [f"bar.arrive 15, {threads};", f"bar.sync 7, {threads};"]


def test_flags() -> None:
    body = """
arrive_flag(tensor=%f, index=(%i, %i), amount=-3)
elect() { arrive_flag(tensor=%f, index=(%i, %n)) }
wait_flag(tensor=%f, index=(%i, %n), count=%n)
%seen: i32 = load_global(tensor=%f, index=(%i, %i))
store_global(tensor=%f, index=(%i, %i), value=%seen, accumulate=True)
"""
    found = lines(cluster_kernel(body), r"red\.rel|ld\.acq|less")
    assert found == [
        "@_ red.release.gpu.global.add.s32 [_], -3;",
        "red.release.gpu.global.add.s32 [_], 1;",
        ".reg .pred less;",
        "ld.acquire.gpu.global.b32 seen, [_];",
        "setp.lt.s32 less, seen, _;",
        "@less bra WAIT_0;",
    ]


@pytest.mark.parametrize(
    "op",
    ["arrive_flag(tensor=%f, index=(%i, %i))", "wait_flag(tensor=%f, index=(%i, %i), count=%n)"],
)
def test_flags_are_not_read_as_constants(op: str) -> None:
    """Other CTAs change them."""
    read = "%seen: i32 = load_global(tensor=%f, index=(%i, %n))\n"
    write = "store_global(tensor=%Y, index=(%i,), value=%seen)"
    setup = SETUP.format(cluster=1)
    kernel = kernel_of(f"{op}\n{read}{write}", f"{PARAMS}, %Y: tensor<i32[T]>", setup)
    assert not lines(kernel, r"global\.nc")


@needs_ptxas
def test_ptxas_takes_all_of_it() -> None:
    body = """
%r: i32 = cta_rank()
elect() {
  tma_load(map=%map, coordinates=(%i, %n), shared=%slots, state=%st, barriers=%full, multicast=%n)
}
wait_barrier(barriers=%full, state=%st)
arrive_barrier(barriers=%full, state=%st, cta=%r, pred=%p)
arrive_barrier(barriers=%full, state=%st, cta=%i, each_thread=True)
named_barrier_arrive(barrier=15, num_warpgroups=2)
named_barrier_sync(barrier=1, num_warpgroups=2)
arrive_flag(tensor=%f, index=(%i, %n), amount=-3)
wait_flag(tensor=%f, index=(%i, %n), count=%n)
sync_cluster()
"""
    assert "warning" not in assembled(cluster_kernel(body, warpgroups=2)).log


@pytest.mark.parametrize(
    ("m", "scheduler", "cluster", "sms", "grid"),
    [
        (0, "grid", 2, 132, 0),
        (1, "grid", 2, 132, 2),
        (129, "grid", 2, 132, 6),
        (64 * 1000 + 1, "grid", 8, 132, 8008),
        (64 * 1000, "persistent", 1, 132, 132),
        (64 * 1000, "persistent", 2, 133, 132),
        (64 * 1000, "persistent", 8, 132, 128),
        (64, "persistent", 4, 132, 4),
    ],
)
def test_whole_clusters_are_launched(
    m: int, scheduler: str, cluster: int, sms: int, grid: int
) -> None:
    text = SETUP.format(cluster=cluster).replace('"grid"', f'"{scheduler}"')
    launch = signature(kernel_of("sync_cta()", PARAMS, text))
    assert launch.cluster == cluster
    assert num_ctas(launch, {"M": m}, sms) == grid


def test_llvm_is_told_the_cluster() -> None:
    text = emit_llvm(parse_kernel((SAMPLES / "gemm_cluster.scheduled.ir").read_text()))
    assert '"nvvm.cluster_dim"="2,1,1"' in text
    assert "cluster_dim" not in emit_llvm(parse_kernel(gemm()))
