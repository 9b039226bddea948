"""Names of loop variables and of locals change neither acceptance, nor the PTX, nor the tiles."""

import re

import pytest

from tests.corpus.compile_text import lowered
from tests.corpus.entries import Entry
from tests.corpus.texts import entries
from tests.kernels import CASES
from tools.ptx_diff import normalised
from wsdsl import Schedule

KERNELS = {
    "thin": Entry("thin", CASES["gemm"].text, dict(M=16, N=4096, K=4096)),
    "wide": Entry("wide", CASES["gemm"].text, dict(M=4096, N=16, K=4096)),
    **{e.name: e for e in entries() if e.name in (
        "attention/varlen/D=64", "grouped/i4",
        "backward/queries/D=64", "mlp/gated/H=1024/N=256/K=512", "mma/layernorm/N=1024",
        "memory_bound/softmax_in_place", "memory_bound/softmax_in_place/M=7/N=100000",
    )},
}  # fmt: skip
STYLES = {
    "numbers": ("i_{}", "acc_{}"),
    "clashes": ("acc_1__{}", "acc_1_{}"),
    "backwards": ("z{}", "acc{}_1"),
}


def compiled(entry: Entry, swap: dict[str, str]) -> tuple[list[str], dict[str, int]]:
    """The PTX without comments, and the tiles by the names of the original text."""
    text = re.sub(r"\b[a-z]\w*\b", lambda m: swap.get(m[0], m[0]), f"{entry.text}\n")
    made = lowered(text, None, entry.sizes, entry.threads, entry.padded)
    back = {new: old for old, new in swap.items()}
    lines = (line for line in normalised(made.ptx) if not line.startswith("//"))
    return [*lines], {back.get(name, name): size for name, size in made.schedule.tile.items()}


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("name", KERNELS)
def test_names_have_no_effect(name: str, style: str) -> None:
    entry, own = KERNELS[name], STYLES[style]
    head, _, body = entry.text.partition("):")
    found = (re.findall(rule, body, re.M) for rule in (r"for (.*) in", r"^ *([a-z][\w, ]*) \+?= "))
    loops, assigned = (dict.fromkeys(x for y in names for x in y.split(", ")) for names in found)
    fixed = {*re.findall(r"(\w+):", head)}
    swap = {n: own[1].format(i) for i, n in enumerate(assigned) if n not in fixed}
    count = len(loops)
    swap |= {n: own[0].format(count - i) for i, n in enumerate(loops) if n not in fixed}
    assert compiled(entry, swap) == compiled(entry, {})


@pytest.mark.parametrize("swap", [dict(m="m__1", k="m__1__1"), dict(m="k__1__1", n="k__1")])
def test_variables_like_numbered_axes_of_others(swap: dict[str, str]) -> None:
    assert compiled(KERNELS["thin"], swap) == compiled(KERNELS["thin"], {})


@pytest.mark.parametrize("tile", [{}, dict(m=4, c=512), dict(m=4, n=512), dict(n=512, c=512)])
def test_loops_of_rows_share_tiles_whatever_their_names(tile: dict[str, int]) -> None:
    entry = KERNELS["memory_bound/softmax_in_place"]
    given = {"n" if name == "c" else name: size for name, size in tile.items()}
    found, expected = (
        lowered(text, Schedule(tile=own or None), dict(M=64, N=8192), "none", ()).ptx
        for text, own in ((entry.text, tile), (re.sub(r"\b[ic]\b", "n", entry.text), given))
    )
    assert normalised(found) == normalised(expected)
