"""`wsdsl.kernels.matmul` in the simulator, against float64."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wsdsl
from tests.matmul_cases import BF16, F8, Maker, Options, array, check, every_pair
from wsdsl import Schedule
from wsdsl.codegen.ptxas import find_ptxas
from wsdsl.diagnostics import LaunchError
from wsdsl.kernels import matmul

PAIRS = list(every_pair())


@pytest.mark.sampled(12)
@pytest.mark.parametrize("options", PAIRS, ids=lambda o: "-".join(v or "_" for v in o.values()))
def test_every_option_with_every_other(options: Options) -> None:
    made = Maker(0, lambda x: x).call(options)
    got: Any = matmul(*made.args, **made.options)
    if options["out"]:
        assert got is made.options["out"]
    check(made, np.asarray(got).astype(np.float64), options)


def filled(*shape: int, dtype: Any = BF16) -> Any:
    return np.random.default_rng(1).standard_normal(shape).astype(dtype)


def close(got: Any, want: Any, allowed: float = 2.0**-8) -> bool:
    assert got.shape == want.shape
    return bool(np.linalg.norm(got.astype(np.float64) - want) <= allowed * np.linalg.norm(want))


def wide(x: Any) -> Any:
    return x.astype(np.float64)


# Which kernel it is -------------------------------------------------------------------------------

TEXTS: dict[str, tuple[tuple[Any, ...], dict[str, Any], str]] = {
    "plain": (
        (array(8, 16), array(24, 16).T),
        {},
        """
