"""Rules of lent tensors and of the grids whose tiles are cut: each objects, with a caret."""

import pytest

from tests.simulator.kernels import rejected, sample_text
from wsdsl.ir.parser import parse_kernel
from wsdsl.ir.verify.verifier import verify

TEXT = sample_text("stream_k")
PARTIALS = "%partials: tensor<f32[partials_lines, 128]> = allocate_global(each=128, fragments=True)"
GRID = 'scheduler="stream_k", contraction=(("K", 64),)'

BROKEN = {
    "none": ("each=128,", "each=0,", "each=0 must be 1 or more"),
    "a cluster": (f"{GRID})", f"{GRID}, cluster=4)", "of the 4 CTAs"),
    "whole tiles": ('scheduler="stream_k"', 'scheduler="persistent"', "a workspace needs"),
    "no contraction": (GRID, 'scheduler="stream_k"', '"stream_k" splits one dimension'),
    "two contractions": ('(("K", 64),)', '(("K", 64), ("M", 64))', "splits one dimension"),
    "no splits": ('"stream_k"', '"split_k"', "the number of splits"),
    "a number": ("f32[partials_lines, 128]", "f32[512, 128]", "a unique name"),
    "a parameter's": ("partials_lines", "M", "a unique name"),
    "another's": ("partials_lines", "flags_lines", "a unique name"),
    "columns": ("partials_lines, 128]", "partials_lines, N]", "must be numbers"),
    "lines of no block": ("each=128,", "each=96,", "a multiple of 64 rows"),
    "columns of no block": ("partials_lines, 128]", "partials_lines, 130]", "a multiple of 8"),
    "one line": ("f32[partials_lines, 128]", "f32[partials_lines]", "has 2 entries"),
    "flags of fragments": ("zeroed=True)", "zeroed=True, fragments=True)", "a multiple of 8"),
    "one element": (
        "    fence_mbarrier_init()\n",
        "fence_mbarrier_init()\n %one: f32 = load_global(tensor=%partials, index=(%c0, %c0))\n",
        "accessed in blocks",
    ),
    "in a region": (
        "    fence_mbarrier_init()\n",
        "    fence_mbarrier_init()\n    %more: tensor<f32[more]> = allocate_global(each=1)\n",
        "outside of any region",
    ),
}


def test_the_sample_holds() -> None:
    verify(parse_kernel(TEXT))
    twice = f"each=2, zeroed=True)\n  {PARTIALS.replace('partials', 'others')}"
    assert "each=2, zeroed=True)" in TEXT
    verify(parse_kernel(TEXT.replace("each=2, zeroed=True)", twice)))


@pytest.mark.sampled
@pytest.mark.parametrize("name", BROKEN)
def test_broken(name: str) -> None:
    rejected(TEXT, *BROKEN[name], count=1)
