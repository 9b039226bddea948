"""A kernel is compiled for the card that it names."""

import dataclasses

import pytest

from tests.kernels import CASES
from wsdsl import ScheduleError, VerifyError, parse
from wsdsl.ir.hardware.target import B200, H100_PCIE, H200, TARGETS, Target, target_of
from wsdsl.ir.op import Kernel
from wsdsl.ir.parser import parse_kernel
from wsdsl.lowering.cost_model.predict import predict
from wsdsl.lowering.cost_model.workload import Work
from wsdsl.lowering.footprint import axis_sizes
from wsdsl.lowering.pipeline import lower, scheduled_tile


def chosen(card: Target, m: int = 1024, n: int = 3840, k: int = 4096) -> Kernel:
    posed = dataclasses.replace(CASES["gemm"].kernel.tile_ir, card=card)
    return scheduled_tile(posed, dict(M=m, N=n, K=k))


def test_fewer_sms_get_other_tiles() -> None:
    """8 x 16 tiles are one wave of 132 SMs, and more than 114 have room for."""
    sizes = dict(M=1024, N=3840, K=4096)
    waves = list[int]()
    for card in (H200, H100_PCIE):
        kernel = chosen(card)
        assert kernel.target is card and kernel.schedule
        own = predict(Work(kernel, sizes), kernel.schedule, axis_sizes(kernel, kernel.schedule))
        waves.append(own.work.workers)
        assert own.work.workers <= card.num_sms
    assert waves[1] < waves[0] == 128


def test_less_smem_has_fewer_slots() -> None:
    """... and what was chosen for more is refused."""
    small = dataclasses.replace(H200, smem_bytes=100_000)
    few, usual = chosen(small).schedule, chosen(H200).schedule
    assert few and usual
    assert lower(chosen(small)).card is small
    with pytest.raises(ScheduleError, match="a CTA has 100000"):
        scheduled_tile(dataclasses.replace(chosen(small), schedule=usual))


def test_a_part_of_a_card() -> None:
    assert target_of("sm_90a", 114) is H100_PCIE
    part = target_of("sm_90a", 8)
    assert part.num_sms == 8 and part.cluster_room(2) == 4
    assert part.smem_bytes == H200.smem_bytes


def test_products_are_of_the_card() -> None:
    text = str(lower(chosen(H200)))
    assert parse_kernel(text).target is H200 is target_of("sm_90a")
    blackwell = parse_kernel(
        text.replace("schedule=Schedule(", 'schedule=Schedule(arch="sm_100a", ')
    )
    assert blackwell.target is B200
    with pytest.raises(VerifyError, match=r"sm_100a \(B200\) has no wgmma"):
        lower(blackwell)
    other = str(lower(chosen(B200))).replace('arch="sm_100a"', 'arch="sm_90a"')
    with pytest.raises(VerifyError, match="has no tensor memory"):
        lower(parse_kernel(other))


def test_an_architecture_is_one_capability() -> None:
    assert len({(card.arch, card.capability) for card in TARGETS}) == len({c.arch for c in TARGETS})
    assert len({card.name for card in TARGETS}) == len(TARGETS)


def test_kernels_are_chosen_for_the_card_of_this_machine(monkeypatch) -> None:
    sizes = dict(M=1024, N=1024, K=1024)
    keys = list[str | None]()
    for device, name in (("NVIDIA H200", "H200"), ("NVIDIA H100 80GB HBM3", "H100 SXM")):
        monkeypatch.setattr("wsdsl.records.card.queried", lambda device=device: [device])
        kernel = parse(CASES["gemm"].text).gemm
        assert kernel._compiled_for(None, sizes).source.target.name == name
        keys.append(kernel._variants._choice_key(kernel._variants.request(None, sizes)))
    assert None not in keys and keys[0] != keys[1]
