"""Operands that TMA can not take, copied to longer rows in front of a launch."""

import itertools
import struct
import threading
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wsdsl
from tests.kernels import CASES
from tests.runtime.fake_driver import MAIN, FakeDriver
from wsdsl.artifact.artifact import Access
from wsdsl.artifact.signature import MapArgument, PointerArgument, ScalarArgument, Signature
from wsdsl.diagnostics import LaunchError
from wsdsl.ir.hardware.gmem_limits import L2_LINE
from wsdsl.ir.types import DTYPES
from wsdsl.lowering.heuristics import padding
from wsdsl.runtime.arrays import copies
from wsdsl.runtime.arrays.padded_copies import Padded, padded
from wsdsl.runtime.arrays.views import ArrayView, tma_faults
from wsdsl.runtime.launcher import Launcher
from wsdsl.runtime.packed_arguments import layout
from wsdsl.runtime.prepared import Prepared

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


@settings(deadline=None)
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
    shape = [*shape[:-1], 64 + shape[-1]]
    strides, step = [1] * len(shape), shape[-1] + gap
    for axis in (i for i in order if i < len(shape) - 1):
        strides[axis] = 0 if axis == repeated else step
        step *= 1 if axis == repeated else shape[axis]
    memory = np.arange(40000, dtype=np.uint16)
    given = view(tuple(shape), tuple(strides), 2 * start)
    made = padded(given)
    assert made is not None and not tma_faults(made.view)
    assert all(s * 2 % L2_LINE == 0 for s in made.view.strides[:-1])
    held = copied(made, memory.view(np.uint8))
    assert np.array_equal(elements(made.view, held), elements(given, memory))


