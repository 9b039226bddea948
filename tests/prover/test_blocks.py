"""One element for each block of columns: pieces of a tile store to places of their own."""

from __future__ import annotations

import wsdsl
from tests.case_table import matmul_text
from tests.prover.handshake import verdict
from wsdsl.ir.parser import parse_kernel

SCALES = matmul_text(
    "gemm(A: bf16[M, K], B: bf16[N, K], S: f32[M, NB])",
    "A[m, k] @ B[n, k]",
    "S[m, index(n) // 128] = max(abs(acc), over=n, per=128)",
)


def test_pieces_store_to_blocks_of_their_own() -> None:
    given = wsdsl.Schedule(tile=dict(m=64, n=256, k=64), consumers=1)
    kernel = vars(wsdsl.parse(SCALES))["gemm"]._compile(given, {}, ())
    text, second = str(kernel.scheduled), 'map(fn="add", args=(%block, %c1))'
    assert verdict(parse_kernel(text)) == "" and second in text
    both = text.replace(second, 'map(fn="mul", args=(%block, %c1))')
    assert verdict(parse_kernel(both)) != ""
