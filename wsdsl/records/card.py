"""Find the GPU that this process chooses schedules for, without initializing CUDA: a process that
uses CUDA cannot be forked.
"""

import re
import subprocess
from contextvars import ContextVar
from functools import cache
from pathlib import Path

from wsdsl.ir.hardware.target import Target, target_of, target_of_device

PROC = Path("/proc/driver/nvidia/gpus")
inherited = ContextVar[tuple[str, ...]]("inherited", default=())
"""Names of the GPUs of the process that this one compiles for."""
SMI = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]


def card_of(arch: str, num_sms: int | None = None) -> Target:
    """The driver's GPU, if a call has queried the driver; else this machine's; else the default of
    `arch`. `num_sms`: the device's, where it has fewer.
    """
    target = target_of(arch, num_sms)
    if num_sms is not None and num_sms != target_of(arch).num_sms:
        return target
    names = set(queried() or inherited.get() or _installed(PROC))
    if len(names) != 1:
        return target
    found = target_of_device(names.pop(), arch, target.num_sms)
    return found if found.arch == arch else target


def queried() -> tuple[str, ...]:
    """Return the names of the GPUs that calls have queried."""
    from wsdsl.runtime.device import known_devices

    return tuple(device.name for device in known_devices())


@cache
def _installed(folder: Path) -> tuple[str, ...]:
    found: list[str] = []
    try:
        for path in sorted(folder.glob("*/information")):
            model = re.search(r"^Model:\s*(.+?)\s*$", path.read_text(), re.MULTILINE)
            found += [model[1]] if model else []
        # Where containers do not show that folder.
        told = found or subprocess.check_output(SMI, timeout=5, text=True).splitlines()
    except (OSError, subprocess.SubprocessError):
        return ()
    return tuple(name.strip() for name in told)
