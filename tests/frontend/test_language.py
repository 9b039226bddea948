"""Kernels by functions, text and files: what they are converted to, and what they give."""

import textwrap
from pathlib import Path

import numpy as np
import pytest

import wsdsl
from tests.corpus.texts import TEXTS as CORPUS
from wsdsl import bf16, dims, f32, function, index, kernel, tiles, where, zeros
from wsdsl.ir.ops import Constant, Contract, ForTiles
from wsdsl.ir.rewriter import walk
from wsdsl.ir.verify.verifier import verify

M, N, K = dims("M N K")
WIDTH = 0.5

TEXTS = {
    "attention": CORPUS["attention"][0],
    "grouped_gemm": CORPUS["grouped_rows"][0],
    "unweight_gemm": """
    @kernel
    def unweight_gemm(X: bf16[M, K], sign_mantissa: u8[N, K], exponent: u4[N, K],
                      palette: u8[16], Y: bf16[M, N]):
        for m, n in tiles(M, N):
            acc = zeros(f32[m, n])
            for k in tiles(K):
                sm = cast(sign_mantissa[n, k], u16)
                e = cast(lookup(palette, exponent[n, k]), u16)
                w = bitcast((sm & 0x80) << 8 | e << 7 | sm & 0x7F, bf16)
                acc += X[m, k] @ w
            Y[m, n] = acc
    """,
    "fp8_block_scaled": """
    @kernel
    def fp8_block_scaled(A: f8e4m3[M, K], B: f8e4m3[N, K], a_scale: f32[M, KB],
                         b_scale: f32[NB, KB], C: bf16[M, N]):
        for m, n in tiles(M, N):
            acc = zeros(f32[m, n])
            for k in tiles(K):
                b = B[n, k] * b_scale[index(n) // 128, index(k) // 128]
                acc += (A[m, k] * a_scale[m, index(k) // 128]) @ b
            C[m, n] = acc
    """,
}
MASKED = "* scale\n                s = where(index(q) >= index(t), s, -inf)"
TEXTS["causal_attention"] = (
    TEXTS["attention"].replace("tiles(T)", "tiles(0, end(q), of=T)").replace("* scale", MASKED)
)


