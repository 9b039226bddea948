"""Write docs/rates.md from `Rates` and the shipped files: `python tools/rates_docs.py` (or
`make docs`).
"""

from __future__ import annotations

from pathlib import Path

from wsdsl.rates.files import RatesFile, shipped
from wsdsl.rates.rates import DESCRIBED

PAGE = Path(__file__).parent.parent / "docs" / "rates.md"
SHOWN = ("H200", "H100 SXM", "B200")

HEAD = """\
<!-- Made by `make docs` from wsdsl/rates; edit that. -->
# Rates of the machine

What the compiler's model of time goes by: a few numbers of the card, each with a unit, a meaning,
and a microbenchmark that measures it. Those of an H200 and an H100 SXM are shipped
(`wsdsl/rates/shipped`). A B200 has none that were measured, and kernels are not compiled for it.

    wsdsl.rates.rates_of(target)

gives those of a `Target`: measured on this machine by `wsdsl calibrate`, where there are such; else
those shipped of this card; else those of the shipped card that is nearest, scaled by its SMs and
the bandwidth of its memory. `Rates.origin` says which, `Rates.notice` what to do about it.

Cycles are those of an SM. What lies outside of it (L2, other SMs) has a clock of its own, which
does not fall when the tensor cores are busy: its cycles are `tensor_smem_clock` times nanoseconds,
so that they can be added to those of products. Memory and the start of kernels are told in
nanoseconds. A wgmma is one instruction of 64 rows, N columns, and 32 bytes of the contraction
(16 elements of 16 bits, 32 of 8, 8 of tf32). `Rates.tensor_cycles` has the law of its time: the
largest of what its columns take the tensor cores, what its operands take to be read from SMEM (2048
bytes of A, unless A is in registers, and 32 a column), and the least that any takes.

    wsdsl calibrate [BENCH …] [--out FILE] [--seconds 60] [--json]

measures them on this card in less than a minute, prints them beside those that are shipped, and
keeps them by device in `rates/` of the cache's folder (`WSDSL_CACHE_DIR`). Kernels that were chosen
by others are chosen anew. The microbenchmarks (`wsdsl/calibrate`) are kernels of PTX that run in a
process of their own. None can hang: what waits gives up after some time, and a process that says
nothing is ended; what it was about is left as it was, and told.

What L2 brings to CTAs that want the same lines, as those of a product do, no microbenchmark shows:
an SM has what its neighbour has just asked for, as long as they keep step, and CTAs that only load
do not. Rates that are "measured by" `products` are fitted to measured products, and go by
`l2_own_bytes` on another card.

A value with † was not measured on that card: it stands in a data sheet or a publication, was fitted
to kernels, or is an estimate. `source` of its row in the file says which.

"""


def page() -> str:
    files = {file.card.target: file for file in shipped()}
    cards = [files[name] for name in SHOWN]
    parts = [HEAD, f"| rate | unit | {' | '.join(SHOWN)} | meaning | measured by |\n"]
    parts.append(f"|---|---|{'---|' * len(SHOWN)}---|---|\n")
    for d in DESCRIBED:
        shown = " | ".join(_shown(card, d.name) for card in cards)
        parts.append(f"| `{d.name}` | {d.unit} | {shown} | {d.meaning} | `{d.bench}` |\n")
    return "".join(parts)


def _shown(file: RatesFile, name: str) -> str:
    value, source = file.values[name], file.sources[name]
    text = f"{value / 2**20:.0f} MiB" if name == "l2_capacity_bytes" else f"{value:.4g}"
    return text if source.startswith("measured by wsdsl calibrate") else f"{text} †"


if __name__ == "__main__":
    PAGE.write_text(page())
    print(f"wrote {PAGE}")
