"""Rates of a card: the laws that stand on them, their files, and which are taken."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from wsdsl import config
from wsdsl.ir.hardware.target import (
    B200,
    GH200,
    H100_PCIE,
    H100_SXM,
    H200,
    target_of,
    target_of_device,
)
from wsdsl.rates import files, of_target
from wsdsl.rates.rates import DESCRIBED, NAMES, with_values

SIMPLE = with_values(dict.fromkeys(NAMES, 1.0), "")
(OWN,) = (file for file in files.shipped() if file.card.target == "H200")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("WSDSL_CACHE_DIR", str(tmp_path))
    return tmp_path / "rates"


def rates_of(target):
    of_target._rates_of.cache_clear()
    return of_target.rates_of(target)


def test_each_rate_says_what_it_is():
    assert len(set(NAMES)) == len(NAMES) > 40
    for name, unit, meaning, bench, _ in DESCRIBED:
        assert unit and meaning and bench and "_" not in unit, name


def test_a_wgmma_takes_as_long_as_the_slowest_of_what_it_needs():
    rates = replace(SIMPLE, tensor_16_cycles=0.5, tensor_8_cycles=0.25, tensor_smem_bytes=128.0,
                    tensor_least_cycles=13.0)  # fmt: skip
    by_hand = {8: (18, 13), 16: (20, 13), 32: (24, 16), 64: (32, 32), 256: (128, 128)}
    for columns, (shared, registers) in by_hand.items():
        assert rates.tensor_cycles(columns, 16) == shared
        assert rates.tensor_cycles(columns, 16, a_in_registers=True) == registers
    assert rates.tensor_cycles(256, 8) == 80  # bytes, not the tensor cores
    assert rates.tensor_cycles(256, 8, a_in_registers=True) == 64


def test_memory_is_as_quick_as_measured_at_both_ends_and_in_the_middle():
    rates = replace(SIMPLE, dram_read_bytes=4.5, dram_write_bytes=4.3, dram_copy_bytes=4.0)
    assert [rates.dram_bytes(f) for f in (0, 0.5, 1)] == pytest.approx([4.5, 4.0, 4.3])
    assert rates.dram_bytes(1 / 3) < 4.5


def test_clusters_of_a_size_that_was_not_asked_for_are_those_that_have_room():
    rates = replace(SIMPLE, num_sms=132.0, clusters_2=66.0, clusters_4=30.0, clusters_8=15.0)
    assert [rates.clusters(n) for n in (1, 2, 4, 8, 16)] == [132, 66, 30, 15, 8]


@pytest.mark.parametrize("values", [{}, {"fma_lanes": 1.0}, dict.fromkeys(NAMES, 0.0),
                                    dict.fromkeys(NAMES, float("nan")),
                                    dict.fromkeys((*NAMES, "more"), 1.0)])  # fmt: skip
def test_values_that_can_not_be_are_refused(values):
    with pytest.raises(ValueError, match="illegal value"):
        with_values(values, "")


@pytest.mark.parametrize("target", [H200, H100_SXM, B200], ids=str)
def test_what_is_shipped_is_taken(target):
    rates = rates_of(target)
    assert rates.origin.startswith("shipped") and not rates.notice
    assert rates.num_sms == target.num_sms


def test_each_shipped_value_says_where_it_comes_from():
    for file in files.shipped():
        assert set(file.sources) == set(NAMES) and all(file.sources.values())
        measured = [s for s in file.sources.values() if s.startswith("measured by wsdsl calibrate")]
        assert file.card.target != "B200" or not measured


def test_an_unknown_card_has_those_of_the_nearest_scaled_and_is_told():
    rates = rates_of(H100_PCIE)
    assert rates.num_sms == 114 and "wsdsl calibrate" in rates.notice
    shipped = rates_of(H100_SXM)
    assert rates.dram_read_bytes == pytest.approx(shipped.dram_read_bytes * 2 / 3.35)
    assert rates.fma_lanes == shipped.fma_lanes
    half = rates_of(target_of("sm_90a", 66))
    assert half.clusters_2 == 33 and "H200" in half.notice
    assert "wsdsl calibrate" in rates_of(GH200).notice


def measured(value: float, **card: object) -> files.RatesFile:
    values = dict.fromkeys(NAMES, value)
    sources = dict.fromkeys(NAMES, "a test")
    return files.RatesFile(replace(OWN.card, **card), values, sources, {"date": f"2026-{value}"})


def test_what_was_measured_here_is_taken_first(cache):
    file = measured(2.0)
    files.write(cache / file.card.file_name, file)
    assert rates_of(H200).fma_lanes == 2.0 and "measured" in rates_of(H200).origin
    assert rates_of(H100_SXM).origin.startswith("shipped")
    other = measured(3.0, memory_bytes=1 << 36)
    files.write(cache / other.card.file_name, other)
    assert rates_of(H200).fma_lanes == 3.0, "the newer one"
    assert sorted(p.name for p in cache.iterdir()) == [
        "nvidia-h200-132-140.json", "nvidia-h200-132-64.json"
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"card": {}, "about": {}, "rates": {}}'])
def test_a_damaged_file_is_told_and_not_used(cache, text):
    cache.mkdir()
    (cache / "nvidia-h200-132-140.json").write_text(text)
    rates = rates_of(H200)
    assert rates.origin.startswith("shipped")
    assert "nvidia-h200-132-140.json is not used" in rates.notice
    assert "wsdsl calibrate" in rates.notice


def test_a_file_comes_back_as_it_was_written(tmp_path: Path):
    for file in files.shipped():
        files.write(tmp_path / "a.json", file)
        assert files.read(tmp_path / "a.json") == file
    rows = json.loads(OWN.text())["rates"]
    assert rows["fma_lanes"]["unit"] == "threads per cycle and SM"


def test_nothing_is_looked_for_where_nothing_is_kept():
    with config.override(cache_dir=None):
        assert files.folder() is None and rates_of(H200).origin.startswith("shipped")
        assert of_target.calibrated_digest() == of_target._digest_of(None)


def test_what_is_measured_is_part_of_the_key_of_what_is_compiled(cache):
    from wsdsl.artifact.versions import digest, emitter

    if emitter() is None:
        pytest.skip("the sources have just been changed")
    before = digest("kind", 1)
    file = measured(2.0)
    files.write(cache / file.card.file_name, file)
    of_target._digest_of.cache_clear()
    assert digest("kind", 1) != before


@pytest.mark.parametrize(("device", "name"), [
    ("NVIDIA H200", "H200"), ("NVIDIA H100 80GB HBM3", "H100 SXM"),
    ("NVIDIA GH200 480GB", "GH200"), ("NVIDIA H100 NVL", "NVIDIA H100 NVL"),
    ("NVIDIA H200 MIG 3g.71gb", "NVIDIA H200 MIG 3g.71gb"),
])  # fmt: skip
def test_cards_are_known_by_the_names_of_drivers(device, name):
    assert target_of_device(device, "sm_90a", 132).name == name


def test_the_pcie_card_is_known_by_its_sms_too():
    assert target_of_device("NVIDIA H100 PCIe", "sm_90a", 114) is H100_PCIE
    assert target_of_device("NVIDIA H100 PCIe", "sm_90a", 100).num_sms == 100
