"""Texts that are no kernels; tests/golden/test_mistakes/test_messages.txt has what each is told."""

from __future__ import annotations

from tests.frontend.mistakes import body

SYNTAX_MISTAKES = {
    "transpose": body("C[m, n] = A[m, :].T @ B[n, :]"),
    "new_axis": body("C[m, n] = r[m][:, None]"),
    "new_axis_of_a_tensor": body("C[m, n] = r[:, None]"),
    "none_as_index": body("C[m, n] = A[m, None]"),
    "while": body("""
while True:
    pass
"""),
    "return_in_a_loop": body("return 3"),
    "lambda": body("f = lambda x: x"),
    "and": body("C[m, n] = r[m] > 0 and r[m] < 3"),
    "not": body("C[m, n] = not r[m]"),
    "list_comprehension": body("C[m, n] = [i for i in r]"),
    "generator": body("C[m, n] = sum(i for i in r)"),
    "string": body("C[m, n] = 'hello'"),
    "chained_comparison": body("C[m, n] = where(0 < r[m] < 3, 1.0, 0.0)"),
    "defined_twice": """\
@kernel
def k(C: f32[M]):
    for m in tiles(M):
        C[m] = 0.0
@kernel
def k(C: f32[M]):
    for m in tiles(M):
        C[m] = 0.0
""",
    "no_colon_after_def": """\
@kernel
def k(C: f32[M])
    for m in tiles(M):
        C[m] = 0.0
""",
    "no_colon_after_for": """\
@kernel
def k(C: f32[M]):
    for m in tiles(M)
        C[m] = 0.0
""",
    "indent": """\
@kernel
def k(C: f32[M]):
    for m in tiles(M):
        C[m] = 0.0
      C[m] = 1.0
""",
    "indent2": """\
@kernel
def k(C: f32[M]):
    for m in tiles(M):
    C[m] = 0.0
""",
    "indent3": """\
@kernel
def k(C: f32[M]):
    for m in tiles(M):
        x = 1.0
          C[m] = x
""",
    "bracket": """\
@kernel
def k(C: f32[M]):
    for m in tiles(M:
        C[m] = 0.0
""",
    "bracket2": """\
@kernel
def k(C: f32[M]):
    for m in tiles(M):
        C[m] = (1.0 + 2.0
""",
    "bracket3": """\
@kernel
def k(C: f32[M]:
    for m in tiles(M):
        C[m] = 1.0
""",
    "close": """\
@kernel
def k(C: f32[M]):
    for m in tiles(M):
        C[m] = 1.0)
""",
    "empty": "",
    "blank": """\


""",
    "only_a_comment": """\
# hi
""",
    "unknown_decorator": """\
@jit
def k(C: f32[M]):
    for m in tiles(M):
        C[m] = 1.0
""",
    "no_decorator": """\
def k(C: f32[M]):
    for m in tiles(M):
        C[m] = 1.0
""",
    "two_decorators": """\
@kernel
@function
def k(C: f32[M]):
    for m in tiles(M):
        C[m] = 1.0
""",
    "slice": body("C[m, n] = A[m, 0:4]"),
    "hexx": body("C[m, n] = 0x_"),
    "assign_num": body("""
3 = x

"""),
    "nested_too_deeply": body("C[m, n] = " + "+".join(["alpha"] * 3000)),
    "ifexp": body("C[m, n] = 1.0 if alpha > 0 else 2.0"),
    "nonasc": body("é = 1.0"),
    "semi": body("a = 1.0; C[m, n] = a"),
    "pr": body("""
print(alpha)
C[m, n] = 0.0
"""),
    "imp": body("import os"),
    "defin": body("""
def f(x):
    return x
"""),
    "defl": """\
@kernel
def k(C: f32[M] = 3):
    pass
""",
    "star": """\
@kernel
def k(*C):
    pass
""",
    "elsefor": body("""
for k in tiles(K):
    pass
else:
    pass
"""),
    "annot": body("a: f32 = 1.0"),
    "walrus": body("C[m, n] = (a := 1.0)"),
    "dict": body("a = {}"),
    "lst": body("a = [1, 2]"),
    "attr": body("C[m, n] = A[m, :].sum()"),
    "attr2": body("C[m, n] = A.shape[0]"),
    "eqif": body("""
if alpha = 3:
    pass
"""),
    "top": """\
for m in tiles(M):
    pass
""",
    "top2": """\
x = foo(3)
@kernel
def k(C: f32[M]):
    for m in tiles(M):
        C[m] = 0.0
""",
    "bare": "C[m] = 1",
    "retur": """\
@kernel
def k(C: f32[M]):
    return
""",
    "nobody": """\
@kernel
def k(C: f32[M]):
""",
    "bad_dims": """\
M = dims("1M")
@kernel
def k(C: f32[M]):
    for m in tiles(M):
        C[m] = 0.0
""",
    "count_of_dims": """\
M, N = dims("M")
@kernel
def k(C: f32[M]):
    for m in tiles(M):
        C[m] = 0.0
""",
    "unclosed_index": body("C[m, n = 1.0"),
    "wrong_bracket": body("C[m, n] = exp(alpha]"),
    "open_string": body("C[m, n] = 'abc"),
    "nothing_after_equal": body("C[m, n] ="),
    "two_values": body("C[m, n] = 1.0 2.0"),
    "nothing_in_parentheses": body("C[m, n] = ()"),
    "return_first": """\
@function
def f(x):
    return x
    y = 1.0
@kernel
def k(C: f32[M]):
    for m in tiles(M):
        C[m] = f(1.0)
""",
    "attribute_of_a_word": body("C[m, n] = A[m, :].mean()"),
    "word_of_a_module": body("C[m, n] = math.exp(alpha)"),
    "more_than_any_type": body("C[m, n] = alpha * 1e400"),
}
