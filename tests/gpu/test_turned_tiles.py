"""Tensors that are written the other way round: every element is where it belongs, and no other is
written.
"""

from typing import Any

import pytest

from tests.lowering.turned_kernels import turned_kernel
from wsdsl import Schedule

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

TYPES = {
    "f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16, "i8": torch.int8,
    "u8": torch.uint8, "i16": torch.int16, "bool": torch.bool, "f8e4m3": torch.float8_e4m3fn,
}  # fmt: skip
ALIKE = [(name, name) for name in TYPES]
PAIRS = [*ALIKE, ("f32", "bf16"), ("bf16", "f32"), ("i8", "f32"), ("f32", "f8e4m3")]
SHAPES = [(1, 16), (128, 256), (136, 264), (129, 1000), (1000, 129), (4099, 1001), (1024, 2064)]


def drawn(shape: tuple[int, ...], dtype: str, *, padded: bool = False) -> Any:
    """Small numbers; in rows that begin at multiples of 16 elements if `padded`, with 7 behind."""
    low, high = (0, 2) if dtype == "bool" else (0, 17) if dtype[0] == "u" else (-8, 9)
    made = torch.randint(low, high, shape, device="cuda").float()
    if not padded:
        return made.to(TYPES[dtype])
    wide = torch.full((*shape[:-1], -(-shape[-1] // 16) * 16 + 16), 7.0, device="cuda")
    wide[..., : shape[-1]] = made
    return wide.to(TYPES[dtype])[..., : shape[-1]]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(("x", "y"), PAIRS)
def test_transposes(x: str, y: str, shape: tuple[int, int]) -> None:
    for padded in ((False, False), (True, False), (False, True), (True, True)):
        a = drawn(shape, x, padded=padded[0])
        b = drawn(shape[::-1], y, padded=padded[1])
        turned_kernel("transpose", x, y)(a, b)
        torch.cuda.synchronize()
        assert torch.equal(b.float(), a.float().t().to(TYPES[y]).float())
        if padded[1] and shape[1] > 1:
            behind = torch.as_strided(b, (shape[1] - 1, 16), (b.stride(0), 1), shape[0])
            assert bool((behind.float() == (y != "bool") * 6 + 1).all())


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_what_stands_between(shape: tuple[int, int]) -> None:
    m, n = shape
    a, z = drawn(shape, "bf16"), drawn((n, m), "bf16")
    u, v = drawn((n,), "f32"), drawn((m,), "f32")
    y, w = torch.empty_like(z), torch.empty_like(a)
    turned_kernel("scaled", "bf16", "bf16")(a, u, v, 3.0, y)
    assert torch.equal(y, (a.float() * u + 3 * v[:, None]).t().bfloat16())
    turned_kernel("added", "bf16", "bf16")(a, z, y)
    assert torch.equal(y, (a.float().t() + z.float()).bfloat16())
    turned_kernel("both", "bf16", "bf16")(a, z, y, w)
    total = a.float().t() + z.float()
    assert torch.equal(y, total.bfloat16()) and torch.equal(w, (2 * total).t().bfloat16())


@pytest.mark.parametrize("length", [64, 72, 130])
def test_more_axes(length: int) -> None:
    a = drawn((3, length, 5, 64), "f16")
    for name, order in (("heads", (0, 2, 1, 3)), ("keys", (0, 2, 3, 1))):
        wanted = a.permute(order).contiguous()
        made = torch.empty_like(wanted)
        turned_kernel(name, "f16", "f16")(a, made)
        assert torch.equal(made, wanted)
    b = drawn((5, length, 136), "bf16")
    made = torch.empty((5, 136, length), device="cuda", dtype=b.dtype)
    turned_kernel("batched", "bf16", "bf16")(b, made)
    assert torch.equal(made, b.mT)
    turned_kernel("inner", "bf16", "bf16")(b.transpose(0, 1).contiguous(), made)
    assert torch.equal(made, b.mT)


@pytest.mark.parametrize(
    "schedule",
    [
        Schedule(tile=dict(m=128, n=128)),
        Schedule(tile=dict(m=128, n=48), consumers=2),
        Schedule(tile=dict(m=64, n=32), consumers=2, consumer_split="n"),
        Schedule(tile=dict(m=64, n=16)),
        Schedule(scheduler="persistent"),
    ],
    ids=repr,
)
@pytest.mark.parametrize("dtype", ["i8", "bf16", "f32"])
def test_every_schedule_gives_the_same(dtype: str, schedule: Schedule) -> None:
    a = drawn((1000, 1304), dtype)
    made = torch.empty((1304, 1000), device="cuda", dtype=a.dtype)
    turned_kernel("transpose", dtype, dtype).compile(schedule, M=1000, N=1304)(a, made)
    assert torch.equal(made, a.t())
