"""Kernels of all kinds, with sizes: what the model of schedules is held against (`predictions`)."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

PRODUCT = """
@kernel
def {name}({a}, {b}, {more}C: {out}[M, N]):
    for m, n in tiles(M, N):
        acc = zeros({sums}[m, n])
        for k in tiles(K):
            acc += {product}
        C[m, n] = {result}
"""
ATTENTION = """
@kernel
def attention(
    Q: bf16[B, H, S, D], K: bf16[B, H, {t}, D], V: bf16[B, H, {t}, D], Y: bf16[B, H, S, D],
    scale: f32,
):
    for b, h in each(B, H):
        for q in tiles(S):
            top, total, acc = full(f32[q], -inf), zeros(f32[q]), zeros(f32[q, D])
            for t in tiles({keys}):
                s = {scores}
                new_top = max(top, max(s, over=t))
                p, shrink = exp2(s - new_top), exp2(top - new_top)
                total = total * shrink + sum(p, over=t)
                acc = acc * shrink + cast(p, bf16) @ V[b, h, t, :]
                top = new_top
            Y[b, h, q, :] = acc / total
"""
ELEMENTWISE = """
@kernel
def {name}(X: {kind}[M, N], Z: {kind}[M, N], bias: f32[N], Y: {kind}[M, N]):
    for m, n in tiles(M, N):
        x, z = cast(X[m, n], f32), cast(Z[m, n], f32)
        Y[m, n] = {result}
"""
ROWS = """
@kernel
def {name}(X: {kind}[M, N], weight: f32[N], Y: {kind}[M, N]):
    for m in tiles(M):
        {before}
        for n in tiles(N):
            x = cast(X[m, n], f32)
            {inside}
        for n in tiles(N):
            Y[m, n] = {result}
