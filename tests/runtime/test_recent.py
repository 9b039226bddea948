"""Calls like one before are launched as they would be if all were resolved again."""

import copy
import gc
import itertools
import pickle
import struct
import sys
import weakref
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

import wsdsl
from tests.case_data import rejects
from tests.kernels import CASES
from tests.runtime.fake_driver import MAIN, SIDE, FakeDriver
from tests.runtime.fake_torch import Gpu, Tensor
from wsdsl import Schedule
from wsdsl.kernels import Matmul
from wsdsl.lowering.heuristics import padding
from wsdsl.runtime import launcher, recent, workspace
from wsdsl.runtime.arrays import alignment, copies
from wsdsl.runtime.packed_arguments import layout

TEXT = """
@kernel
def scaled(A: bf16[M, K], B: bf16[N, K], C: bf16[M, N], alpha: f32, extra: i32):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += A[m, k] @ B[n, k]
        C[m, n] = acc * alpha + cast(extra, f32)

@kernel
def scattered(A: bf16[M, K], rows: i32[M], C: bf16[M, K]):
    for m, k in tiles(M, K):
        C[rows[m], k] = A[m, k]

@kernel
def doubled(X: bf16[M, N], Y: bf16[M, N]):
    for m, n in tiles(M, N):
        Y[m, n] = X[m, n] * 2.0
"""
SMALL = Schedule(tile=dict(m=64, n=64, k=64), consumers=1)


class Card:
    """`stream` is torch's current one."""

    def __init__(self) -> None:
        self.fake, self.stream, self.grad_mode = FakeDriver(), MAIN, True
        self.made: list[Tensor] = []
        self.addresses = itertools.count(0x5000_0000, 1 << 20)

    def empty(self, shape: tuple[int, ...], dtype: str, device: Gpu) -> Tensor:
        self.made.append(Tensor(shape, next(self.addresses), dtype, device=device))
        return self.made[-1]

    def new(self, compiled: Any) -> Any:
        """The same code, to which nothing has been called yet; its arguments will be read."""
        made = wsdsl.compile_ir(compiled.ir())
        made.__dict__["artifact"] = replace(compiled.artifact)
        self.offsets, self.fake.args_bytes = layout(made.signature.arguments)
        return made

    def argument(self, compiled: Any, name: str, form: str) -> Any:
        """Of the last launch."""
        found = [getattr(a, "tensor", getattr(a, "name", "")) for a in compiled.signature.arguments]
        raw = self.fake.launched[-1][1]
        return struct.unpack_from(form, raw, self.offsets[found.index(name)])[0]


