"""The process that measures is watched; what it could not measure is told, and left as it was."""

import json
import sys
from dataclasses import replace

import pytest

from wsdsl.calibrate import calibration_run
from wsdsl.cli import main
from wsdsl.diagnostics import LaunchError
from wsdsl.rates import files
from wsdsl.rates.rates import FITTED, NAMES

CHILD = """
import json, os, sys, time
def tell(**what):
    print(json.dumps(what), flush=True)
card = dict(device="NVIDIA H200", arch="sm_90a", num_sms=132, memory_bytes=150754820096,
            driver="13.0")
tell(card=card)
for name in sys.argv[2:]:
    tell(begins=name)
    if name == "smem":
        os._exit(3)
    if name == "issue":
        time.sleep(60)
    if name == "tensor":
        tell(bench=name, error="a wait did not end")
        sys.exit(1)
    tell(bench=name, values=VALUES.get(name, {}))
"""
CARD = {"device": "NVIDIA H200", "arch": "sm_90a", "num_sms": 132, "memory_bytes": 150754820096,
        "driver": "13.0"}  # fmt: skip
VALUES = {"barriers": {"mbarrier_cycles": 33.0, "named_barrier_cycles": 22.0},
          "dram": {"dram_read_bytes": 4567.0}, "kernels": {"kernel_ns": 0.0}}  # fmt: skip


@pytest.fixture(autouse=True)
def child(tmp_path, monkeypatch):
    path = tmp_path / "child.py"
    path.write_text(f"VALUES = {VALUES!r}\n{CHILD}")
    monkeypatch.setattr(calibration_run, "CHILD", [sys.executable, str(path)])
    monkeypatch.setattr(calibration_run, "SILENCE_SECONDS", 1.0)
    monkeypatch.setenv("WSDSL_CACHE_DIR", str(tmp_path / "cache"))


def test_what_hangs_or_dies_is_left_out_and_the_rest_measured():
    heard: list[str] = []
    order = ["tensor", "smem", "barriers", "issue", "dram", "kernels"]
    found = calibration_run.measure(1, heard.append, order)
    assert heard == order
    assert found.values == VALUES["barriers"] | VALUES["dram"]
    assert found.failed == {
        "tensor": "a wait did not end",
        "smem": "it hung, or crashed its process",
        "issue": "it hung, or crashed its process",
        "kernel_ns": "measured as 0.0",
    }


def test_it_is_an_error_if_nothing_is_measured():
    with pytest.raises(LaunchError, match=r"succeeded \(tensor: a wait did not end\)"):
        calibration_run.measure(60, lambda _: None, ["tensor"])


def test_a_process_that_never_begins_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(calibration_run, "CHILD", [sys.executable, "-c", "pass"])
    with pytest.raises(LaunchError, match="ended before the first"):
        calibration_run.measure(60, lambda _: None)


def test_the_real_child_says_so_where_there_is_no_gpu(monkeypatch):
    monkeypatch.setattr(
        calibration_run, "CHILD", [sys.executable, "-m", "wsdsl.calibrate.calibration_child"]
    )
    monkeypatch.setattr(calibration_run, "SILENCE_SECONDS", 20.0)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(LaunchError, match="cannot run: "):
        calibration_run.measure(60, lambda _: None)


def test_what_was_not_measured_stays_as_it_was():
    file = calibration_run.rates_file(
        calibration_run.measure(60, lambda _: None, ["barriers", "smem"])
    )
    assert file.card.target == "H200" and file.card.file_name == "nvidia-h200-132-140.json"
    (shipped,) = (known for known in files.shipped() if known.card.target == "H200")
    assert file.values == dict(shipped.values) | VALUES["barriers"]
    assert {n for n in NAMES if file.sources[n].startswith("fitted")} == set(FITTED)
    measured = {n for n in NAMES if file.sources[n].startswith("measured by wsdsl calibrate")}
    assert measured == set(VALUES["barriers"])
    assert file.sources["fma_lanes"].startswith("not measured: shipped")
    lines = list(calibration_run.table(file, shipped, {"smem": "why"}))
    (row,) = (line for line in lines if line.startswith("mbarrier_cycles"))
    assert row.split()[1:4] == ["33", f"{shipped.values['mbarrier_cycles']:.5g}",
                                f"{33 / shipped.values['mbarrier_cycles']:.2f}"]  # fmt: skip
    assert any("not measured" in line for line in lines) and lines[-1] == "smem: why"
    assert list(calibration_run.table(file, None, {}))


