"""Clusters, named barriers and flags, each in a kernel of a few lines.

Every kernel is legal, its PTX has the instruction, ptxas takes it without a remark, and the prover
finds the same events in it as in the kernel.
"""

import re

import pytest

from tests.codegen.support import assembled, kernel_of, needs_ptxas, ptx_of
from wsdsl.codegen.launch_signature import Signature, signature
from wsdsl.codegen.llvm_module import emit_llvm
from wsdsl.diagnostics import LaunchError
from wsdsl.ir.op import Kernel
from wsdsl.ir.parser import parse_kernel
from wsdsl.ir.verify.verifier import verify
from wsdsl.prover.ptx.check_ptx import check_skeleton
from wsdsl.runtime.launcher import num_ctas

BARRIERS = """
%bars: mbarrier<2> = allocate_mbarriers(label="bars", arrivals={arrivals}, offset=0)
elect() {{
  mbarrier_init(barriers=%bars)
  fence_mbarrier_init()
}}
{meeting}()
%zero: i32 = constant(value=0)
%one: i32 = constant(value=1)
%st: state = initial_state(parity=0)
"""
TENSORS = "%X: tensor<bf16[M, N]>, %Y: tensor<f32[M, N]>, %F: tensor<i32[T]>"
WAIT = "mbarrier_wait(barriers=%bars, state=%st)\n"


def grid(cluster: int, scheduler: str = "persistent") -> str:
    return f'launch_grid(tiles=(("M", 64),), scheduler="{scheduler}", cluster={cluster})\n'


def meets(cluster: int, arrivals: int = 1) -> str:
    meeting = "sync_cluster" if cluster > 1 else "sync_cta"
    return grid(cluster) + BARRIERS.format(arrivals=arrivals, meeting=meeting)


def proved(kernel: Kernel) -> str:
    """The PTX of a kernel without findings."""
    verify(kernel)
    found = assembled(kernel)
    assert "C75" not in found.log
    check_skeleton(kernel, found.ptx)
    return found.ptx


def lines(ptx: str, instruction: str) -> list[str]:
    found = [line.split("//")[0].strip() for line in ptx.splitlines()]
    return [line for line in found if instruction in line]


# Clusters ----------------------------------------------------------------------------------------


@needs_ptxas
@pytest.mark.parametrize("cluster", [2, 4, 8])
def test_a_cluster_is_launched(cluster: int) -> None:
    body = """
%c: i32 = cluster_index()
%n: i32 = num_clusters()
%r: i32 = cta_rank()
%cn: i32 = map(fn="mul", args=(%c, %n))
%all: i32 = map(fn="add", args=(%cn, %r))
%i: i32 = constant(value=0)
store_global(tensor=%F, index=(%i,), value=%all)
sync_cluster()
"""
    kernel = kernel_of(body, TENSORS, grid(cluster))
    assert f'"nvvm.cluster_dim"="{cluster},1,1"' in emit_llvm(kernel)
    ptx = proved(kernel)
    assert lines(ptx, ".explicitcluster")
    assert lines(ptx, f".reqnctapercluster {cluster}, 1, 1")
    for register in ("%clusterid.x", "%nclusterid.x", "%cluster_ctarank"):
        assert len(lines(ptx, register)) == 1
    # Without a qualifier the first releases and the second acquires.
    arrive, wait = lines(ptx, "barrier.cluster")
    assert re.fullmatch(r"barrier\.cluster\.arrive(\.release)?\.aligned;", arrive)
    assert re.fullmatch(r"barrier\.cluster\.wait(\.acquire)?\.aligned;", wait)


def test_one_cta_has_no_cluster_attribute() -> None:
    kernel = kernel_of(WAIT, TENSORS, meets(1))
    ptx = ptx_of(kernel)
    assert "cluster_dim" not in emit_llvm(kernel)
    assert "explicitcluster" not in ptx
    assert lines(ptx, "mbarrier.try_wait.parity.shared::cta.b64 ")
    assert ".acquire" not in ptx


