"""Select a target's hardware parameters: measured on this machine, else shipped, else those of the
nearest GPU.
"""

import hashlib
from dataclasses import replace
from functools import cache
from pathlib import Path

from wsdsl.ir.hardware.target import TARGETS, Target
from wsdsl.rates import files
from wsdsl.rates.files import RatesFile
from wsdsl.rates.rates import Rates
from wsdsl.regular_file import read_regular

CALIBRATE = "run `wsdsl calibrate` on the GPU"


def rates_of(target: Target) -> Rates:
    return _rates_of(target, files.folder())


@cache
def _rates_of(target: Target, folder: Path | None) -> Rates:
    own, faults = calibrated(target, folder)
    if own is not None:
        return own.rates(f"measured on {own.card.device}, {own.about.get('date', 'undated')}")
    return _shipped(target, "; ".join(faults))


def calibrated(target: Target, folder: Path | None) -> tuple[RatesFile | None, list[str]]:
    """The newest file that this machine has of such a GPU, and the faults of others."""
    found: list[RatesFile] = []
    faults: list[str] = []
    for path in files.of_folder(folder):
        try:
            file = files.read(path)
        except (OSError, ValueError) as error:
            faults.append(f"{path} is not used ({error}): {CALIBRATE} again, or remove it")
            continue
        if (file.card.target, file.card.num_sms) == (target.name, target.num_sms):
            found.append(file)
    return max(found, key=lambda file: file.about.get("date", ""), default=None), faults


def _shipped(target: Target, fault: str) -> Rates:
    known = files.shipped()
    for file in known:
        if (file.card.target, file.card.num_sms) == (target.name, target.num_sms):
            return file.rates(f"shipped, of {file.card.device}", fault)
    near = min(known, key=lambda file: _distance(target, _target(file)))
    told = f"the hardware parameters of {target.name} are not measured: those of "
    told += f"{near.card.target} are used, scaled by SMs and memory; {CALIBRATE}"
    return scaled(near, target, f"{fault}; {told}" if fault else told)


def _target(file: RatesFile) -> Target:
    return next(target for target in TARGETS if target.name == file.card.target)


def _distance(target: Target, near: Target) -> tuple[bool, float]:
    """The distance of two GPUs; another architecture counts more than any SMs and memory."""
    sms, memory = near.num_sms / target.num_sms, near.memory_bytes / target.memory_bytes
    return near.arch != target.arch, abs(1 - sms) + abs(1 - memory)


def scaled(file: RatesFile, target: Target, notice: str) -> Rates:
    """Scale to a GPU with other SMs and memory; parameters of a single SM are unchanged."""
    rates = file.rates(f"scaled from {file.card.target}", notice)
    memory = target.memory_bytes / _target(file).memory_bytes
    sms = target.num_sms / rates.num_sms
    return replace(
        rates,
        dram_read_bytes=rates.dram_read_bytes * memory,
        dram_write_bytes=rates.dram_write_bytes * memory,
        dram_copy_bytes=rates.dram_copy_bytes * memory,
        num_sms=float(target.num_sms),
        l2_capacity_bytes=target.l2_bytes,
        clusters_2=float(int(rates.clusters_2 * sms)),
        clusters_4=float(int(rates.clusters_4 * sms)),
        clusters_8=float(int(rates.clusters_8 * sms)),
    )


def calibrated_digest() -> str:
    """Of all that this machine has measured, by which kernels are chosen: part of the key under
    which what is compiled is kept.
    """
    return _digest_of(files.folder())


@cache
def _digest_of(place: Path | None) -> str:
    found = hashlib.sha256()
    for path in files.of_folder(place):
        try:
            found.update(read_regular(path))
        except OSError:
            continue
    return found.hexdigest()
