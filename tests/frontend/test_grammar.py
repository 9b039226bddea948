"""The parser's tables: up to date, quickly loaded, and only when something is parsed."""

import json
import subprocess
import sys

import lark
import pytest

from wsdsl.frontend import grammar


def test_tables_are_up_to_date() -> None:
    held = json.loads(grammar.TABLES.read_text())
    if held["lark"] != lark.__version__:
        pytest.skip("made by another lark; the parser is built in memory")
    assert held["key"] == grammar.key(), "run python -m wsdsl.frontend.grammar"


def test_built_and_loaded_parsers_agree() -> None:
    text = "@kernel\ndef f(C: f32[M]):\n    for m in tiles(M):\n        C[m] = -1.0 ** 2\n"
    loaded, layout = grammar.parser()
    layout.base = 0  # of who has parsed before
    assert loaded.parse(text) == grammar.build().parse(text)


TIMED = """
import sys, time
import wsdsl
assert not {"numpy", "lark", "llvmlite", "cuda", "torch"} & {*sys.modules}, "imported with wsdsl"
import wsdsl.frontend.from_source
text = '''
@kernel
def gemm(A: bf16[M, K], B: bf16[N, K], C: bf16[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += A[m, k] @ B[n, k]
        C[m, n] = acc
'''
for _ in range(2):
    start = time.process_time()
    wsdsl.frontend.from_source.from_text(text)
    print(time.process_time() - start)
"""


def test_first_and_second_parse_are_quick() -> None:
    done = subprocess.run(
        [sys.executable, "-c", TIMED], capture_output=True, text=True, check=True
    ).stdout.split()
    cold, warm = map(float, done)
    # Measured: 0.02 and 0.003 s; the first is 0.2 s when the tables are not used.
    assert cold < 0.12 and warm < 0.03
