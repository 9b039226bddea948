"""Packed weights on the GPU: packed there, multiplied, the same as weights that are not."""

from typing import Any

import pytest

from tests.test_packing import SCHEDULES, TEXT, kernel
from wsdsl import Schedule

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

SIZES = [(16, 128, 192), (40, 200, 136), (1, 65, 8), (130, 4160, 1096)]
DTYPES = {"i8": "int8", "u8": "uint8", "f16": "float16", "f8e4m3": "float8_e4m3fn"}


def random(name: str, *shape: int, seed: int = 0) -> Any:
    own = torch.Generator(device="cuda").manual_seed(seed)
    if name in ("i8", "u8"):
        least = -128 if name == "i8" else 0
        dtype = getattr(torch, DTYPES[name])
        return torch.randint(least, least + 256, shape, dtype=dtype, device="cuda", generator=own)
    made = torch.randn(shape, device="cuda", generator=own)
    return made.to(getattr(torch, DTYPES.get(name, "bfloat16")))


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("sizes", SIZES, ids=repr)
def test_right(name: str, sizes: tuple[int, int, int]) -> None:
    (m, n, k), own = sizes, kernel(TEXT.replace("i8", name))
    x, w = random("bf16", m, k), random(name, n, k, seed=1)
    s = torch.rand(n, device="cuda")
    packed = own.pack(w)
    assert packed.data.is_cuda and torch.equal(
        packed.unpack().view(torch.uint8), w.view(torch.uint8)
    )
    wanted = x.double() @ w.bfloat16().double().T * s.double()
    for _ in range(3):
        got = own(x, packed, s)
        assert torch.isfinite(got).all()
        assert (got.double() - wanted).norm() <= 2**-8 * wanted.norm()
    own.packed("W").prepare(x, packed, s, out := torch.empty_like(got))()
    assert torch.equal(out, got)


@pytest.mark.parametrize("schedule", SCHEDULES, ids=repr)
@pytest.mark.parametrize("sizes", SIZES, ids=repr)
def test_as_weights_that_are_not_packed(
    sizes: tuple[int, int, int], schedule: Schedule | None
) -> None:
    (m, n, k), own = sizes, kernel()
    x, w, s = random("bf16", m, k), random("i8", n, k, seed=1), torch.rand(n, device="cuda")
    # What is left out is chosen for each of the two.
    whole = own.packed("W").schedule(schedule, M=m, N=n, K=k)
    assert torch.equal(own(x, own.pack(w), s, schedule=whole), own(x, w, s, schedule=whole))


def test_all_bytes() -> None:
    """Times one: as torch converts them."""
    for name in ("i8", "u8"):
        for half in ("bf16", "f16"):
            text = TEXT.replace("i8", name).replace("bf16", half)
            own, dtype = kernel(text), {"bf16": torch.bfloat16, "f16": torch.float16}[half]
            w = random(name, 256, 256)
            x, s = torch.eye(256, device="cuda", dtype=dtype), torch.ones(256, device="cuda")
            for given in w, own.pack(w):
                assert torch.equal(own(x, given, s), w.T.to(dtype))