@kernel
def gemm(A: bf16[M, K], B: bf16[N, K], C: bf16[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += A[m, k] @ B[n, k]
        C[m, n] = acc


@function
def masked(x, m, n):
    keep = where(index(n) < index(m), x, 0.0)
    return keep * WIDTH, keep


def nested_definition() -> wsdsl.Kernel:
    half = 0.5

    @kernel
    def inner(A: f32[M, N], C: f32[M, N], D: f32[M, N]):
        """Two outputs, by an inlined function and a captured number."""
        for m, n in tiles(M, N):
            C[m, n], D[m, n] = masked(A[m, n] + half, m, n)

    return inner


def source_of(name: str) -> str:
    lines = Path(__file__).read_text().splitlines()
    start = lines.index(f"def {name}(A: bf16[M, K], B: bf16[N, K], C: bf16[M, N]):")
    return "\n".join(["@kernel", *lines[start : start + 6]])


def test_function_string_and_file_are_one_kernel(tmp_path: Path) -> None:
    text = source_of("gemm")
    path = tmp_path / "gemm.ws"
    path.write_text(text)
    assert gemm.tile_ir == wsdsl.parse(text).gemm.tile_ir == wsdsl.load(path).gemm.tile_ir


def test_locations_point_into_the_users_file() -> None:
    product = next(op for op in walk(gemm.tile_ir.body) if isinstance(op, Contract))
    assert product.loc is not None
    assert product.loc.file == __file__
    line = Path(__file__).read_text().splitlines()[product.loc.line - 1]
    assert line == product.loc.text
    assert line[product.loc.column - 1 : product.loc.end - 1] == "A[m, k] @ B[n, k]"


def test_inlined_functions_and_captured_numbers() -> None:
    made = nested_definition()
    a = np.random.default_rng(0).standard_normal((9, 7)).astype(np.float32)
    c, d = made.reference(a)
    m, n = np.indices(a.shape)
    want = np.where(n < m, a + 0.5, 0).astype(np.float32)
    np.testing.assert_array_equal(d, want)
    np.testing.assert_array_equal(c, want * np.float32(0.5))


def test_a_temporary_of_two_loops_is_not_carried() -> None:
    text = """
    @kernel
    def f(A: f32[M], B: f32[N], C: f32[M], D: f32[N]):
        for m in tiles(M):
            x = A[m] * 2.0
            C[m] = x
        for n in tiles(N):
            x = B[n] * 3.0
            D[n] = x
    """
    made = wsdsl.parse(text).f.tile_ir
    assert all(not op.init for op in walk(made.body) if isinstance(op, ForTiles))


def test_literals_take_the_other_operands_type() -> None:
    text = """
    @kernel
    def f(A: f16[M], C: f16[M]):
        for m in tiles(M):
            C[m] = A[m] * 2 + 1e-3
    """
    made = wsdsl.parse(text).f.tile_ir
    assert {str(op.result.type) for op in walk(made.body) if isinstance(op, Constant)} == {"f16"}


def test_carried_through_two_loops_at_once() -> None:
    text = """
    @kernel
    def f(A: f32[M, N], C: f32[R]):
        for r in tiles(R):
            s = 0.0
            for m, n in tiles(M, N):
                s = s + sum(sum(A[m, n], over=m), over=n)
            C[r] = zeros(f32[r]) + s
    """
    a = np.arange(12, dtype=np.float32).reshape(3, 4)
    c = np.zeros(2, np.float32)
    wsdsl.parse(text).f.reference(a, c)
    np.testing.assert_array_equal(c, [66, 66])


@pytest.mark.parametrize(
    "step", ["acc = B[n, k] @ A[m, k] + acc", "acc = acc + B[n, k] @ A[m, k]", "acc = other"]
)
def test_the_order_of_axes_means_nothing(step: str) -> None:
    text = f"""
    @kernel
    def f(A: f32[M, K], B: f32[N, K], flag: i32, C: f32[M, N]):
        for m, n in tiles(M, N):
            acc, other = zeros(f32[m, n]), B[n, :] @ A[m, :]
            for k in tiles(K):
                {step}
            if flag > 0:
                acc = other
            C[m, n] = acc
    """
    made = wsdsl.parse(text).f
    verify(made.tile_ir)
    rng = np.random.default_rng(4)
    a, b = (rng.standard_normal((n, 7)).astype(np.float32) for n in (5, 3))
    for flag in (0, 1):
        c = np.zeros((5, 3), np.float32)
        made.reference(a, b, flag, c)
        np.testing.assert_allclose(c, a @ b.T, rtol=1e-5, atol=1e-5)


def test_carried_through_each_and_conditions() -> None:
    text = """
    @kernel
    def f(A: f32[E, M], pick: i32[E], C: f32[M], D: f32[M]):
        for m in tiles(M):
            s, t = zeros(f32[m]), full(f32[m], -inf)
            for e in each(E):
                x = A[e, m]
                if pick[e] == 1:
                    s += x
                elif pick[e] == 2:
                    t = max(t, x)
                    s -= 1.0
                else:
                    s *= 2.0
            C[m] = s
            D[m] = t
    """
    rng = np.random.default_rng(5)
    a, pick = rng.integers(-3, 9, (6, 4)).astype(np.float32), np.array([1, 2, 0, 1, 2, 5], np.int32)
    c, d = np.zeros(4, np.float32), np.zeros(4, np.float32)
    wsdsl.parse(text).f.reference(a, pick, c, d)
    np.testing.assert_array_equal(c, ((a[0] - 1) * 2 + a[3] - 1) * 2)
    np.testing.assert_array_equal(d, np.maximum(a[1], a[4]))


def test_an_axis_may_be_named_like_a_dimension() -> None:
    text = """
    @kernel
    def f(A: f32[M, K], B: f32[M, K], C: f32[M, M]):
        for m in tiles(M):
            for K in tiles(K):
                C[m, 0] += sum(A[m, K] * sum(B[m, :], over=K), over=K)
    """
    with pytest.raises(wsdsl.TypeCheckError, match="no axis `K__1`"):
        wsdsl.parse(text)


def test_all_that_a_file_may_hold() -> None:
    text = '''
    """A docstring."""
    from wsdsl import *
    import numpy as np

    M, N = dims("rows columns")
    EPS = -1e-3
    BIG = 0x_FF

    @function
    def half(x): return x * 0.5

    @kernel
    def f(A: f32[M, N], C: f32[M, 4]) -> None:
        for m in tiles(M):
            """Another one."""
            C[m, 3] = (half(
                sum(A[m, :],  # over all
                    over=N)
            ) + EPS) * \\
                BIG
    '''
    made = wsdsl.parse(textwrap.dedent(text)).f.tile_ir
    verify(made)
    assert str(made.params[0].type) == "tensor<f32[rows, columns]>"
    held = [op.value for op in walk(made.body) if isinstance(op, Constant) and op.value != 3]
    assert held == [0.5, -1e-3, 255.0]
