"""Wrong programs, and the message that each gets: where, what was expected, what to do."""

import pytest

import wsdsl

HEAD = "@kernel\ndef f(A: bf16[M, K], B: bf16[N, K], h: f16[M], s: f32[N], C: f32[M, N]):\n"


def body(*lines: str) -> str:
    return HEAD + "".join(f"    {line}\n" for line in lines)


MISTAKES = {
    "unknown": body("for m, n in tiles(M, N):", "    C[m, n] = accc"),
    "mean": body("for m, n in tiles(M, N):", "    acc = zeros(f32[m, n])", "    C[m, n] = ac"),
    "axis": body("for m, n in tiles(M, N):", "    C[n, m] = zeros(f32[m, n])"),
    "out_of_scope": body(
        "for m in tiles(M):",
        "    for n in tiles(N):",
        "        x = zeros(f32[m, n])",
        "    C[m, n] = x",
    ),
    "mix": body("for m, k in tiles(M, K):", "    x = A[m, k] + h[m]"),
    "floatint": body("for m, n in tiles(M, N):", "    C[m, n] = s[n] + index(n)"),
    "T": body("for m, n in tiles(M, N):", "    C[m, n] = A.T"),
    "newaxis": body("for m, n in tiles(M, N):", "    C[m, n] = s[:, None]"),
    "while": body("while True:", "    pass"),
    "return": body("return A"),
    "lambda": body("f = lambda x: x"),
    "and": body(
        "for m, n in tiles(M, N):", "    C[m, n] = where(s[n] > 0 and s[n] < 1, s[n], 0.0)"
    ),
    "chain": body("for m, n in tiles(M, N):", "    C[m, n] = where(0 < s[n] < 1, s[n], 0.0)"),
    "noaxis": body("for m, n in tiles(M, N):", "    C[m, n] = s[n] @ h[m]"),
    "missing_axis": body("for m, n in tiles(M, N):", "    C[m, n] = sum(s[n], over=m)"),
    "carry": body(
        "for m, n in tiles(M, N):",
        "    acc = zeros(f16[m, n])",
        "    for k in tiles(K):",
        "        acc += A[m, k] @ B[n, k]",
        "    C[m, n] = acc",
    ),
    "tiles_count": body("for m, n in tiles(M):", "    C[m, n] = s[n]"),
    "nostore": body("for m in tiles(M):", "    x = h[m]"),
    "rank": body("for m in tiles(M):", "    C[m] = h[m]"),
    "index_lacks": body(
        "for m, n in tiles(M, N):", "    for k in tiles(K):", "        C[m, n] = A[m, k]"
    ),
    "noann": "@kernel\ndef f(A, C: f32[M]):\n    for m in tiles(M):\n        C[m] = A[m]\n",
    "colon_int": "@kernel\ndef f(A: f32[M, 64], C: f32[M]):\n    for m in tiles(M):\n        C[m] = sum(A[m, :], over=m)\n",
    "missing_colon": "@kernel\ndef f(A: f32[M], C: f32[M])\n    C[m] = A[m]\n",
    "indent": "@kernel\ndef f(A: f32[M], C: f32[M]):\n    for m in tiles(M):\n      C[m] = A[m]\n     x = 1\n",
    "bracket": "@kernel\ndef f(A: f32[M], C: f32[M]):\n    for m in tiles(M):\n        C[m] = A[m\n",
    "empty": "",
    "decorator": "@kernl\ndef f(A: f32[M], C: f32[M]):\n    for m in tiles(M):\n        C[m] = A[m]\n",
    "bitcast": body("for m, n in tiles(M, N):", "    C[m, n] = bitcast(h[m], f32)"),
    "literal": body("for m, n in tiles(M, N):", "    C[m, n] = cast(h[m] * 1e9, f32)"),
    "two": body(
        "for m, n in tiles(M, N):",
        "    x = foo(s[n])",
        "    C[m, n] = s[n] // bar",
        "    C[n, m] = s[n]",
    ),
    "string": body("x = 'a'"),
    "dim_index": body("for m, n in tiles(M, N):", "    C[m, n] = s[N]"),
    "if_tile": body(
        "for m, n in tiles(M, N):",
        "    x = s[n]",
        "    if x > 0.0:",
        "        x = -x",
        "    C[m, n] = x",
    ),
    "print": body("for m, n in tiles(M, N):", "    print(s[n])", "    C[m, n] = s[n]"),
    "assign_tensor": body("C = A"),
    "div": body("for m, n in tiles(M, N):", "    C[m, n] = cast(index(m) / 2, f32)"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_message(name: str, golden) -> None:
    with pytest.raises((wsdsl.ParseError, wsdsl.TypeCheckError)) as caught:
        wsdsl.parse(MISTAKES[name], "f.ws")
    golden(f"{caught.value}\n")