pytestmark = pytest.mark.usefixtures("quick_collections")


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Iterator[Card]:
    made = Card()
    made.fake.install(monkeypatch.setattr)
    monkeypatch.setattr(workspace._private_stream, "known", {})
    torch = SimpleNamespace(
        empty=made.empty,
        bfloat16="torch.bfloat16",
        float32="torch.float32",
        float8_e4m3fn="torch.float8_e4m3fn",
        is_grad_enabled=lambda: made.grad_mode,
        _C=SimpleNamespace(
            _cuda_getCurrentRawStream=lambda index: made.stream,
            _increment_version=lambda tensors: [tensor.count_write() for tensor in tensors],
            _is_any_autocast_enabled=lambda: False,
        ),
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    yield made
    gc.collect()


@pytest.fixture(scope="module")
def compiled() -> dict[str, Any]:
    kernels = dict(scaled=wsdsl.parse(TEXT).scaled, plain=CASES["gemm"].kernel)
    return {name: kernel.compile(SMALL) for name, kernel in kernels.items()}


def tensors(*places: int) -> tuple[Tensor, ...]:
    shapes = (128, 64), (64, 64), (128, 64)
    return tuple(Tensor(s, at) for s, at in zip(shapes, places, strict=False))


A, B, C, D = 0x1000_0000, 0x2000_0000, 0x3000_0000, 0x4000_0000


@pytest.mark.parametrize(
    "places",
    [
        ((A, B, C), (A, B, C)),
        ((A, B, C), (B, A, D)),
        ((A, A, C), (A, B, C)),  # one array twice, then two
        ((A, B, C), (A, A, C)),
        ((A, B, C), (C, B, A), (A, B, C)),
    ],
)
def test_launched_as_if_resolved(card: Card, compiled: Any, places: Any) -> None:
    known = card.new(compiled["scaled"])
    for i, at in enumerate(places):
        for kernel in (known, card.new(compiled["scaled"])):
            kernel(*tensors(*at), 0.5 + i, 7 - i)
        again, resolved = card.fake.launched[-2:]
        assert again == resolved


def test_nothing_is_resolved_again(
    card: Card, compiled: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = card.new(compiled["plain"])
    known(*tensors(A, B, C))
    monkeypatch.setattr(type(known), "resolve", lambda *_: pytest.fail("resolved"))
    for at in ((A, B, C), (B, A, D)):
        given = tensors(*at)
        assert known(*given) is given[2]
        assert known(*given, stream=None) is given[2]
    assert len(card.fake.launched) == 5


def test_what_autograd_records_is_refused(card: Card, compiled: Any) -> None:
    known, (a, b, c) = card.new(compiled["plain"]), tensors(A, B, C)
    known(a, b, c)
    for name, tensor in zip("ABC", (a, b, c), strict=True):
        tensor.requires_grad = True
        rejects(rf"\({name}\): torch records its gradient.*\n.*no_grad", known, a, b, c)
        card.grad_mode = False
        known(a, b, c)
        card.grad_mode, tensor.requires_grad = True, False
    rejects("negates its memory", known, replace(a, negated=True), b, c)
    assert len(card.fake.launched) == 4


def test_autograd_sees_each_write(card: Card, compiled: Any) -> None:
    known, matmul = card.new(compiled["plain"]), Matmul()
    for at in (C, C, D):
        for run in (known, lambda *given: known.prepare(*given)(), lambda a, b, c: matmul(
            a, replace(b, strides=(1, 64)), out=c, schedule=SMALL
        )):  # fmt: skip
            run(*(given := tensors(A, B, at)))
            assert [x.writes > 0 for x in given] == [False, False, True]


def test_outputs_left_out_are_new_each_time(card: Card, compiled: Any) -> None:
    known = card.new(compiled["plain"])
    found = [known(*tensors(A, B)) for _ in range(3)] + [known(*tensors(A, B), None)]
    assert found == card.made and len({x.at for x in found}) == 4
    assert card.argument(known, "C", "<Q") == card.made[-1].at


def test_an_output_of_odd_rows_has_them_each_time(card: Card) -> None:
    """The kernel takes it as one axis."""
    kernel = wsdsl.parse(TEXT).doubled
    _ = kernel.compile(M=33, N=7).launcher
    card.stream = MAIN
    assert [kernel(Tensor((33, 7), A)).shape for _ in range(3)] == [(33, 7)] * 3


def test_an_output_that_is_written_in_part_is_filled_first(card: Card) -> None:
    given = Tensor((128, 64), A), Tensor((128,), B, "torch.int32")
    kernel = wsdsl.parse(TEXT).scattered
    _ = kernel.compile().launcher
    card.stream = MAIN
    for i, stream in enumerate((None, None, SIDE, SIDE)):
        made = kernel(*given, stream=stream)
        launched = len(card.fake.launched) - 1
        assert card.fake.filled[i:] == [(stream or MAIN, made.at, 128 * 64 * 2, launched)]
    kernel(*given, Tensor((128, 64), C))
    assert len(card.fake.filled) == 4


def test_an_output_that_is_written_whole_is_not(card: Card) -> None:
    kernel = CASES["gemm"].fresh()
    for _ in range(2):
        kernel(*tensors(A, B), schedule=SMALL)
    assert len(card.made) == 2 and not card.fake.filled


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda a, b, c: (a, b, a), r"argument 3 \(C\).*shares memory with argument 1"),
        (lambda a, b, c: (a, b, Tensor((128, 64), A + 4096)), "shares memory with argument 1"),
        (lambda a, b, c: (a, b, Tensor((128, 64), C, "torch.float32")), "dtype is f32"),
        (lambda a, b, c: (a, Tensor((64, 72), B), c), "K = 64"),
        (lambda a, b, c: (a, b, Tensor((128, 64), C, strides=(0, 1))), "share memory"),
        (lambda a, b, c: (a, b, Tensor((128, 64), C, layout="torch.sparse_coo")), "layout"),
        (lambda a, b, c: (a, b, Tensor((128, 64), C + 8)), "multiple of 16 bytes"),
        (lambda a, b, c: (None, b, c), "it is None"),
    ],
)
def test_what_is_wrong_is_still_said(card: Card, compiled: Any, change: Any, words: str) -> None:
    known = card.new(compiled["plain"])
    known(*tensors(A, B, C))
    known(*tensors(A, B, C))
    rejects(words, known, *change(*tensors(A, B, C)))
    assert len(card.fake.launched) == 2