def matmul(A: bf16[M, K], B: bf16[N, K], out: bf16[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += A[m, k] @ B[n, k]
        out[m, n] = acc
""",
    ),
    "rows of several batches": (
        (array(2, 5, 8, 16), array(24, 16).T),
        {"bias": array(24), "activation": "silu"},
        """
def matmul(A: bf16[M, K], B: bf16[N, K], bias: bf16[N], out: bf16[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += A[m, k] @ B[n, k]
        out[m, n] = silu(acc + bias[n])
""",
    ),
    "block scales": (
        (array(200, 256, dtype=F8), array(136, 256, dtype=F8).T),
        {"scales": (array(2, 200, dtype=np.float32).T, array(2, 2, dtype=np.float32))},
        """
def matmul(
    A: f8e4m3[M, K], B: f8e4m3[N, K], scale_a: f32[KB, M], scale_b: f32[NB, KB], out: bf16[M, N]
):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            a = A[m, k] * scale_a[index(k) // 128, m]
            b = B[n, k] * scale_b[index(n) // 128, index(k) // 128]
            acc += a @ b
        out[m, n] = acc
""",
    ),
    "broadcast batches": (
        (array(7, 1, 8, 16), array(3, 16, 24)),
        {"residual": array(3, 8, 24, dtype=np.float32), "scales": (0.5, None)},
        """
def matmul(
    A: bf16[G, M, K], B: bf16[H, K, N], scale_a: f32, residual: f32[H, M, N], out: bf16[G, H, M, N]
):
    for g, h in each(G, H):
        for m, n in tiles(M, N):
            acc = zeros(f32[m, n])
            for k in tiles(K):
                acc += A[g, m, k] @ B[h, k, n]
            out[g, h, m, n] = acc * scale_a + residual[h, m, n]
""",
    ),
    "batches that are one": (
        (array(2, 3, 8, 16), array(2, 3, 24, 16).swapaxes(-1, -2)),
        {},
        """
def matmul(A: bf16[G, M, K], B: bf16[G, N, K], out: bf16[G, M, N]):
    for g in each(G):
        for m, n in tiles(M, N):
            acc = zeros(f32[m, n])
            for k in tiles(K):
                acc += A[g, m, k] @ B[g, n, k]
            out[g, m, n] = acc
""",
    ),
    "quantised": (
        (array(8, 16, dtype=np.int8), array(24, 16, dtype=np.int8).T),
        {"scales": (array(8, dtype=np.float32), array(24, dtype=np.float32)), "out_dtype": "i8"},
        """
def matmul(A: i8[M, K], B: i8[N, K], scale_a: f32[M], scale_b: f32[N], out: i8[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(i32[m, n])
        for k in tiles(K):
            acc += A[m, k] @ B[n, k]
        out[m, n] = round(cast(acc, f32) * scale_a[m] * scale_b[n])
""",
    ),
}


@pytest.mark.parametrize("name", TEXTS)
def test_the_text_is_what_one_would_write(name: str) -> None:
    args, options, text = TEXTS[name]
    assert matmul.plan(*args, **options).source == f"@kernel{text}"


def test_the_page_shows_these_texts() -> None:
    page = (Path(__file__).parents[1] / "docs" / "kernels.md").read_text()
    page = page.partition("\n## matmul")[2].partition("\n## ")[0]
    shown = re.findall(r"^```python\n@kernel(\n.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert len(shown) == 3
    assert set(shown) <= {text for _, _, text in TEXTS.values()}


def test_one_kernel_for_each_form() -> None:
    first = matmul.kernel(array(8, 16), array(24, 16).T)
    assert matmul.kernel(array(80, 32), array(40, 32), transpose_b=True) is first
    assert matmul.kernel(array(8, 16), array(16, 24)) is not first


def test_what_can_be_done_with_a_product() -> None:
    a, b = filled(72, 40), filled(48, 40)
    product = matmul.plan(a, b.T)
    assert product.sizes == dict(M=72, N=48, K=40)
    schedule = Schedule(tile=dict(m=64, n=32), consumers=1)
    assert product.compile(schedule).schedule.tile == dict(m=64, n=32, k=64)
    assert "partition compute" in product.explain()
    assert "no reachable deadlock" in str(product.prove(schedule))
    want = wide(a) @ wide(b).T
    assert close(product.simulate(schedule, seed=3), want)
    assert close(matmul(a, b.T, schedule=schedule), want)
    assert product.kernel.compile(M=4096, N=4096, K=64).ptx


# Shapes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("a", "b"),
    [((16,), (16,)), ((16,), (16, 24)), ((8, 16), (16,)), ((3, 8, 16), (16,)),
     ((16,), (3, 16, 24)), ((3, 1, 16), (16, 24)), ((5, 1, 1, 8, 16), (1, 2, 16, 24)),
     ((1, 1), (1, 1)), ((0, 16), (16, 24)), ((3, 8, 0), (0, 24)), ((0, 8, 16), (16, 24))],
)  # fmt: skip
def test_shapes_are_those_of_numpy(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    left, right = filled(*a), filled(*b)
    want = np.matmul(wide(left), wide(right))
    residual = filled(*want.shape, dtype=np.float32)
    got = matmul(left, right, residual=residual, out_dtype="f32")
    assert close(got, want + residual, 1e-5)


def test_batches_of_any_strides() -> None:
    a, b = filled(8, 3, 2, 16), filled(3, 24, 2, 16)
    left, right = a.transpose(1, 2, 0, 3), b.transpose(0, 2, 3, 1)
    assert close(matmul(left, right), wide(left) @ wide(right))


def test_expanded_operands() -> None:
    a, b = np.broadcast_to(filled(8, 16), (3, 8, 16)), np.broadcast_to(filled(1, 16), (24, 16)).T
    assert "A: bf16[M, K]" in matmul.plan(a, filled(3, 16, 24)).source
    assert close(matmul(a, b), wide(a) @ wide(b))


def test_scales_of_batches() -> None:
    a, b = filled(3, 8, 200, dtype=F8), filled(3, 24, 200, dtype=F8)
    rows, groups = filled(3, 8, dtype=np.float32), filled(3, 24, 2, dtype=np.float32)
    got = matmul(a, b, transpose_b=True, scales=(rows, groups))
    scaled = wide(b) * groups[:, :, np.arange(200) // 128]
    assert close(got, wide(a) * rows[:, :, None] @ scaled.swapaxes(1, 2))
    assert close(matmul(a, b, transpose_b=True, scales=(None, np.float32(0.5))),
                 0.5 * wide(a) @ wide(b).swapaxes(1, 2))  # fmt: skip


def test_scales_of_vectors_may_have_an_axis_of_one_beside_them() -> None:
    a, b = filled(2, 8, 264, dtype=F8), filled(24, 264, dtype=F8)
    rows, columns = filled(2, 8, dtype=np.float32), filled(24, dtype=np.float32)
    want = matmul(a, b.T, scales=(rows, columns))
    assert close(want, wide(a) @ wide(b).T * rows[..., None] * columns)
    for beside in (columns[None], columns[:, None]):
        got = matmul(a, b.T, scales=(rows[..., None], beside))
        assert np.array_equal(wide(got), wide(want))


def test_integers_have_vectors_where_floats_have_blocks() -> None:
    a, b = np.ones((8, 64), np.int8), np.ones((24, 64), np.int8)
    rows, columns = filled(8, dtype=np.float32), filled(24, dtype=np.float32)
    got = matmul(a, b.T, scales=(rows[:, None], columns[:, None]), out_dtype="f32")
    assert close(got, 64 * np.outer(rows, columns))
    three = filled(3, dtype=np.float32)
    a, b = np.ones((8, 264), np.int8), np.ones((3, 264), np.int8)
    assert close(
        matmul(a, b.T, scales=(None, three[None]), out_dtype="f32"), np.full((8, 1), 264) * three
    )


def test_what_may_be_two_kinds_is_the_kind_of_the_other() -> None:
    """[1, 8] of 8 columns and 1024 of K: one each, or one for each 128 of K."""
    a, b, s = filled(8, 1024, dtype=F8), filled(8, 1024, dtype=F8), filled(8, dtype=np.float32)
    plain = wide(a) @ wide(b).T
    assert close(matmul(a, b.T, scales=(s, s[None])), plain * np.outer(s, s))
    groups = filled(8, 8, dtype=np.float32)
    k = np.arange(1024) // 128
    want = wide(a) * groups[:, k] @ (wide(b) * s[k]).T
    assert close(matmul(a, b.T, scales=(groups, s[None])), want)


def test_scales_of_a_batch_outside_of_one_that_rows_take_up() -> None:
    a, b = filled(7, 5, 1, 64, dtype=F8), filled(24, 64, dtype=F8)
    scale = filled(7, 1, 1, dtype=np.float32)
    assert close(matmul(a, b.T, scales=(scale, None)), wide(a) @ wide(b).T * scale[:, None])


@pytest.mark.parametrize("dtype", [BF16, F8])
def test_empty_batches(dtype: Any) -> None:
    """NumPy gives them strides of 0."""
    a, b = np.zeros((0, 8, 16), dtype), np.zeros((0, 24, 16), dtype)
    assert matmul(a, b, transpose_b=True).shape == (0, 8, 24)
    assert matmul(a, b.swapaxes(1, 2)).shape == (0, 8, 24)


def test_what_is_beside_a_result_may_have_more_dimensions_of_one() -> None:
    a, b = filled(8, 16), filled(16, 24)
    bias, residual = filled(1, 24), filled(1, 8, 24)
    got = matmul(a, b, bias=bias, residual=residual)
    assert close(got, wide(a) @ wide(b) + wide(bias) + wide(residual)[0])


@pytest.mark.parametrize("kind", [np.int8, BF16])
def test_unsigned_results_are_added_exactly(kind: Any) -> None:
    a, b = np.ones((8, 64), kind), np.ones((64, 24), np.int8).astype(kind)
    a, b = (a, np.ascontiguousarray(b.T).T) if kind is np.int8 else (a, b)
    out = np.full((8, 24), 3_000_000_001, np.uint32)
    assert (matmul(a, b, out=out, accumulate=True) == 3_000_000_065).all()
    assert (matmul(-a, b, out=out, accumulate=True) == 3_000_000_001).all()


def test_numbers_are_one_factor_with_what_scales_the_other() -> None:
    a, b = filled(8, 16, dtype=F8), filled(24, 16, dtype=F8)
    one, columns = filled(1, dtype=np.float32), filled(24, dtype=np.float32)
    plan = matmul.plan(a, b.T, scales=(one, columns))
    assert "acc * (scale_a[0] * scale_b[n])" in plan.source
    assert close(plan.run(), wide(a) @ wide(b).T * one * columns)


def test_scales_of_weights_mean_the_same_beside_a_batch() -> None:
    """[1, 3] may be one block of three columns by three of K, or a batch of one scale a column."""
    a, b = filled(1, 8, 264, dtype=F8), filled(3, 264, dtype=F8)
    scales = None, filled(1, 3, dtype=np.float32)
    want = matmul(a[0], b.T, scales=scales)
    assert np.array_equal(wide(matmul(a, b.T, scales=scales)[0]), wide(want))
    assert close(want, wide(a[0]) @ (wide(b) * scales[1][:, np.arange(264) // 128]).T)


@pytest.mark.skipif(find_ptxas() is None, reason="there is no ptxas")
def test_what_is_compiled_does_not_spill() -> None:
    """128 x 192, which the simulator runs, does, with results by columns beside a bias."""
    a, bias = np.zeros((2048, 1024), BF16), np.zeros(2048, np.float32)
    residual = np.zeros((2048, 2048), np.float32).T
    product = matmul.plan(a, a.T, bias, "relu", residual, "f32")
    assert product.compile().resources.spill_store_bytes == 0


def test_saturation() -> None:
    a, b = np.full((8, 16), 20, BF16), np.full((16, 8), 20, BF16)
    assert (wide(matmul(a, b, out_dtype="f8e4m3")) == 448).all()
    assert (matmul(a, -b, out_dtype="i8") == -128).all()
    assert (matmul(a, -b, out_dtype=np.uint8) == 0).all()
    half = matmul(a[:, :1] * BF16(0.0625), b[:1] * BF16(0.125), out_dtype="i32")
    assert (half == 3).all(), "3.125 is rounded"


def test_names_of_types() -> None:
    a, b = array(8, 16), array(16, 8)
    for given in ("f32", "float32", wsdsl.f32, np.float32, np.dtype("float32")):
        assert matmul(a, b, out_dtype=given).dtype == np.float32
    assert matmul(a, b, out_dtype=BF16).dtype == BF16


def test_jax(import_optional: Any) -> None:
    jax: Any = import_optional("jax")
    a, b = filled(3, 8, 16), filled(24, 16)
    got = matmul(jax.numpy.asarray(a), jax.numpy.asarray(b), transpose_b=True)
    assert isinstance(got, jax.Array)
    assert close(np.asarray(got), wide(a) @ wide(b).T)


def test_constant_operands() -> None:
    a, b = filled(5, 72), filled(72, 40)
    product = matmul.plan(a, b, constant=("b",))
    assert product.compile().schedule.pdl_independent == ("B",)
    assert close(product.run(), wide(a) @ wide(b))
    assert matmul.plan(a, b).compile().schedule.pdl_independent is None
    both = matmul.plan(a, b, constant=["b"]).compile(Schedule(pdl_independent=("A",), consumers=1))
    assert both.schedule.pdl_independent == ("A", "B")
    assert close(matmul(a, b, constant=("a", "b")), wide(a) @ wide(b))
    wrong: tuple[Any, ...] = ("b", ("w",), ("bias",), 3, (3,))
    for given in wrong:
        with pytest.raises(LaunchError, match="expected names of a and b"):
            matmul(a, b, constant=given)


@pytest.mark.parametrize(("k", "copied"), [(2001, True), (2000, False)])
def test_copies_are_explained(k: int, copied: bool) -> None:
    a, b = (np.zeros((2000, k), BF16) for _ in range(2))
    assert ("copies of A, B to " in matmul.plan(a, b.T).explain()) == copied