def test_what_products_told_of_l2_goes_by_how_quick_it_is():
    before = calibration_run.rates_file(calibration_run.Measured(CARD, {})).values
    taken = {"clock": 2.0, "tensor_smem_clock": 2.0, "l2_own_bytes": before["l2_own_bytes"] * 1.5}
    values = calibration_run.rates_file(calibration_run.Measured(CARD, taken)).values
    assert values["l2_bytes"] == pytest.approx(1.5 * before["l2_bytes"])
    assert values["l2_split"] == before["l2_split"]


def test_what_has_a_clock_of_its_own_is_told_in_cycles_of_products():
    taken = {"clock": 2.0, "tensor_smem_clock": 1.6, "l2_own_bytes": 40.0, "fma_lanes": 128.0,
             "hand_over_cycles": 2000.0, "dram_read_bytes": 4500.0}  # fmt: skip
    told = taken | {"l2_own_bytes": 50.0, "hand_over_cycles": 1600.0}
    file = calibration_run.rates_file(calibration_run.Measured(CARD, taken))
    assert {name: file.values[name] for name in told} == told
    before = calibration_run.rates_file(calibration_run.Measured(CARD, {}))
    later = calibration_run.rates_file(calibration_run.Measured(CARD, {"hand_over_cycles": 1980.0}))
    assert later.values["hand_over_cycles"] == pytest.approx(
        1980 / before.values["clock"] * before.values["tensor_smem_clock"]
    )


def calibrate(capsys, *arguments: str) -> tuple[int, str, str]:
    status = main(["calibrate", *arguments])
    told = capsys.readouterr()
    return status, told.out, told.err


def test_the_command_writes_the_file_of_the_device(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("wsdsl.cli.calibration.require_gpu", lambda: None)
    status, out, err = calibrate(capsys, "barriers", "dram")
    path = tmp_path / "cache" / "rates" / "nvidia-h200-132-140.json"
    assert status == 0 and f"written to {path}" in out and "measuring dram" in err
    assert files.read(path).values["dram_read_bytes"] == 4567.0
    status, out, _ = calibrate(capsys, "barriers", "tensor", "--json", "--out", str(tmp_path / "a"))
    told = json.loads(out)
    assert status == 1 and told["failed"] == {"tensor": "a wait did not end"}
    assert told["rates"]["mbarrier_cycles"]["value"] == 33.0
    assert files.read(tmp_path / "a").values["mbarrier_cycles"] == 33.0


@pytest.mark.parametrize(("arguments", "told"), [
    (["nothing"], "calibrate has no microbenchmark `nothing`"),
    (["--seconds", "0"], "--seconds is 0.0, expected a positive"),
    ([], "no supported GPU was found"),
])  # fmt: skip
def test_mistakes_are_told(capsys, monkeypatch, arguments, told):
    monkeypatch.setattr("wsdsl.runtime.device.gpu_available", lambda: False)
    status, _, err = calibrate(capsys, *arguments)
    assert status == 2 and told in err


def test_it_says_where_to_write_if_nothing_is_kept(capsys, monkeypatch):
    monkeypatch.setenv("WSDSL_CACHE_DIR", "off")
    status, _, err = calibrate(capsys)
    assert status == 2 and "--out FILE" in err


def test_another_card_of_the_name_has_a_file_of_its_own():
    card = files.Card("NVIDIA H100 80GB HBM3", "H100 SXM", 132, 80 << 30)
    assert card.file_name == "nvidia-h100-80gb-hbm3-132-80.json"
    assert replace(card, num_sms=66).file_name != card.file_name