@needs_ptxas
@pytest.mark.parametrize(
    ("more", "who"),
    [("", r"@%p\d+ "), (", pred=%p", r"@%p\d+ "), (", each_thread=True", ""), ("elected", "")],
)
@pytest.mark.parametrize("rank", [0, 1])
def test_an_arrival_in_another_cta(more: str, who: str, rank: int) -> None:
    """Of one thread of the warpgroup, of each, and of the elected one."""
    arrival = f"mbarrier_arrive(barriers=%bars, state=%st1, cta=%there{more})"
    if more == "elected":
        arrival = f"elect() {{ {arrival.replace(more, '')} }}"
    body = f"""
%there: i32 = constant(value={rank})
%f: i32 = load_global(tensor=%F, index=(%zero,))
%p: bool = map(fn="gt", args=(%f, %zero))
%st1: state = advance(state=%st, num=2)
{arrival}
mbarrier_wait(barriers=%bars, state=%st1)
"""
    ptx = proved(kernel_of(body, TENSORS, meets(2, arrivals=2)))
    assert len(lines(ptx, "mapa.shared::cluster.u32 ")) == 1
    (arrive,) = lines(ptx, "mbarrier.arrive.")
    assert re.fullmatch(rf"{who}mbarrier\.arrive\.shared::cluster\.b64 _, \[remote\];", arrive)
    assert lines(ptx, "mbarrier.try_wait.parity.shared::cta.b64 ")


@needs_ptxas
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_multicast(dims: int) -> None:
    shape, box = ", ".join("DMN"[-dims:]), ", ".join(("1", "64", "64")[-dims:])
    size = 128 if dims == 1 else 8192
    setup = f"""
{meets(2)}
%map: tensor_map = make_tensor_map(tensor=%A, box=({box},), swizzle="128B")
%slots: shared<8192 x 2> = allocate_shared(label="slots", offset=1024)
%both: i32 = constant(value=3)
"""
    body = f"""
elect() {{
  mbarrier_arrive_expect_tx(barriers=%bars, state=%st, tx_bytes={size})
  %r: i32 = cta_rank()
  %mine: bool = map(fn="eq", args=(%r, %zero))
  if(cond=%mine) {{
    tma_load(map=%map, coordinates=({"%zero, " * dims}), shared=%slots, state=%st, barriers=%bars,
      multicast=%both)
    yield()
  }} {{
    yield()
  }}
}}
{WAIT}
sync_cluster()
"""
    ptx = proved(kernel_of(body, f"%A: tensor<bf16[{shape}]>, {TENSORS}", setup))
    (load,) = lines(ptx, "cp.async.bulk.tensor")
    complete = "mbarrier::complete_tx::bytes.multicast::cluster"
    assert f"tensor.{dims}d.shared::cluster.global.{complete} [" in load
    assert re.search(r"\], %rs\d+;$", load)


# Named barriers ----------------------------------------------------------------------------------


@needs_ptxas
def test_named_barriers() -> None:
    text = f"""
kernel sample @ scheduled ({TENSORS}) {{
  partition(role="load", num_warps=4) {{
    named_barrier_sync(barrier=1, num_warpgroups=2)
    named_barrier_arrive(barrier=15, num_warpgroups=3)
  }}
  partition(role="compute", num_warps=8) {{
    named_barrier_sync(barrier=15, num_warpgroups=3)
  }}
  partition(role="compute", num_warps=4) {{
    named_barrier_arrive(barrier=1, num_warpgroups=2)
  }}
}}
"""
    ptx = proved(parse_kernel(text))
    shown = [re.sub(r"^bar\.|\s+", " ", line).strip() for line in lines(ptx, "bar.")]
    assert sorted(shown) == ["arrive 1, 256;", "arrive 15, 384;", "sync 1, 256;", "sync 15, 384;"]


# Flags -------------------------------------------------------------------------------------------