def test_numbers(card: Card, compiled: Any) -> None:
    known, at = card.new(compiled["scaled"]), tensors(A, B, C)
    for alpha, extra in ((1.0, 2), (0.0, 2), (-0.0, 2), (2, 0), (float("nan"), 3), (0.0, -1)):
        known(*at, alpha, extra)
        read = card.argument(known, "alpha", "<f")
        assert struct.pack("<f", read) == struct.pack("<f", alpha)
        assert card.argument(known, "extra", "<i") == extra
    rejects(r"argument 5 \(extra\).*does not fit i32", known, *at, 1.0, 1 << 40)
    rejects(r"argument 4 \(alpha\)", known, *at, "1", 1)


def test_streams(card: Card, compiled: Any) -> None:
    known, at = card.new(compiled["plain"]), tensors(A, B, C)
    for current, given in ((MAIN, None), (SIDE, None), (MAIN, SIDE), (MAIN, None), (SIDE, MAIN)):
        card.stream = current
        for _ in range(2):
            known(*at, stream=given)
            assert card.fake.launched[-1][0] == (current if given is None else given)


def test_another_context(card: Card, compiled: Any) -> None:
    known, at = card.new(compiled["plain"]), tensors(A, B, C)
    for context, loads in ((1, 1), (1, 1), (2, 2), (1, 2)):
        card.fake.context = context
        known(*at)
        assert card.fake.log.count("cuModuleLoadData") == loads


def test_schedules_are_told_apart(card: Card) -> None:
    kernel = CASES["gemm"].fresh()
    at = tensors(A, B, C)
    for _ in range(2):
        kernel(*at, schedule=SMALL)
        kernel(*at, schedule=Schedule(tile=dict(m=64, n=32, k=64), consumers=1))
    assert card.fake.log.count("cuModuleLoadData") == 2


def test_no_array_is_held(card: Card, compiled: Any) -> None:
    known = card.new(compiled["plain"])
    given = tensors(A, B)
    watched = [weakref.ref(x) for x in (*given, known(*given), known(*given))]
    card.made.clear()
    del given
    gc.collect()
    assert [x() for x in watched] == [None] * 4


def test_not_all_is_remembered(card: Card, compiled: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent, "MAX_PLACES", 3)
    monkeypatch.setattr(recent, "MAX_KNOWN", 2)
    known = card.new(compiled["plain"])
    for i in range(10):
        known(*tensors(A + 4096 * i * 8, B, C))
        known(Tensor((128 + i, 64), A), Tensor((64, 64), B), Tensor((128 + i, 64), C))
    held = known._recent._known
    assert len(held) == 2 and all(len(k.calls) <= 3 for k in held.values())


