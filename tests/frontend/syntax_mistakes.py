"""Texts that are no kernels; tests/golden/test_mistakes/test_messages.txt has what each is told."""

from tests.frontend.mistakes import SMALL, block, body, calling

SYNTAX_MISTAKES = {
    "transpose": body("C[m, n] = A[m, :].T @ B[n, :]"),
    "new_axis": body("C[m, n] = r[m][:, None]"),
    "new_axis_of_a_tensor": body("C[m, n] = r[:, None]"),
    "none_as_index": body("C[m, n] = A[m, None]"),
    "while": block("while True:"),
    "return_in_a_loop": body("return 3"),
    "lambda": body("f = lambda x: x"),
    "and": body("C[m, n] = r[m] > 0 and r[m] < 3"),
    "not": body("C[m, n] = not r[m]"),
    "list_comprehension": body("C[m, n] = [i for i in r]"),
    "generator": body("C[m, n] = sum(i for i in r)"),
    "string": body("C[m, n] = 'hello'"),
    "chained_comparison": body("C[m, n] = where(0 < r[m] < 3, 1.0, 0.0)"),
    "defined_twice": SMALL + SMALL,
    "no_colon_after_def": SMALL.replace("]):", "])"),
    "no_colon_after_for": SMALL.replace("(M):", "(M)"),
    "indent": SMALL + "      C[m] = 1.0\n",
    "indent2": SMALL.replace("        C", "    C"),
    "indent3": SMALL + "          C[m] = 1.0\n",
    "bracket": SMALL.replace("(M):", "(M:"),
    "bracket2": SMALL.replace("1.0", "(1.0 + 2.0"),
    "bracket3": SMALL.replace("]):", "]:"),
    "close": SMALL.replace("1.0", "1.0)"),
    "empty": "",
    "blank": """\


""",
    "only_a_comment": """\
# hi
""",
    "unknown_decorator": SMALL.replace("kernel", "jit"),
    "no_decorator": SMALL.replace("@kernel\n", ""),
    "two_decorators": SMALL.replace("@kernel", "@kernel\n@function"),
    "slice": body("C[m, n] = A[m, 0:4]"),
    "hexx": body("C[m, n] = 0x_"),
    "assign_num": body("3 = x"),
    "nested_too_deeply": body("C[m, n] = " + "+".join(["alpha"] * 3000)),
    "ifexp": body("C[m, n] = 1.0 if alpha > 0 else 2.0"),
    "nonasc": body("é = 1.0"),
    "semi": body("a = 1.0; C[m, n] = a"),
    "pr": body("print(alpha)"),
    "imp": body("import os"),
    "defin": block("def f(x):"),
    "defl": SMALL.replace("[M])", "[M] = 3)"),
    "star": SMALL.replace("C: f32[M]", "*C"),
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
    "eqif": block("if alpha = 3:"),
    "top": """\
for m in tiles(M):
    pass
""",
    "top2": "x = foo(3)\n" + SMALL,
    "bare": "C[m] = 1",
    "retur": SMALL + "    return\n",
    "nobody": """\
@kernel
def k(C: f32[M]):
""",
    "bad_dims": 'M = dims("1M")\n' + SMALL,
    "count_of_dims": 'M, N = dims("M")\n' + SMALL,
    "unclosed_index": body("C[m, n = 1.0"),
    "wrong_bracket": body("C[m, n] = exp(alpha]"),
    "open_string": body("C[m, n] = 'abc"),
    "nothing_after_equal": body("C[m, n] ="),
    "two_values": body("C[m, n] = 1.0 2.0"),
    "nothing_in_parentheses": body("C[m, n] = ()"),
    "return_first": calling("return x", "y = 1.0"),
    "attribute_of_a_word": body("C[m, n] = A[m, :].mean()"),
    "word_of_a_module": body("C[m, n] = math.exp(alpha)"),
    "more_than_any_type": body("C[m, n] = alpha * 1e400"),
}