"""


@dataclass(frozen=True)
class Case:
    """`family`: product, layout, types, fused, decoded, chain or plain."""

    name: str
    family: str
    text: str
    sizes: Mapping[str, int]


def cases() -> list[Case]:
    return list(_cases(random.Random(0)))


def products(count: int, seed: int) -> list[Case]:
    """Of shapes that are drawn, beside those of `cases`."""
    rng = random.Random(seed)
    named = {case.name: case for case in (_drawn(rng) for _ in range(count))}
    return list(named.values())


def _drawn(rng: random.Random) -> Case:
    size = [8 * round(2 ** rng.uniform(*span) / 8) for span in ((3, 13), (8, 14.5), (9, 14))]
    m, n, k = size[0] if size[0] > 16 else rng.randint(1, 16), size[1], size[2]
    return product_case("bf16", "product", (m, n, k))


def _cases(rng: random.Random) -> Iterator[Case]:
    for m, n, k in _shapes(rng):
        yield product_case(f"bf16 {m}x{n}x{k}", "product", (m, n, k))
    for layout in ("nn", "nt", "tn"):
        yield product_case(f"bf16 {layout}", "layout", _square(rng), layout=layout)
    yield product_case("bf16 rows amid lines", "layout", (2056, 2056, 2056))
    yield product_case("bf16 K amid lines", "layout", (4096, 2048, 4104))
    for kind in ("f8e4m3", "i8", "f16"):
        yield product_case(kind, "types", _square(rng), kind=kind)
        yield product_case(f"{kind} thin", "types", (32, rng.choice((4096, 7168)), 4096), kind=kind)
    for name, (more, result) in EPILOGUES.items():
        shape = _square(rng)
        yield product_case(name, "fused", shape, name=name, more=more, result=result)
    for m in (16, 256, 2048):
        yield product_case(f"i8 weights {m}", "decoded", (m, 4096, 4096), decoded=True)
    for d in (64, 128):
        for causal in (False, True):
            for keys in (2048, 8192) if d == 128 else (4096,):
                yield _attention(d, keys, causal)
    for m, n in ((4096, 4096), (16384, 8192), (512, 65536), (300, 1000)):
        for kind in ("bf16", "f32"):
            yield _elementwise(m, n, kind, "x + z + bias[n]", "add")
        yield _elementwise(m, n, "bf16", "gelu(x + bias[n]) * z", "gelu_mul")
        yield _rows(m, n, "bf16", "rmsnorm")
        yield _rows(m, n, "f32", "softmax")


def _shapes(rng: random.Random) -> Iterator[tuple[int, int, int]]:
    yield from ((4096, 4096, 4096), (8192, 8192, 8192), (1024, 2304, 4096), (16, 28672, 8192))
    for _ in range(26):
        m = rng.choice((1, 16, 48, 128, 300, 512, 1000, 2048, 3000, 4096, 8192))
        n, k = (rng.choice((512, 1024, 1536, 2560, 4096, 5120, 7168, 11008, 14336)) for _ in "nk")
        yield m, n, k


def _square(rng: random.Random) -> tuple[int, int, int]:
    m, n, k = (rng.choice((1024, 1536, 2048, 4096)) for _ in range(3))
    return m, n, k


EPILOGUES = {
    "bias_gelu": ("bias: f32[N], ", "gelu(acc + bias[n])"),
    "residual": ("R: bf16[M, N], ", "acc + cast(R[m, n], f32)"),
    "scaled_rows": ("rows: f32[M], bias: f32[N], ", "tanh(acc * rows[m] + bias[n])"),
    "silu_mul": ("R: bf16[M, N], ", "silu(acc) * cast(R[m, n], f32)"),
}


def product_case(
    label: str,
    family: str,
    shape: tuple[int, int, int],
    kind: str = "bf16",
    layout: str = "tn",
    name: str = "product",
    more: str = "",
    result: str = "acc",
    decoded: bool = False,
) -> Case:
    m, n, k = shape
    a, b = ("M, K", "m, k") if layout[0] == "t" or layout == "nn" else ("K, M", "k, m")
    c, d = ("N, K", "n, k") if layout == "tn" else ("K, N", "k, n")
    weights = "i8" if decoded else kind
    second = f"cast(B[{d}], bf16)" if decoded else f"B[{d}]"
    text = PRODUCT.format(
        name=name,
        a=f"A: {kind}[{a}]",
        b=f"B: {weights}[{c}]",
        more=more,
        out={"i8": "i32", "f8e4m3": "bf16"}.get(kind, kind),
        sums="i32" if kind == "i8" else "f32",
        product=f"A[{b}] @ {second}",
        result=result,
    )
    return Case(f"{label} {m}x{n}x{k}", family, text, dict(M=m, N=n, K=k))


_SCORES = "(Q[b, h, q, :] @ K[b, h, t, :]) * scale"


def _attention(d: int, length: int, causal: bool) -> Case:
    text = ATTENTION.format(
        t="S" if causal else "T",
        keys="0, end(q), of=S" if causal else "T",
        scores=f"where(index(q) >= index(t), {_SCORES}, -inf)" if causal else _SCORES,
    )
    sizes = dict(B=2 if length > 2048 else 4, H=16, S=length, D=d)
    sizes |= {} if causal else {"T": length}
    return Case(f"attention {d} {length}{' causal' if causal else ''}", "chain", text, sizes)


def _elementwise(m: int, n: int, kind: str, result: str, name: str) -> Case:
    text = ELEMENTWISE.format(name=name, kind=kind, result=result)
    return Case(f"{name} {kind} {m}x{n}", "plain", text, dict(M=m, N=n))


def _rows(m: int, n: int, kind: str, name: str) -> Case:
    if name == "rmsnorm":
        parts = {
            "before": "squares = zeros(f32[m])",
            "inside": "squares += sum(x * x, over=n)",
            "result": "cast(X[m, n], f32) * rsqrt(squares / cast(N, f32) + 1e-6) * weight[n]",
        }
    else:
        parts = {
            "before": "top, total = full(f32[m], -inf), zeros(f32[m])",
            "inside": (
                "new = max(top, max(x, over=n))\n            "
                "total = total * exp(top - new) + sum(exp(x - new), over=n)\n            "
                "top = new"
            ),
            "result": "exp(cast(X[m, n], f32) - top) / total * weight[n]",
        }
    text = ROWS.format(name=name, kind=kind, **parts)
    return Case(f"{name} {kind} {m}x{n}", "plain", text, dict(M=m, N=n))
