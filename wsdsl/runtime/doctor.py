"""Report the requirements of wsdsl: found, missing, and how to install them."""

import sys
from importlib import metadata, util
from typing import Any

from wsdsl import config
from wsdsl.diagnostics import WsdslError
from wsdsl.ir.hardware.target import target_of_device
from wsdsl.record import record
from wsdsl.runtime import driver
from wsdsl.runtime.device import (
    Device,
    device_properties,
    gpu_available,
    needed_device,
    num_devices,
)


@record
class Row:
    """One thing that was looked for; `hint` says how to get it where it is missing."""

    name: str
    ok: bool
    found: str
    hint: str = ""


def doctor() -> list[Row]:
    """Look at everything; never raises."""
    return [
        Row("Python", sys.version_info >= (3, 11), sys.version.split()[0], "3.11 or newer"),
        *(_package(name) for name in ("llvmlite", "lark", "numpy", "ml_dtypes", "cuda-bindings")),
        _ptxas(),
        _nvdisasm(),
        *_gpu(),
        *(_optional(name) for name in ("torch", "cupy", "jax")),
        *(_option(option) for option in config.OPTIONS),
    ]


def _package(name: str) -> Row:
    try:
        return Row(name, True, metadata.version(name))
    except metadata.PackageNotFoundError:
        return Row(name, False, "not installed", f"pip install {name}")


def _optional(name: str) -> Row:
    held = util.find_spec(name) is not None
    return Row(name, True, "installed" if held else "not installed; optional, for its arrays")


def _option(option: config.Option[Any]) -> Row:
    text = option.text
    found = f"{f'is {text!r}' if text else 'not set'}. {option.doc}"
    try:
        option.get()
    except WsdslError as error:
        return Row(option.variable, False, found, error.findings[0].message)
    return Row(option.variable, True, found)


def _ptxas() -> Row:
    from wsdsl.artifact.versions import find_ptxas, ptxas_version

    hint = "pip install nvidia-cuda-nvcc; without it the driver assembles, and reports no spills"
    given = config.PTXAS.get()
    if given == "off":
        return Row("ptxas", True, "switched off by WSDSL_PTXAS")
    try:
        path = find_ptxas(given or None)
    except WsdslError as error:
        return Row("ptxas", False, error.findings[0].message, error.findings[0].hint)
    if path is None:
        return Row("ptxas", False, "not found", hint)
    return Row("ptxas", True, f"{ptxas_version(path)} at {path}")


def _nvdisasm() -> Row:
    from wsdsl.artifact.versions import find_nvdisasm

    path = find_nvdisasm()
    missing = "not found; `--emit sass` needs it: pip install nvidia-cuda-nvdisasm"
    return Row("nvdisasm", True, path or missing)


def _gpu() -> list[Row]:
    simulated = "kernels run in the simulator until then"
    if not driver.is_installed():
        hint = f"install NVIDIA's driver; {simulated}"
        return [Row("driver", False, "libcuda was not found", hint)]
    if not num_devices():
        return [Row("driver", False, "libcuda finds no GPU", simulated)]
    found = [device_properties(i) for i in range(num_devices())]
    fits = gpu_available()
    shown = ", ".join(str(device) for device in found)
    rows = [Row("GPU", fits, shown, f"{needed_device()} is needed; {simulated}")]
    return [*rows, *(_rates(device) for device in found if device.arch is not None)]


def _rates(device: Device) -> Row:
    from wsdsl.rates.of_target import rates_of

    rates = rates_of(target_of_device(device.name, device.arch or "", device.num_sms))
    return Row("rates", not rates.notice, rates.origin, rates.notice)
