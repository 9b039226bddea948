"""Vectors come by TMA: the right elements in every tile, whoever reads them, and from the slot of
that tile."""

from typing import Any

import pytest

from wsdsl import Schedule, parse

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

TEXT = """
@kernel
def scaled(
    A: {type}[M, K], B: {type}[N, K], rows: {vector}[M], columns: {vector}[N], C: {out}[M, N]
):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += A[m, k] @ B[n, k]
        C[m, n] = acc * cast(rows[m], f32) + cast(columns[n], f32)
"""
SCHEDULES = {
    "wide": Schedule(tile=dict(m=128, n=184), mode="cooperative"),
    "pingpong": Schedule(tile=dict(m=128, n=120), mode="pingpong"),
    "three": Schedule(tile=dict(m=192, n=104), mode="cooperative", consumers=3),
    "swapped": Schedule(tile=dict(m=40, n=128), mma_m="n"),
    "pairs": Schedule(tile=dict(m=64, n=72), consumers=1, cluster=dict(m=2)),
    "grid": Schedule(tile=dict(m=64, n=96), consumers=1, scheduler="grid"),
}
TYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("vector", TYPES)
@pytest.mark.parametrize("out", ["f32", "bf16"])
@pytest.mark.parametrize("type", ["f16", "f8e4m3"])
def test_every_element_has_its_factor_and_addend(
    name: str, vector: str, out: str, type: str
) -> None:
    kernel = parse(TEXT.format(type=type, vector=vector, out=out)).scaled
    torch.manual_seed(0)
    m, n, k = 2200, 3080, 272
    operand = torch.float16 if type == "f16" else torch.float8_e4m3fn
    a, b = ((torch.rand(size, k, device="cuda") - 0.5).to(operand) for size in (m, n))
    # Neighbours differ by more than the tolerance.
    rows = (torch.arange(m, device="cuda") % 13 - 6).to(TYPES[vector])
    columns = (torch.arange(n, device="cuda") % 201 - 100).to(TYPES[vector])
    c = torch.full((m, n), float("nan"), device="cuda").to(TYPES[out])
    wanted = a.double() @ b.double().t() * rows.double()[:, None] + columns.double()
    for _ in range(3):
        c.fill_(float("nan"))
        kernel(a, b, rows, columns, c, schedule=SCHEDULES[name])
        torch.cuda.synchronize()
        assert bool(((c.double() - wanted).abs() < 0.01 * wanted.abs() + 0.05).all())
