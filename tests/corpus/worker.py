"""Compiles entries under whichever checkout is on the path: `python worker.py COMPILE_TEXT`.

One entry a line comes in, as JSON; an outcome a line goes out. Only `wsdsl` and the file named are
imported, so that checkouts without a corpus can be asked, too.
"""

import dataclasses
import importlib.util
import json
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import wsdsl
from wsdsl.diagnostics import WsdslError

REFUSALS = ("ParseError", "TypeCheckError", "CompileError", "ScheduleError")
WARM = """
@kernel
def warm(A: bf16[M, K], B: bf16[N, K], C: f32[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += A[m, k] @ B[n, k]
        C[m, n] = acc
"""
"""Compiled first: what is imported meanwhile is no kernel's time."""
OLD_FIELDS = {
    "mma_m": "mma", "consumer_split": "share", "tile_n_variants": "widths",
    "operand_transform": "decode", "mma_promotion_interval": "precise_every",
    "pdl_independent": "constant", "launch_pdl": "overlap", "smem_privatize": "counters",
    "sf_load": "scale_path",
}  # fmt: skip
"""Fields of Schedule as older checkouts know them, by today's name."""
OLD_VALUES: dict[str, dict[str, str]] = {
    "reduction": {"serial": "turns", "parallel": "slices"},
    "operand_transform": {"smem": "shared", "tmem": "tensor"},
    "sf_load": {"cp": "copy", "st": "store"},
}
"""Values of a field, by today's."""


def schedule_of(words: Mapping[str, Any]) -> wsdsl.Schedule | None:
    """In the words that this checkout knows."""
    known = {f.name for f in dataclasses.fields(wsdsl.Schedule)}
    given: dict[str, Any] = {}
    for name, value in words.items():
        if name == "order_barriers" and name not in known:
            continue  # Checkouts that know no such choice have none.
        field = name if name in known else OLD_FIELDS.get(name, name)
        given[field] = value
        names = OLD_VALUES.get(name, {})
        if names and not _takes(field, value):
            by_tensor = isinstance(value, Mapping)
            old = {k: names.get(v, v) for k, v in value.items()} if by_tensor else names[value]
            given[field] = old
    return wsdsl.Schedule(**given) if given else None


def _takes(field: str, value: Any) -> bool:
    try:
        wsdsl.Schedule(**{field: value})
    except wsdsl.ScheduleError:
        return False
    return True


def outcome(entry: Mapping[str, Any], ptx_of: Callable[..., str]) -> dict[str, Any]:
    """kind: "ptx", "refused" (its message is the text), or "crashed" (nobody may see that)."""
    started = time.process_time()
    try:
        schedule = schedule_of(entry["schedule"])
        given = entry["sizes"], entry["threads"], entry["padded"], entry.get("packed", ())
        text = ptx_of(entry["text"], schedule, *given)
        kind = "ptx"
    except Exception as error:
        told = isinstance(error, WsdslError) and type(error).__name__ in REFUSALS
        kind, text = "refused" if told else "crashed", f"{type(error).__name__}: {error}"
    seconds = time.process_time() - started
    return {"name": entry["name"], "kind": kind, "text": text, "seconds": seconds}


def main(compile_text: str) -> None:
    spec = importlib.util.spec_from_file_location("compile_text", compile_text)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.ptx_of(WARM, None, {}, "none", ())
    print(json.dumps({"package": wsdsl.__file__}), flush=True)
    for line in sys.stdin:
        print(json.dumps(outcome(json.loads(line), module.ptx_of)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
