"""What microbenchmarks make of the times that they measure, and that ptxas takes their kernels."""

import re

import pytest

from tests.calibrate.fake_gpu import FakeGpu
from wsdsl.artifact.versions import find_ptxas
from wsdsl.calibrate import (
    barrier_latency,
    dram,
    issue,
    kernels,
    l2,
    latency,
    power,
    rings,
    smem_bandwidth,
    tensor,
)
from wsdsl.calibrate.asm import PATIENCE
from wsdsl.calibrate.benches import benches
from wsdsl.codegen.ptxas import assemble
from wsdsl.codegen.ptxas_diagnostics import HARMLESS
from wsdsl.rates.rates import DESCRIBED, FITTED, NAMES, PRODUCTS

ALL = benches(0.0)
KERNELS = {kernel.name: kernel for bench in ALL for kernel in bench.kernels}


def approx(**values):
    return {name: pytest.approx(value) for name, value in values.items()}


def test_each_rate_is_measured_by_the_bench_that_it_names():
    found = {bench.name: set(bench.measure(FakeGpu(lambda *_: 1e6))) for bench in ALL}
    for d in DESCRIBED:
        assert d.name in (FITTED if d.bench == PRODUCTS else found[d.bench])
    measured = [name for names in found.values() for name in names]
    assert sorted([*measured, *FITTED]) == sorted(NAMES)


def test_each_kernel_has_a_name_of_its_own():
    named = [kernel for bench in ALL for kernel in bench.kernels]
    assert len({id(kernel) for kernel in named}) == len(KERNELS)


@pytest.mark.sampled(6)
@pytest.mark.skipif(find_ptxas() is None, reason="there is no ptxas")
@pytest.mark.parametrize("name", KERNELS)
def test_ptxas_takes_it_without_a_spill_or_a_serialised_product(name):
    assembled = assemble(KERNELS[name].ptx)
    assert assembled is not None
    assert assembled.resources.spill_store_bytes == 0
    assert set(re.findall(r"C7\d\d\d", assembled.log)) <= HARMLESS


@pytest.mark.parametrize("name", KERNELS)
def test_each_loop_that_waits_gives_up(name):
    """A label that is gone back to stands in front of a count or of the patience's end."""
    text = KERNELS[name].ptx
    lines = text.splitlines()
    for at, line in enumerate(lines):
        back = re.match(r"@(\w+) bra (L\d+);", line)
        if back is None or f"{back[2]}:" not in lines[:at]:
            continue
        test = lines[at - 1]
        bounded = rf"setp.lt.u32 done, looks, {PATIENCE};", r"setp.lt.u32 more, \w+, \w+;"
        assert any(re.fullmatch(form, test) for form in bounded), test
    assert text.count("try_wait") == len(re.findall(r"try_wait[^\n]*\n@done bra", text))


def test_tensor_cores():
    cycles = {"products_16_n128_registers": 64, "products_8_n128_registers": 65,
              "products_32_n128_registers": 63, "products_16_n8_registers": 13,
              "products_16_n32_smem": 24}  # fmt: skip
    each = cycles | {"settled_16_n64_smem": (32 + 61) / 8}
    found = tensor.measure(FakeGpu(lambda kernel, count, _: each[kernel.name] * count * 8))
    assert found == approx(
        tensor_16_cycles=0.5, tensor_8_cycles=130 / 256, tensor_32_cycles=126 / 256,
        tensor_least_cycles=13, tensor_smem_bytes=128, tensor_latency_cycles=61,
    )  # fmt: skip


def test_smem():
    # 512 threads, 8 accesses of 16 bytes, at 128 bytes a cycle.
    found = smem_bandwidth.measure(FakeGpu(lambda kernel, count, _: count * 512))
    assert found == approx(smem_read_bytes=128)


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_what_shares_smem_is_what_each_byte_beside_costs(share):
    def taken(kernel, count, arguments):
        products, beside = count * 4 * 3072, arguments[0] * 16384
        return (max(products, beside) + share * min(products, beside)) / 128

    found = smem_bandwidth.measure_sharing(FakeGpu(taken))
    assert found == {"smem_fill_sharing": pytest.approx(share, rel=1e-3)}


