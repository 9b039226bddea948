"""What holds on a machine without a GPU."""

import pytest

from wsdsl import config
from wsdsl.diagnostics import LaunchError, WsdslError
from wsdsl.runtime.device import Device
from wsdsl.runtime.doctor import doctor


def test_the_doctor_tells_what_to_do() -> None:
    rows = doctor()
    assert {"Python", "llvmlite", "ptxas"} <= {row.name for row in rows}
    assert all(row.hint for row in rows if not row.ok)


def test_doctor_lists_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WSDSL_BACKEND", "cpu")
    monkeypatch.setenv("WSDSL_DUMP", "here")
    rows = {row.name: row for row in doctor()}
    assert all(option.doc in rows[option.variable].found for option in config.OPTIONS)
    assert rows["WSDSL_DUMP"].ok and "'here'" in rows["WSDSL_DUMP"].found
    assert not rows["WSDSL_BACKEND"].ok and "expected" in rows["WSDSL_BACKEND"].hint


def test_a_gpu_that_is_asked_for_and_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    from wsdsl.dispatch import execution
    from wsdsl.runtime import device

    monkeypatch.setattr(device, "gpu_available", lambda: False)
    with config.override(backend="gpu"), pytest.raises(LaunchError, match="no supported GPU"):
        execution.runs_simulated()
    with config.override(backend="auto"):
        assert execution.runs_simulated()


def test_an_option_that_does_not_parse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WSDSL_BACKEND", "cpu")
    with pytest.raises(WsdslError, match=r"WSDSL_BACKEND is 'cpu'; expected"):
        config.BACKEND.get()


def test_unknown_options_are_named() -> None:
    with pytest.raises(WsdslError, match="is unknown"), config.override(backened="gpu"):
        pass


@pytest.mark.parametrize(("name", "num_sms", "known"), [
    ("NVIDIA H100 80GB HBM3", 132, True), ("NVIDIA H100 PCIe", 114, False),
])  # fmt: skip
def test_the_doctor_tells_by_which_rates_kernels_are_chosen(
    monkeypatch: pytest.MonkeyPatch, name: str, num_sms: int, known: bool
) -> None:
    card = Device(0, name, num_sms, (9, 0), (13, 0))
    monkeypatch.setenv("WSDSL_CACHE_DIR", "off")
    monkeypatch.setattr("wsdsl.runtime.driver.is_installed", lambda: True)
    for place in ("device", "doctor"):
        monkeypatch.setattr(f"wsdsl.runtime.{place}.num_devices", lambda: 1)
        monkeypatch.setattr(f"wsdsl.runtime.{place}.device_properties", lambda index: card)
    row = {row.name: row for row in doctor()}["rates"]
    assert row.ok is known
    assert ("shipped" in row.found) is known
    assert ("wsdsl calibrate" in row.hint) is not known