@needs_ptxas
@pytest.mark.parametrize(
    ("place", "threads"), [("partition", "@%p"), ("elect", "red"), ("outside", "@%p")]
)
def test_flags(place: str, threads: str) -> None:
    """In a partition one thread of each warpgroup arrives, outside one of the CTA."""
    ops = """
%t: i32 = constant(value=3)
%three: i32 = constant(value=3)
semaphore_arrive(tensor=%F, index=(%t,), amount=2)
semaphore_wait(tensor=%F, index=(%t,), count=%three)
%seen: f32 = load_global(tensor=%Y, index=(%t, %t))
store_global(tensor=%Y, index=(%t, %three), value=%seen)
"""
    if place == "elect":
        ops = f"elect() {{ {ops} }}"
    body, setup = ("", grid(1) + ops) if place == "outside" else (ops, grid(1))
    kernel = kernel_of(body, TENSORS, setup)
    ptx = proved(kernel)
    (arrive,) = lines(ptx, "red.release.gpu.global.add.s32 ")
    assert arrive.startswith(threads)
    # The fourth flag.
    (made,) = re.findall(r"add\.s64\s+(%rd\d+), %rd\d+, 12;", ptx.partition("red.release")[0])
    assert arrive.endswith(f" [{made}], 2;")
    assert lines(ptx, "ld.acquire") == [f"ld.acquire.gpu.global.b32 seen, [{made}];"]
    assert len(lines(ptx, "setp.lt.s32 less, seen, ")) == 1
    # The poll is a loop, and nothing that follows is read before.
    text = ptx.replace("\n", " ")
    assert re.search(r"WAIT_\d+:\s+ld\.acquire.*?setp\.lt.*?@less bra WAIT_\d+;.*ld\.global", text)
    assert text.index("red.release") < text.index("ld.acquire")


@pytest.mark.parametrize("op", ["semaphore_wait({}, count=%g)", "semaphore_arrive({})"])
def test_flags_are_read_where_they_change(op: str) -> None:
    """Not by way of the texture cache, which does not see what other CTAs write."""
    body = f"""
%t: i32 = constant(value=0)
%g: i32 = load_global(tensor=%G, index=(%t,))
{op.format("tensor=%F, index=(%t,)")}
%f: i32 = load_global(tensor=%F, index=(%t,))
%sum: i32 = map(fn="add", args=(%f, %g))
store_global(tensor=%Z, index=(%t,), value=%sum)
"""
    kernel = kernel_of(body, "%F: tensor<i32[T]>, %G: tensor<i32[T]>, %Z: tensor<i32[T]>")
    ptx = ptx_of(kernel)
    assert len(lines(ptx, "ld.global.nc.b32")) == 1  # G
    assert len(lines(ptx, "ld.global.b32")) == 1  # F


# The grid ----------------------------------------------------------------------------------------


def launch(cluster: int, scheduler: str = "persistent") -> Signature:
    setup = grid(cluster, scheduler)
    return signature(kernel_of('%m: i32 = dim_size(dim="M")', TENSORS, setup))


def test_the_grid_is_whole_clusters() -> None:
    dims = {"M": 64 * 12 + 1}
    assert [num_ctas(launch(c, "grid"), dims, 132) for c in (1, 2, 4, 8)] == [13, 26, 52, 104]
    assert [num_ctas(launch(c), dims, 132) for c in (1, 2, 4, 8)] == [13, 26, 52, 104]
    assert [num_ctas(launch(c), dims, 11) for c in (1, 2, 4, 8)] == [11, 10, 8, 8]
    assert num_ctas(launch(2), {"M": 0}, 132) == 0
    assert num_ctas(launch(4, "grid"), dims, 132, max_clusters=2) == 52
    # There are tiles to do, so there is a cluster.
    assert num_ctas(launch(8), dims, 7) == 8


def test_grid_has_its_number_of_ctas() -> None:
    dims = {"M": 64 * 2**28}
    assert num_ctas(launch(4, "grid"), dims, 132) == 2**30
    with pytest.raises(LaunchError, match=r"2\*\*28|268435456 work units .* a cluster of 8 CTAs"):
        num_ctas(launch(8, "grid"), dims, 132)
