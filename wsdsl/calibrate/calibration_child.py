"""The process that touches the GPU: `python -m wsdsl.calibrate.calibration_child SECONDS BENCH…`.
It prints measurements as lines of JSON. A hang in it does not block the command.
"""

import json
import sys
from typing import Any

from wsdsl.calibrate.benches import Bench, benches
from wsdsl.diagnostics import CODE, WsdslError


def main(arguments: list[str]) -> int:
    seconds, *names = arguments
    known = {bench.name: bench for bench in benches(float(seconds))}
    try:
        from wsdsl.calibrate.gpu import Gpu

        gpu = Gpu()
    except WsdslError as error:
        _tell(failed=CODE.sub("", str(error)))
        return 1
    device = gpu.context.device
    card = device.about() | {"memory_bytes": gpu.memory_bytes}
    _tell(card=card | {"driver": "{}.{}".format(*device.driver)})
    for name in names:
        _tell(begins=name)
        if not _run(known[name], gpu):
            return 1
    return 0


def _run(bench: Bench, gpu: Any) -> bool:
    """False where no other can run in this process any more."""
    try:
        found = bench.measure(gpu)
    except (WsdslError, ValueError, ZeroDivisionError) as error:
        _tell(bench=bench.name, error=CODE.sub("", str(error)).splitlines()[0])
        return _works(gpu)
    _tell(bench=bench.name, values=found)
    gpu.free()
    return True


def _works(gpu: Any) -> bool:
    """Whether the context is as it was: after some errors every call fails."""
    try:
        gpu.free()
    except WsdslError:
        return False
    return True


def _tell(**what: Any) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