def test_memory_that_is_lent(card: Card) -> None:
    """What has become too small goes, though calls are remembered that were lent it."""
    cut = dict(tile=dict(m=64, n=64, k=64), consumers=1, scheduler="split_k", splits=2)
    known = CASES["gemm"].fresh().compile(Schedule(**cut, reduction="serial"))
    sizes = (128, 64), (512, 64), (128, 64)
    for rows, columns in (*sizes, *sizes):
        given = Tensor((rows, 256), A), Tensor((columns, 256), B), Tensor((rows, columns), C)
        known(*given)
        known(*given)
    gc.collect()
    assert len(card.fake.memory) == len(known.signature.lent)
    del known
    gc.collect()


def test_matmul(card: Card, monkeypatch: pytest.MonkeyPatch) -> None:
    matmul = Matmul()
    weights = Tensor((64, 64), B, strides=(1, 64))
    for _ in range(2):
        assert matmul(Tensor((128, 64), A), weights, schedule=SMALL).shape == (128, 64)
        assert matmul(Tensor((64,), A), weights, schedule=SMALL).shape == (64,)
        out = Tensor((128, 64), C)
        assert matmul(Tensor((128, 64), A), weights, out=out, schedule=SMALL) is out
        monkeypatch.setattr(Matmul, "plan", lambda *_, **__: pytest.fail("planned"))
    assert len(card.fake.launched) == 6


def test_unused_numbers_are_still_checked(card: Card) -> None:
    text = TEXT.replace("acc * alpha + cast(extra, f32)", "acc * alpha")
    known, at = wsdsl.parse(text).scaled.compile(SMALL), tensors(A, B, C)
    known(*at, 1.0, 3)
    for numbers in ((1.0, 1 << 40), (1e300, 3)):
        rejects(r"argument [45]", known, *at, *numbers)


def test_no_array_is_held_that_is_copied(card: Card, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies._pool, "known", {})
    monkeypatch.setattr(alignment, "fits_in_memory", lambda *_: True)
    monkeypatch.setattr(padding, "padded_operands", lambda kernel, sizes, names, singly: names)
    kernel = CASES["gemm"].fresh()
    given = Tensor((128, 64), A, strides=(65, 1)), Tensor((64, 64), B)
    for number in (1, 2):
        kernel(*given, schedule=SMALL)
        assert len(card.made) == len(card.fake.copied) == number  # nothing is made in vain
    watched = [weakref.ref(x) for x in (*given, *card.made)]
    card.made.clear()
    del given
    gc.collect()
    assert [x() for x in watched] == [None] * 4


def test_equal_schedules_are_the_same(card: Card, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, at = CASES["gemm"].fresh(), tensors(A, B, C)
    kernel(*at, schedule=replace(SMALL))
    monkeypatch.setattr(type(kernel), "resolve", lambda *_: pytest.fail("resolved"))
    kernel(*at, schedule=replace(SMALL))


def test_a_copy_knows_of_no_call(card: Card) -> None:
    matmul = Matmul()
    matmul(Tensor((128, 64), A), Tensor((64, 64), B), schedule=SMALL)
    for made in (copy.deepcopy(matmul._recent), pickle.loads(pickle.dumps(matmul._recent))):
        assert not made._known and made is not matmul._recent
    assert matmul._recent._known


def test_a_thread_without_a_context_gets_one(
    card: Card, compiled: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    known, at, here = card.new(compiled["plain"]), tensors(A, B, C), launcher.context_for
    asked: list[int] = []
    monkeypatch.setattr(
        launcher, "context_for", lambda index: (asked.append(index), here(index))[1]
    )
    card.fake.context = 0
    known(*at)
    known(*at)
    assert asked == [0, 0]


def test_a_number_that_does_not_fit(card: Card) -> None:
    matmul, scale = Matmul(), (1.0, None)
    a, b = Tensor((128, 64), A, "torch.float8_e4m3fn"), Tensor((64, 64), B, "torch.float8_e4m3fn")
    b = replace(b, strides=(1, 64))
    for _ in range(2):
        matmul(a, b, scales=scale, schedule=SMALL)
    for number in (1e300, 10**400):
        rejects("scale_a", matmul, a, b, scales=(number, None), schedule=SMALL)
