"""Operands that TMA can not take, copied to longer rows in front of a launch."""

import gc
import struct
import threading
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import wsdsl
from tests.kernels import CASES
from tests.runtime.fake_driver import MAIN, FakeDriver
from wsdsl.codegen.signature import MapArgument, PointerArgument, Signature
from wsdsl.ir.types import DTYPES
from wsdsl.runtime import driver, launch
from wsdsl.runtime.access import Access
from wsdsl.runtime.bind import tma_faults
from wsdsl.runtime.device import Context, Device
from wsdsl.runtime.launch import Launcher
from wsdsl.runtime.packing import layout
from wsdsl.runtime.padding import LINE, Padded, padded
from wsdsl.runtime.views import ArrayView

BF16 = ml_dtypes.bfloat16
GEMM = CASES["gemm"].kernel


def view(shape: tuple[int, ...], strides: tuple[int, ...], at: int = 2) -> ArrayView:
    return ArrayView(at, DTYPES["bf16"], shape, strides, "cuda:0")


def copied(made: Padded, memory: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """What `cuMemcpy2DAsync` would leave, as elements of two bytes."""
    out = np.zeros(made.bytes, np.uint8)
    for row in range(made.rows):
        start = made.source + row * made.pitch
        out[row * made.line : row * made.line + made.width] = memory[start : start + made.width]
    return out.view(np.uint16)


def elements(at: ArrayView, memory: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    index = np.indices(at.shape).reshape(len(at.shape), -1)
    places = sum(i * s for i, s in zip(index, at.strides, strict=True))
    return memory[at.pointer // 2 :][places].reshape(at.shape)


@given(
    shape=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    gap=st.integers(0, 3),
    repeated=st.integers(0, 3),
    start=st.integers(0, 9),
    order=st.permutations(range(3)),
)
def test_the_copy_holds_the_same(
    shape: list[int], gap: int, repeated: int, start: int, order: list[int]
) -> None:
    """Rows evenly apart, outer axes in any order, any one of stride 0."""
    strides, step = [1] * len(shape), shape[-1] + gap
    for axis in (i for i in order if i < len(shape) - 1):
        strides[axis] = 0 if axis == repeated else step
        step *= 1 if axis == repeated else shape[axis]
    memory = np.arange(4096, dtype=np.uint16)
    given = view(tuple(shape), tuple(strides), 2 * start)
    made = padded(given)
    assert made is not None and not tma_faults(made.view)
    assert all(s * 2 % LINE == 0 for s in made.view.strides[:-1])
    held = copied(made, memory.view(np.uint8))
    assert np.array_equal(elements(made.view, held), elements(given, memory))


@pytest.mark.parametrize(
    ("shape", "strides"),
    [
        ((4, 5, 7), (100, 9, 1)),  # batches apart by no multiple of the rows
        ((4, 7), (5, 1)),  # windows
        ((4, 7), (-9, 1)),
        ((0, 7), (9, 1)),
    ],
)
def test_what_has_no_even_rows(shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
    assert padded(view(shape, strides)) is None


def operands(m: int, n: int, k: int) -> tuple[Any, Any]:
    return np.zeros((m, k), BF16), np.zeros((n, k), BF16)


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ((4095, 4095, 4095), (("C",), ("A", "B"))),
        ((512, 4096, 4100), ((), ("A", "B"))),
        # Few rows meet large weights: each byte counts, and is wanted once.
        ((64, 4096, 4100), (("A", "B"), ())),
        # Nothing takes long.
        ((104, 104, 101), (("A", "B"), ())),
        ((512, 4096, 4096), ((), ())),
    ],
)
def test_when_it_pays(sizes: tuple[int, int, int], expected: Any) -> None:
    call = GEMM.resolve(operands(*sizes))
    assert GEMM._alignment(call, None) == expected


def test_by_threads_where_rows_are_not_even() -> None:
    kernel, b = CASES["batched"].kernel, np.zeros((2, 1000, 4100), BF16)
    heads = np.zeros((3000, 2, 4101), BF16)[:, :, 1:].transpose(1, 0, 2)
    assert kernel._alignment(kernel.resolve((heads, b)), None) == ((), ("A", "B"))
    uneven = heads[:, : 3 * 900 : 3]
    assert "A" in kernel._alignment(kernel.resolve((uneven, b)), None)[0]


PLAIN = Signature(
    name="gemm",
    arguments=(MapArgument("A", (64, 64), "128B"), PointerArgument("C")),
    threads=384,
    smem_bytes=200_000,
    tiles=(("M", 128), ("N", 256)),
    scheduler="persistent",
    waits=True,
)
ACCESS = Access(reads=frozenset("A"), writes=frozenset("C"), mapped=frozenset("A"))


def card(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    """Maps are the address of what they describe."""
    fake = FakeDriver()
    monkeypatch.setattr(driver, "call", fake.call)
    monkeypatch.setattr(driver, "api", fake.api)
    found = Device(0, "H200", 132, (9, 0), (12, 9))
    monkeypatch.setattr(launch, "context_for", lambda index: Context(object(), 1, found))
    monkeypatch.setattr(launch, "encode", lambda made: struct.pack("<Q", made.address) + bytes(120))
    fake.args_bytes = layout(PLAIN.arguments)[1]
    return fake


def test_a_launch_has_its_copy_in_front(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = card(monkeypatch)
    launcher = Launcher(b"\x7fELF", PLAIN, ACCESS)
    views = {"A": view((200, 77), (77, 1), 0xA002), "C": view((200, 64), (64, 1), 0xC000)}
    call = launcher.prepare(views, {}, dict(M=200, N=64), MAIN)
    for stream in (MAIN, MAIN):
        call()
        (where, copy, before), (at, raw) = fake.copied[-1], fake.launched[-1]
        assert (where, at, before) == (stream, stream, len(fake.launched) - 1)
        assert (copy.srcDevice, copy.srcPitch, copy.WidthInBytes) == (0xA002, 154, 154)
        assert (copy.dstPitch, copy.Height) == (256, 200)
        assert struct.unpack_from("<Q", raw)[0] == copy.dstDevice
        assert fake.memory[copy.dstDevice] == 200 * 256
    assert len(fake.memory) == 1
    # What is captured has memory of its own, which stays.
    fake.captures[MAIN] = 7
    call()
    assert fake.copied[-1][1].dstDevice != fake.copied[0][1].dstDevice
    fake.captures.clear()
    kept = fake.copied[-1][1].dstDevice
    del call, launcher
    gc.collect()
    assert [*fake.memory] == [kept]


def test_nobody_copies_between_a_copy_and_its_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = card(monkeypatch)
    launcher = Launcher(b"\x7fELF", PLAIN, ACCESS)
    c = view((200, 64), (64, 1), 0xC000)
    calls = [
        launcher.prepare({"A": view((200, 77), (77, 1), at), "C": c}, {}, dict(M=200, N=64), MAIN)
        for at in (0xA002, 0xB002)
    ]
    threads = [threading.Thread(target=lambda c=c: [c() for _ in range(50)]) for c in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [before for _, _, before in fake.copied] == [*range(100)]


def test_what_tma_can_take_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = card(monkeypatch)
    views = {"A": view((200, 72), (72, 1), 0xA000), "C": view((200, 64), (64, 1), 0xC000)}
    plain = replace(PLAIN, waits=False)
    Launcher(b"\x7fELF", plain, ACCESS).prepare(views, {}, dict(M=200, N=64), MAIN)()
    assert not fake.copied and struct.unpack_from("<Q", fake.launched[0][1])[0] == 0xA000


def test_simulated() -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, shape).astype(BF16) for shape in ((520, 4100), (4096, 4100)))
    a, b = a[:136], b[:128]
    kernel = wsdsl.parse(CASES["gemm"].text).gemm
    kernel._alignments[None, (("M", 136), ("K", 4100), ("N", 128)), ("A", "B"), ("A", "B")] = (
        (), ("A", "B"),
    )  # fmt: skip
    out = kernel.simulate(a, b)
    assert kernel._choices and not any(c.source.unaligned for c in kernel._choices.values())
    assert np.array_equal(out, (a.astype("f4") @ b.astype("f4").T).astype(BF16))
