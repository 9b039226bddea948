"""Kernels whose names, axes and types do not fit."""

from tests.frontend.mistakes import SMALL, block, body, calling

TYPE_MISTAKES = {
    "unknown": body("C[m, n] = acc"),
    "did_you_mean": body("C[m, n] = zeors(f32[m, n])"),
    "wrongaxis": body("C[n, m] = zeros(f32[m, n])"),
    "wrongaxis2": body("C[m, n] = sum(A[n, :], over=K)"),
    "axis_after": SMALL.replace("C[m] = 1.0", "x = C[m]") + "    C[m] = x\n",
    "mix": body("C[m, n] = sum(A[m, :] + H[n, :], over=K)"),
    "mix2": body("C[m, n] = cast(A[m, :], f32) + r[m]"),
    "mix3": body("C[m, n] = A[m, :] @ H[n, :]"),
    "no_annotation": SMALL.replace("C: f32", "A, C: f32"),
    "colon_on_a_size": body("C[m, n] = P[:]"),
    "index_lacks_an_axis": body("C[m, n] = A[m, :]"),
    "rank": body("C[m] = 0.0"),
    "rank2": body("C[m, n] = A[m]"),
    "dimension_as_index": body("C[m, n] = A[M, K]"),
    "product_without_shared_axis": body("""
C[m, n] = A[m, :] @ r[m]
C[m, n]= r[m] @ zeros(i32[n])
"""),
    "reduction_over_a_missing_axis": body("C[m, n] = sum(A[m, :], over=n)"),
    "over2": body("C[m, n] = sum(A[m, :], over=3)"),
    "over3": body("C[m,n] = sum(A[m, :])"),
    "carried_number_becomes_a_tile": body("""
acc = 0.0
for k in tiles(K):
    acc += A[m, k] @ B[n, k]
C[m, n] = acc
"""),
    "carried_dtype_changes": body("""
acc = zeros(bf16[m, n])
for k in tiles(K):
    acc += A[m, k] @ B[n, k]
C[m, n] = acc
"""),
    "name_of_one_branch": body("""
if alpha > 0:
    y = 1.0
C[m, n] = y
"""),
    "name_of_a_loop_used_after_it": body("""
for k in tiles(K):
    y = 1.0
C[m, n] = y
"""),
    "count": block("for k, l in tiles(K):"),
    "count2": block("for k in tiles(M, K):"),
    "notdim": block("for k in tiles(16):"),
    "notdim2": block("for k in each(r):"),
    "of": block("for k in tiles(0, 3, of=Q):"),
    "of2": block("for k in tiles(0, of=K):"),
    "of3": block("for k in each(0, 4, of=K):"),
    "by": body("""
for j in tiles(N, by=0):
    pass
for i, j in tiles(M, N, by=64):
    pass
for j in tiles(N, by=r[m]):
    pass
for j in each(N, by=64):
    pass
for j in tiles(0, 3, of=K, by=64):
    pass
C[m, n] = 0.0
"""),
    "range": block("for i in range(3):"),
    "loop_over_a_tensor": block("for i in r:"),
    "fulltile": body("C[m, n] = full(f32[m, n], cast(r[m], f32))"),
    "bitcast_width": body("C[m, n] = bitcast(r[m], bf16)"),
    "fit": body("C[m, n] = P[3] + 300"),
    "fit2": body("C[m, n] = r[m] + 1.5"),
    "fit3": body("C[m, n] = full(u8[m, n], -1)"),
    "castbig": body("C[m, n] = cast(300, u8)"),
    "castinf": body("C[m, n] = cast(inf, i32)"),
    "no_store": SMALL.replace("C[m] = 1.0", "x = C[m]"),
    "fold2": body("C[m, n] = (-1) ** 0.5"),
    "fold3": body("C[m, n] = 1 / 0"),
    "bigf": body("C[m, n] = 10 ** 400 * 1.0"),
    "bigf2": body("C[m, n] = cast(10 ** 400, f32)"),
    "assign_t": body("A = 3"),
    "twoval": body("a, b = 1.0"),
    "tup": body("a = 1.0, 2.0"),
    "kw": body("C[m, n] = exp(x=r[m])"),
    "args": body("C[m, n] = where(r[m] > 0, 1.0)"),
    "exp_i": body("C[m, n] = exp(r[m])"),
    "condtile": block("if r[m] > 0:"),
    "notcond": block("if n0:"),
    "effect": body("A[m, :] @ B[n, :]"),
    "dupax": body("C[m, n] = zeros(f32[m, m])"),
    "dupax2": SMALL.replace("[M]", "[M, M]").replace("C[m]", "C[m, m]"),
    "dupvar": """\
@kernel
def k(C: f32[M, M]):
    for m, m in tiles(M, M):
        C[m, m] = 1.0
""",
    "dimnone": """\
M, Z = dims('M Z')
@kernel
def k(C: f32[M]):
    for m in tiles(M):
        for z in tiles(Z):
            C[m] = 1.0
""",
    "axisval": body("C[m, n] = m"),
    "tensorval": body("C[m, n] = A"),
    "dimval": body("C[m, n] = A[m, :] @ K"),
    "kernelcall": """\
@kernel
def a(C: f32[M]):
    for m in tiles(M):
        C[m] = 1.0
@kernel
def b(C: f32[M]):
    a(C)
""",
    "recursion": calling("return f(x)"),
    "error_in_a_function_is_said_once": calling("y = zz + x", "return exp(y)")
    + "        C[m] = f(2.0)\n",
    "fnargs": calling("return exp(x)", given="1.0, 2.0"),
    "fnnone": calling("y = exp(x)"),
    "unknown_name_is_said_once": body("""
C[m, n] = zz
C[m, n] = zz + qq
for k in tiles(K):
    C[m, n] = zz
"""),
    "division_by_zero": body("C[m, n] = r[m] // 0"),
    "shift_too_far": body("C[m, n] = r[m] << 40"),
    "intdiv": body("C[m, n] = r[m] / 2"),
    "boolst": body("C[m, n] = r[m] > 0"),
    "matmulnum": body("C[m, n] = A[m, :] @ 2"),
    "subeq": body("C[m, n] -= 1.0"),
    "badtype": SMALL.replace("C: f32", "A: float[M], C: f32"),
    "bad_dimensions": SMALL.replace("C: f32[M]", "A: f32[M + 1], C: f32[0], D: f32[:]"),
    "unknown_type": SMALL.replace("C: f32", "A: f33[M], C: f32").replace("1.0", "A[m]"),
    "reuse": body("""
acc = zeros(f32[m, n])
for m in tiles(M):
    acc += sum(A[m, :] , over=m)
C[m, n] = acc
"""),
    "noparam": """\
@kernel
def k():
    pass
""",
    "idx": body("C[m, n] = index(M) + index(alpha)"),
    "lk": body("C[m, n] = lookup(A, r[m]) + lookup(P, alpha)"),
    "fl": body("C[m, n] = A[m, alpha]"),
    "axis_named_like_a_dimension": """\
@kernel
def k(A: f32[M, K], C: f32[M]):
    for m in tiles(M):
        s = zeros(f32[m])
        for K in tiles(K):
            s += sum(A[m, K] + A[m, :], over=K)
        C[m] = s
""",
    "fold": body("C[m, n] = 1 << 10000000000"),
    "power": body("C[m, n] = 2 ** 10000000"),
    "several_in_source_order": body("""
x = foo(alpha)
C[n, m] = alpha
for k in tiles(Q):
    y = bar
C[m, n] = A[m]
C[m, n] = x + y
"""),
    "axis_after_its_loop": SMALL.replace("[M])", "[M], D: f32[M])") + "    D[m] = 2.0\n",
    "float_and_scalar": body("C[m, n] = alpha * n0"),
    "merge_of_two_types": body("""
if alpha > 0:
    y = A[m, :]
else:
    y = alpha
C[m, n] = sum(y, over=K)
"""),
    "merge_of_two_axes": body("""
if alpha > 0:
    y = zeros(f32[m])
else:
    y = zeros(f32[n])
C[m, n] = y
"""),
    "tile_bound": block("for k in tiles(0, r[m], of=K):"),
    "bitcast_to_bool": body("C[m, n] = where(bitcast(P[3], bool), 1.0, 0.0)"),
    "add_to_bool": SMALL.replace("f32", "bool").replace("= 1.0", "+= True"),
    "element_type_as_function": body("C[m, n] = f32(r[m])"),
    "where_of_a_number": body("C[m, n] = where(1, 2.0, 3.0)"),
    "fma_of_integers": body("C[m, n] = fma(r[m], r[m], r[m])"),
    "unknown_keyword": body("C[m, n] = sum(A[m, :], axis=K)"),
    "axis_of_another_tensor": body("""
for k in tiles(K):
    C[m, n] = A[m, n]
"""),
    "type_of_a_tile": body("C[m, n] = f32[m, n]"),
    "call_of_a_value": body("C[m, n] = alpha(3)"),
    "index_of_a_value": body("""
y = A[m, :]
C[m, n] = y[0]
"""),
    "store_to_a_value": body("""
y = zeros(f32[m, n])
y[m, n] = 1.0
"""),
    "global_that_is_assigned_later": (
        "SIZE = 3\n" + SMALL.replace("1.0", "SIZE * 1.0") + "        SIZE = 4\n"
    ),
    "array_by_itself": body("C = A\nC[m, n] = 1.0"),
    "word_of_numpy": body("C[m, n] = isnan(alpha) + clamp(alpha, 0.0, 1.0)"),
    "no_word_at_all": body("C[m, n] = frobnicate(alpha)"),
    "more_than_a_float": body("""
C[m, n] = alpha * 1e300
C[m, n] = 1e200 * 1e200
"""),
    "less_than_a_float": body("""
C[m, n] = alpha * 1e-50
C[m, n] = 1e-200 * 1e-200
C[m, n] = cast(full(f16[m], 1e-8), f32)
"""),
    "index_outside": body("""
C[m, -1] = 0.0
P[16] = 0
C[m, n] = cast(P[index(n) + 1000] + P[16 + N % 4] + lookup(P, 16), f32)
C[m, n] = cast(P[max(r[m], 16)] + P[-1 - index(m)] + P[10 + 6], f32)
"""),
    "index_outside_of_any_size": body("""
C[m, N + 0] = 0.0
last = N * 2 - 1
C[m, last] = 0.0
C[m, n] = cast(P[M + 16], f32)
for e in each(N):
    C[m, e + N] = C[m, e - N] + C[index(m) - M, e] + C[m, N - 1 - e] + C[m, e + 1]
"""),
    "types_of_a_product": body("""
x = H[n, :]
C[m, n] = A[m, :] @ x
C[m, n] = cast(alpha, bf16) * A[m, :] @ H[n, :]
C[m, n] = exp(cast(A[m, :], f32)) @ B[n, :]
"""),
}
