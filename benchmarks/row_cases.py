"""Kernels of `wsdsl.kernels` over rows, forward and backward, beside torch's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.bandwidth_case import Case

SIZES = ((16384, 8192), (16384, 4096), (65536, 1024), (1024, 65536))


def row_cases() -> Iterator[Case]:
    import torch

    from wsdsl import kernels

    f32, f = torch.float32, torch.nn.functional
    aten = torch.ops.aten

    def drawn(*shape: int, dtype: Any = torch.bfloat16) -> Any:
        return torch.randn(*shape, device="cuda", dtype=dtype)

    for m, n in SIZES:
        yield Case(
            f"layernorm {m}x{n}",
            lambda x, w, b, y: kernels.layernorm(x, w, b, 1e-5, out=y),
            lambda m=m, n=n: (drawn(m, n), drawn(n), drawn(n), drawn(m, n)),
            lambda x, w, b, y: f.layer_norm(x.float(), x.shape[1:], w.float(), b.float()),
            lambda x, w, b, y: f.layer_norm(x, x.shape[1:], w, b), 4 * m * n,
        )  # fmt: skip
        yield Case(
            f"rmsnorm_backward {m}x{n}",
            lambda g, x, w, r, d: kernels.rmsnorm_backward(g, x, w, r, out=d),
            lambda m=m, n=n: (
                drawn(m, n), drawn(m, n), drawn(n), drawn(m, dtype=f32).abs(), drawn(m, n)
            ),
            lambda g, x, w, r, d: _rmsnorm_backward(g.float(), x.float(), w.float(), r),
            lambda g, x, w, r, d: _rmsnorm_backward(g, x, w, r[:, None]).bfloat16(), 6 * m * n,
        )  # fmt: skip
        yield Case(
            f"softmax_backward {m}x{n}",
            lambda g, y, d: kernels.softmax_backward(g, y, out=d),
            lambda m=m, n=n: (drawn(m, n), torch.softmax(drawn(m, n), 1), drawn(m, n)),
            lambda g, y, d: (g.float() - (g.float() * y.float()).sum(1, True)) * y.float(),
            lambda g, y, d: aten._softmax_backward_data(g, y, 1, torch.bfloat16), 6 * m * n,
        )  # fmt: skip
        yield Case(
            f"weight_backward {m}x{n}",
            lambda g, x, r, d: d.copy_(kernels.rmsnorm_weight_backward(g, x, d, r)),
            lambda m=m, n=n: (drawn(m, n), drawn(m, n), drawn(m, dtype=f32).abs(), drawn(n)),
            lambda g, x, r, d: (g.float() * x.float() * r[:, None]).sum(0),
            lambda g, x, r, d: (g * x * r[:, None]).sum(0), 4 * m * n,
        )  # fmt: skip
    m, n = 8192, 128256
    yield Case(
        f"cross_entropy {m}x{n}",
        lambda x, t, y: y.copy_(kernels.cross_entropy(x, t, "none")),
        lambda: (drawn(m, n), torch.randint(n, (m,), device="cuda"), drawn(m, dtype=f32)),
        lambda x, t, y: f.cross_entropy(x.float(), t, reduction="none"),
        lambda x, t, y: f.cross_entropy(x, t, reduction="none"), 2 * m * n,
    )  # fmt: skip


def _rmsnorm_backward(g: Any, x: Any, w: Any, r: Any) -> Any:
    scale = r if r.ndim == 2 else r[:, None]
    g, x = g * w, x * scale
    return (g - x * (g * x).mean(1, True)) * scale