@pytest.mark.parametrize(
    ("shape", "strides"),
    [
        ((4, 5, 77), (1000, 90, 1)),  # batches apart by no multiple of the rows
        ((4, 77), (50, 1)),  # windows
        ((4, 77), (-90, 1)),
        ((0, 77), (90, 1)),
        ((4, 7), (9, 1)),  # shorter than a line
        ((2, 77), (2**30 + 1, 1)),  # farther apart than the driver takes
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
        ((1024, 4096, 4100), ((), ("A", "B"))),
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
    arguments=(
        MapArgument("A", (64, 64), "128B"),
        PointerArgument("C"),
        ScalarArgument("alpha", DTYPES["f32"]),
    ),
    threads=384,
    smem_bytes=200_000,
    tiles=(("M", 128), ("N", 256)),
    scheduler="persistent",
    waits=True,
)
ACCESS = Access(reads=frozenset("A"), writes=frozenset("C"), mapped=frozenset("A"))


def card(monkeypatch: pytest.MonkeyPatch, capacity: int = 1 << 40) -> FakeDriver:
    fake = FakeDriver(capacity)
    fake.install(monkeypatch.setattr)
    monkeypatch.setattr(copies._pool, "known", {})
    fake.args_bytes = layout(PLAIN.arguments)[1]
    return fake


def prepared(launcher: Launcher, at: int = 0xA002) -> Prepared:
    views = {"A": view((200, 77), (77, 1), at), "C": view((200, 64), (64, 1), 0xC000)}
    return launcher.prepare(views, {"alpha": 2.0}, dict(M=200, N=64), MAIN)


def test_a_launch_has_its_copy_in_front(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = card(monkeypatch)
    call = prepared(Launcher(b"\x7fELF", PLAIN, ACCESS))
    for captured in (False, False, True):
        if captured:
            fake.captures[MAIN] = 7
        call()
        (where, copy, before), (at, raw) = fake.copied[-1], fake.launched[-1]
        assert (where, at, before) == (MAIN, MAIN, len(fake.launched) - 1)
        assert (copy.srcDevice, copy.srcPitch, copy.WidthInBytes) == (0xA002, 154, 154)
        assert (copy.dstPitch, copy.Height) == (256, 200)
        assert struct.unpack_from("<Q", raw)[0] == copy.dstDevice
        # Given back behind it, in the order of the stream.
        assert not fake.memory


def test_each_launch_has_memory_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = card(monkeypatch)
    launcher = Launcher(b"\x7fELF", PLAIN, ACCESS)
    calls = [prepared(launcher, at) for at in (0xA002, 0xB002)]
    threads = [threading.Thread(target=lambda c=c: [c() for _ in range(50)]) for c in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sources = {copy.dstDevice: copy.srcDevice for _, copy, _ in fake.copied}
    read = [sources[struct.unpack_from("<Q", raw)[0]] for _, raw in fake.launched]
    assert len(sources) == 100 and sorted(read) == [0xA002] * 50 + [0xB002] * 50


def test_a_scalar_is_exchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the copies lie where they lay before."""
    fake = card(monkeypatch)
    fake.addresses = itertools.repeat(0x10_0000_0000)
    call = prepared(Launcher(b"\x7fELF", PLAIN, ACCESS))
    at, found = layout(PLAIN.arguments)[0][-1], []
    for alpha in (None, 3.0, 4.0):
        if alpha:
            call.set_scalar("alpha", alpha)
        call()
        found += struct.unpack_from("<f", fake.launched[-1][1], at)
    assert found == [2.0, 3.0, 4.0]


def test_a_card_that_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = card(monkeypatch, capacity=1000)
    call = prepared(Launcher(b"\x7fELF", PLAIN, ACCESS))
    with pytest.raises(LaunchError, match="copied to 51200 bytes"):
        call()
    assert not fake.launched


def test_what_tma_can_take_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = card(monkeypatch)
    views = {"A": view((200, 72), (72, 1), 0xA000), "C": view((200, 64), (64, 1), 0xC000)}
    plain = replace(PLAIN, waits=False)
    Launcher(b"\x7fELF", plain, ACCESS).prepare(views, {"alpha": 2.0}, dict(M=200, N=64), MAIN)()
    assert not fake.copied and struct.unpack_from("<Q", fake.launched[0][1])[0] == 0xA000


def test_simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(padding, "padded_operands", lambda kernel, sizes, names, singly: names)
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, (rows, 1001)).astype(BF16) for rows in (136, 128))
    kernel = wsdsl.parse(CASES["gemm"].text).gemm
    out = kernel.simulate(a, b)
    assert kernel._variants.choices and not any(a.unaligned for a in kernel._variants.choices)
    assert np.array_equal(out, (a.astype("f4") @ b.astype("f4").T).astype(BF16))


def test_the_compiled_kernel_takes_the_same() -> None:
    """Copied in front, as well."""
    call = GEMM.resolve(operands(4095, 4095, 4095))
    compiled = GEMM._compile(None, call.dims, *GEMM._alignment(call, None))
    assert compiled.resolve((*operands(300, 264, 1001),)).tma_blocked().keys() == {"A", "B"}


def test_products_that_are_scaled() -> None:
    """Which are multiplied behind other ops until factors have moved."""
    kernel = CASES["block_scaled"].kernel
    a, b = (np.zeros((2000, 2001), ml_dtypes.float8_e4m3fn) for _ in range(2))
    scales = np.ones((2000, 16), np.float32), np.ones((16, 16), np.float32)
    call = kernel.resolve((a, b, *scales))
    assert kernel._alignment(call, None)[1] == ("A", "B")


def test_slices_are_copied_element_by_element() -> None:
    a, b = (np.zeros((n, 4097), BF16)[:, 1:] for n in (300, 4096))
    assert GEMM._alignment(GEMM.resolve((a, b)), None) == ((), ("A", "B"))
    a, b = (np.zeros((n, 4100), BF16)[:, 4:] for n in (300, 4096))
    assert GEMM._alignment(GEMM.resolve((a, b)), None) == (("A", "B"), ())
