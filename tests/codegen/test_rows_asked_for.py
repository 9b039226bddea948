"""Rows that are rarely loaded: the loads, and the registers of skipped rows."""

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.case_table import matmul_text
from tests.codegen.run_warp import run_warp
from tests.codegen.support import kernel_of
from tests.codegen.test_register_operands import operand_of
from wsdsl import Schedule, parse
from wsdsl.ir.ops import LoadGlobal

ROWS = """
%own: i32 = constant(value={kept})
%kept: frag<bool[64x1]> = map(fn="lt", args=(%r, %own))
%places: frag<i32[64x64]> = map(fn="add", args=(%r, %c))
%held: frag<{{dtype}}[64x64]> = load_global(tensor=%T, index=(%places,){only})
%s: frag<{{dtype}}[64x1]> = load_global(tensor=%S, index=(%r,))
%scaled: frag<{{dtype}}[64x64]> = map(fn="mul", args=(%x, %s))
%cast: frag<{{dtype}}[64x64]> = map(fn="where", args=(%kept, %held, %scaled))
"""


@pytest.mark.sampled
@pytest.mark.parametrize("kept", [0, 1, 11, 64])
@pytest.mark.parametrize("only", ["", ", only=%kept"])
@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16])
def test_rows_from_elsewhere(kept: int, dtype: Any, only: str) -> None:
    """Loads past the end of the tensor are 0."""
    rng = np.random.default_rng(kept)
    lines, s, t = (rng.standard_normal(n).astype(dtype) for n in ((16, 64), 64, 64))
    made = ROWS.format(kept=kept, only=only)
    found = operand_of(lines, dtype, "packed128", made, s, t)
    scaled = lines.astype(np.float32) * s[:16, None].astype(np.float32)
    places = np.arange(16)[:, None] + np.arange(64)
    held = np.concatenate([t, np.zeros(64, dtype)])[places]
    wanted = np.where(np.arange(16)[:, None] < kept, held, scaled.astype(dtype))
    assert found.tobytes() == wanted.tobytes()


TEXT = matmul_text(
    "chosen(X: bf16[M, K], W: i8[N, K], at: i32[N], V: bf16[R, K], Y: f32[M, N])",
    "X[m, k] @ where(at[n] >= 0, V[at[n], k], cast(W[n, k], bf16))",
    "Y[m, n] = acc",
)


OUTSIDE = """
%c0: i32 = constant(value=0)
%c4: i32 = constant(value=4)
%r: frag<i32[64x1]> = iota(start=%c0)
%c: frag<i32[1x32]> = iota(start=%c0)
%kept: frag<bool[64x1]> = map(fn="ge", args=(%r, %c4))
%held: frag<DTYPE[64x32]> = load_global(tensor=%T, index=(%r, %c), vector=2, only=%kept)
%x: frag<DTYPE[64x32]> = load_global(tensor=%X, index=(%r, %c), vector=2)
%chosen: frag<DTYPE[64x32]> = map(fn="where", args=(%kept, %held, %x))
store_global(tensor=%Y, index=(%r, %c), value=%chosen, vector=2)
"""
PARAMS = "%T: tensor<DTYPE[R, 32]>, %X: tensor<DTYPE[N, 32]>, %Y: tensor<DTYPE[N, 32]>"


@pytest.mark.parametrize("dtype", ["bf16", "u8"])
def test_rows_outside_are_0_if_they_are_asked_for(dtype: str) -> None:
    kind = np.dtype(np.uint8 if dtype == "u8" else np.uint16)
    t, x = np.random.default_rng(0).integers(1, 256, (2, 16, 32)).astype(kind)
    kernel = kernel_of(OUTSIDE.replace("DTYPE", dtype), PARAMS.replace("DTYPE", dtype))
    given, size = dict(T=t[:9], X=x), x.nbytes
    found = run_warp(kernel, dict(R=9, N=16), given, "Y", size)
    t[9:], t[:4] = 0, x[:4]
    assert bytes(found) == t.tobytes()


def test_each_row_has_a_predicate() -> None:
    """Pairs of columns, before the loop and in it, without divergent branches."""
    text = TEXT.replace("R, K]", "R, 64]").replace("V[at[n], k]", "V[at[n], index(k) % 64]")
    (own,) = vars(parse(text)).values()
    schedule = Schedule(consumers=1, tile=dict(m=16, n=64, k=64))
    ptx = own.compile(schedule, M=16, N=128, K=256).ptx
    of_pairs, of_places = 2 * 16, 2
    loads = re.findall(r"@%p\d+ ld\.global(?:\.nc)?\.b32", ptx)
    assert len(loads) == of_pairs + of_places
    assert "vote" not in ptx


def test_values_with_other_uses_are_loaded_for_all_rows() -> None:
    text = TEXT.replace("V: bf16[R, K]", "V: bf16[R, K], S: f32[N]")
    text = text.replace("            acc +=", "            held = V[at[n], k]\n            acc +=")
    text = text.replace("V[at[n], k], cast", "held, held + cast")
    (own,) = vars(parse(text)).values()
    made = own.compile(Schedule(consumers=1), M=16, N=128, K=256).scheduled
    assert all(op.only is None for op in made.of(LoadGlobal))