def test_instructions():
    lanes = {"fma_lanes": 128, "exp_lanes": 16}
    found = issue.measure(FakeGpu(lambda kernel, count, _: count * 131072 / lanes[kernel.name]))
    assert found == approx(**lanes)


def test_latencies():
    def taken(kernel, count, arguments):
        return count * (8 * 40 if kernel is latency.ISSUED else arguments[1] / 100)

    found = latency.measure(FakeGpu(taken))
    assert found == approx(tma_l2_cycles=40.95, tma_issue_cycles=40, tma_dram_cycles=655.35)


def test_barriers():
    cycles = {"mbarrier_turns": 80, "named_barrier": 30, "cluster_barrier": 190, "exchange": 600,
              "sends": 131072 / 14, "hand_over": 3000, "counter": 700}  # fmt: skip
    gpu = FakeGpu(lambda kernel, count, _: cycles[kernel.name] * count)
    found = (
        barrier_latency.measure(gpu)
        | barrier_latency.measure_cluster(gpu)
        | barrier_latency.measure_hand_over(gpu)
    )
    assert found == approx(
        mbarrier_cycles=40, named_barrier_cycles=30, cluster_barrier_cycles=190,
        cluster_exchange_cycles=300, cluster_send_bytes=14, hand_over_cycles=1500,
        atomic_cycles=700,
    )  # fmt: skip


def test_l2():
    gpu = FakeGpu(lambda kernel, count, _: count * 16384 / 80)
    assert l2.measure(gpu) == approx(l2_own_bytes=80, l2_one_bytes=80, l2_tma_store_bytes=80)
    assert sorted(grid for _, grid, _, _ in gpu.launched) == [1, 132, 132]
    found = l2.measure_threads(FakeGpu(lambda kernel, count, _: count * 65536 / 40))
    assert found == approx(l2_load_bytes=40, l2_store_bytes=40)


def test_dram():
    moved = dram.BYTES // (132 * 16384) * 132 * 16384
    ns = {"reads": moved / 4500, "writes": moved / 4400, "copies": 2 * moved / 4200,
          "one_read": 1300 * (dram.BYTES // (132 * 16384))}  # fmt: skip
    found = dram.measure(FakeGpu(lambda kernel, count, _: ns[kernel.name]))
    assert found == approx(
        dram_read_bytes=4500, dram_write_bytes=4400, dram_copy_bytes=4200, dram_loaded_ns=1300
    )


def test_kernels_and_the_card():
    gpu = FakeGpu(lambda kernel, length, early: 700 if early[0] else 1400)
    assert kernels.measure(gpu) == {"kernel_ns": 1400, "dependent_kernel_ns": 700}
    found = kernels.measure_card(gpu)
    assert found == approx(
        num_sms=132, l2_capacity_bytes=50 << 20, clusters_2=66, clusters_4=30, clusters_8=15
    )


def test_the_clock_is_that_of_the_end():
    gpu = FakeGpu(lambda *_: 1.0)
    assert power.measure(gpu, 0.0) == dict.fromkeys(
        ("clock", "tensor_smem_clock", "tensor_l2_clock"), 1.5
    )
    assert power.settled([2.0, 1.8, 1.6, 1.4, 1.4]) == pytest.approx((1.6 + 1.4 + 1.4) / 3)


def test_numbers_are_normal_and_always_the_same():
    import ml_dtypes
    import numpy as np

    made = np.frombuffer(power.numbers(1 << 17), ml_dtypes.bfloat16).astype(np.float32)
    assert abs(made.mean()) < 0.02 and abs(made.std() - 1) < 0.02
    assert power.numbers(100) == power.numbers(200)[:100]
    assert rings.BLOCK == rings.BLOCK_ROWS * 128
