"""The launch stub on torch's CPU tensors, with functions in place of the driver's."""

import ctypes
import struct
import sys
import threading
import weakref
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from wsdsl.dispatch import callee
from wsdsl.dispatch import kernel as dispatch_kernel
from wsdsl.runtime.native import launch_stub as stub
from wsdsl.runtime.native import native_code
from wsdsl.runtime.native import repeated_calls as repeat
from wsdsl.runtime.native.launch_table import Api
from wsdsl.schedule import Schedule

Calls, Repetition, WORD = stub.Calls, stub.Repetition, ctypes.c_uint64
CONTEXT, CONTEXT_ID, STREAM, KERNEL, TABLE = 77, 5, 99, 1234, 4321
BYTES = 8 * 16 * 4


class Driver:
    """The driver's functions, and the memory that is written."""

    def __init__(self, torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.launches, self.moved, self.status = list[tuple[int, ...]](), list[int](), 0
        self.stream_id, self.capturing = 7, 0

        def state(name: str):
            def write(_: int, place: Any) -> int:
                place[0] = getattr(self, name)
                return 0

            return write

        def written(value: int):
            def write(*arguments: Any) -> int:
                arguments[-1][0] = value
                return 0

            return write

        def launch(config: int, kernel: int, table: int, _: int) -> int:
            self.launches.append((kernel, table, self.config[4]))
            return self.status

        def move(where: int, address: int) -> int:
            self.moved.append(address)
            return 0

        out = ctypes.POINTER(WORD)
        self.functions = {
            Api.CONTEXT: ctypes.CFUNCTYPE(ctypes.c_int, out)(written(CONTEXT)),
            Api.CONTEXT_ID: ctypes.CFUNCTYPE(ctypes.c_int, WORD, out)(written(CONTEXT_ID)),
            Api.REPLACE_ADDRESS: ctypes.CFUNCTYPE(ctypes.c_int, WORD, WORD)(move),
            Api.LAUNCH: ctypes.CFUNCTYPE(ctypes.c_int, *[WORD] * 4)(launch),
            Api.STREAM_ID: ctypes.CFUNCTYPE(ctypes.c_int, WORD, out)(state("stream_id")),
            Api.IS_CAPTURING: ctypes.CFUNCTYPE(ctypes.c_int, WORD, out)(state("capturing")),
        }
        library = SimpleNamespace(**{n: self.functions[which] for which, n in stub.DRIVER.items()})
        load = ctypes.CDLL
        monkeypatch.setattr(ctypes, "CDLL", lambda n: library if n == "libcuda.so.1" else load(n))
        self.api = stub.TorchApi()
        kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int, out)
        self.stream = kind(written(STREAM))
        self.api.table[Api.STREAM] = ctypes.cast(self.stream, ctypes.c_void_p).value or 0
        self.config, self.memory = (WORD * 8)(), (WORD * 8)()
        context = SimpleNamespace(handle=CONTEXT, id=CONTEXT_ID, device=SimpleNamespace(index=0))
        at = ctypes.addressof(self.memory)
        self.call: Any = SimpleNamespace(
            kernel=SimpleNamespace(context=context, handle=KERNEL),
            config=SimpleNamespace(getPtr=lambda: ctypes.addressof(self.config)),
            packed=SimpleNamespace(address=TABLE),
            pointers=lambda: [("a", at, False), ("a", at + 24, True), ("out", at + 8, False)],
            scalars=lambda: [("s", at + 16)],
            stream_id=0,
            is_valid=None,
        )

    def known(self, out: int, *makers: Any) -> Repetition:
        tensors = [(0, 0, BYTES, False), (out, 0, BYTES, True)]
        places, counted = {"a": 0, "out": out}, [] if makers else [out]
        return Repetition(
            self.call, places, tensors, [(1, "s", "f32")], list(makers), [out], counted
        )


@pytest.fixture
def torch(import_optional):
    return import_optional("torch")


@pytest.fixture
def driver(torch, monkeypatch):
    return Driver(torch, monkeypatch)


def test_known_call_is_launched_at_new_addresses(torch, driver) -> None:
    a, out = torch.zeros(8, 16), torch.zeros(8, 16)
    calls = Calls(driver.api)
    assert calls.launch(a, 2.5, out) is NotImplemented
    calls.add((a, 2.5), {"out": out}, driver.known(2))
    b = torch.ones(8, 16)
    before = sys.getrefcount(b), sys.getrefcount(out)
    assert calls.launch(b, 0.5, out=out) is out and out._version == 1
    assert driver.launches == [(KERNEL, TABLE, STREAM)]
    assert list(driver.memory[:2]) == [b.data_ptr(), out.data_ptr()]
    assert driver.moved == [b.data_ptr()]
    assert struct.unpack("<f", bytes(driver.memory)[16:20]) == (0.5,)
    assert (sys.getrefcount(b), sys.getrefcount(out)) == before


def test_outputs_are_allocated(torch, driver) -> None:
    made, a = list[Any](), torch.zeros(8, 16)

    def make() -> Any:
        made.append(torch.empty(8, 16))
        return made[-1]

    calls = Calls(driver.api)
    calls.add((a, 2.5), {}, driver.known(2, make))
    result = calls.launch(a, 1.5)
    same = result is made.pop()
    assert same and sys.getrefcount(result) <= 3
    driver.status = 1  # it fails
    assert calls.launch(a, 1.5) is NotImplemented
    assert sys.getrefcount(made.pop()) <= 3


@pytest.mark.parametrize("is_operator", [False, True])
def test_other_calls_are_not_repeated(is_operator, torch, driver) -> None:
    a, out = torch.zeros(8, 16), torch.zeros(8, 16)
    calls = Calls(driver.api, is_operator)
    calls.add((a, 2.5, out, None, "gelu"), {}, driver.known(2))
    assert calls.launch(a, 2.5, out, None, "gelu") is out
    calls.add((a, 2.5, out), {"schedule": (schedule := Schedule())}, driver.known(2))
    assert calls.launch(a, 2.5, out, schedule=schedule) is out
    recorded = torch.zeros(8, 16).requires_grad_()
    others = [
        (out, 2.5, out, None, "gelu"),
        (torch.zeros(8, 17), 2.5, out, None, "gelu"),
        (torch.zeros(16, 8).T, 2.5, out, None, "gelu"),
        (torch.zeros(8, 16).half(), 2.5, out, None, "gelu"),
        (a.numpy(), 2.5, out, None, "gelu"),
        (torch.empty([1] * 2000), 2.5, out, None, "gelu"),
        (recorded, 2.5, out, None, "gelu"),
        (a, -2.5, out, None, "gelu"),
        (a, 2, out, None, "gelu"),
        (a, 1e39, out, None, "gelu"),
        (a, 2.5, out, None, "relu"),
        (a, 2.5, out, [], "gelu"),
        (a, 2.5, out),
        (),
    ]
    for arguments in others:
        assert calls.launch(*arguments) is NotImplemented, arguments
    assert calls.launch(a, 2.5, out, None, activation="gelu") is NotImplemented
    with torch.no_grad():
        assert calls.launch(recorded, 2.5, out, None, "gelu") is out
    seen = list[Any]()

    def traced(x: Any) -> Any:
        seen.append(calls.launch(x, 2.5, out, None, "gelu"))
        return x

    torch.func.vmap(traced)(torch.zeros(2, 8, 16))
    with torch.autograd.forward_ad.dual_level():
        seen.append(calls.launch(a, 2.5, out, None, "gelu"))
    torch.jit.trace(traced, (a,), check_trace=False)
    assert seen == [NotImplemented] * 3


def test_launch_with_a_workspace_is_repeated_on_its_stream(torch, driver) -> None:
    a, out = torch.zeros(8, 16), torch.zeros(8, 16)
    calls, valid, args = Calls(driver.api), ctypes.c_int64(1), (a, 2.5, out)
    for table, stream in ((TABLE, 7), (TABLE + 1, 8)):
        driver.call.packed = SimpleNamespace(address=table)
        driver.call.stream_id, driver.call.is_valid = stream, valid
        calls.add(args, {}, driver.known(2))
        driver.call = SimpleNamespace(**vars(driver.call))
        valid = ctypes.c_int64(1)
    launched = [calls.launch(*args) for driver.stream_id in (7, 8, 9)]
    assert launched == [out, out, NotImplemented]
    assert [table for _, table, _ in driver.launches] == [TABLE, TABLE + 1]
    driver.stream_id, driver.capturing = 8, 1
    assert calls.launch(*args) is NotImplemented
    driver.capturing = 0
    assert calls.is_known(args, {}, 8) and calls.launch(*args) is out
    driver.call.is_valid.value = 0
    assert calls.launch(*args) is NotImplemented and not calls.is_known(args, {}, 8)


def test_negated_view_is_not_repeated(torch, driver) -> None:
    numbers, out, calls = torch.zeros(8, 16) * 1j, torch.zeros(8, 16), Calls(driver.api)
    calls.add((numbers.imag, 2.5, out), {}, driver.known(2))
    assert calls.launch(numbers.imag, 2.5, out) is out
    assert calls.launch(numbers.conj().imag, 2.5, out) is NotImplemented


def test_written_tensors_are_freed_with_the_function(torch, driver) -> None:
    written, calls = torch.zeros(4), Calls(driver.api)
    calls.add((), {}, Repetition(driver.call, written=(written,), stream=STREAM))
    launch, alive = calls.launch, weakref.ref(written)
    del written, calls
    assert launch() == () and alive() is not None
    del launch
    assert alive() is None


def test_entry_stays_when_threads_add_one_call(torch, driver, monkeypatch) -> None:
    arguments, calls = (torch.zeros(8, 16), 2.5, torch.zeros(8, 16)), Calls(driver.api)
    first, alive = driver.known(2), list[Any]()

    def scalars() -> list[tuple[str, int]]:
        monkeypatch.undo()
        other = driver.known(2)
        calls.add(arguments, {}, other)
        alive.append(weakref.ref(other))
        return first.call.scalars()

    monkeypatch.setattr(driver.call, "scalars", scalars)
    calls.add(arguments, {}, first)
    assert alive[0]() is not None
    assert calls.launch(*arguments) is arguments[2]


def test_calls_are_forgotten_while_one_is_added(torch, driver, monkeypatch) -> None:
    repeater, scalars, known = repeat.Repeater(), driver.call.scalars(), driver.known(2)
    launched: Any = SimpleNamespace(repeatable=lambda: driver.call)
    monkeypatch.setattr(repeat, "torch_api", lambda: driver.api)
    monkeypatch.setattr(repeat, "_repetition", lambda *_: known)
    monkeypatch.setattr(driver.call, "scalars", lambda: repeater.forget() or scalars)
    given = torch.zeros(8, 16), 2.5, torch.zeros(8, 16)
    repeater._learn((), given, {}, given[2], launched)
    assert repeater.launch is None


def test_other_layouts_of_objects_are_not_read(torch, monkeypatch) -> None:
    monkeypatch.setattr(stub, "_method", lambda: None)  # of a free-threaded build
    monkeypatch.setattr(stub, "TorchApi", lambda: pytest.fail("objects are read"))
    assert stub._torch_api.__wrapped__() is None


class Callee:
    __slots__ = ("__dict__", "_native")

    def __call__(self, *_: Any, **__: Any) -> str:
        return "root"


class Kernel(Callee):
    def __call__(self, *_: Any, **__: Any) -> str:
        return "python"


def test_class_answers_known_calls_natively(torch, driver) -> None:
    kind = type("Kernel", (Kernel,), {})
    calls, one, other, sub = Calls(driver.api, False), kind(), kind(), type("Sub", (kind,), {})()
    given = torch.zeros(8, 16), 2.5, torch.zeros(8, 16)
    assert one(*given) == "python"
    calls.add(given, {}, driver.known(2))
    stub.answer(one, calls)
    before = sys.getrefcount(given), sys.getrefcount(calls.own), sys.getrefcount(one)
    assert one(*given) is given[2] and len(driver.launches) == 1
    assert one(*given, s=1) == one(given[0]) == one() == other(*given) == sub(*given) == "python"
    assert Kernel()(*given) == "python"
    assert (sys.getrefcount(given), sys.getrefcount(calls.own), sys.getrefcount(one)) == before
    with repeat.recorded():
        assert one(*given) == "python"
    stub.answer(sub, calls)
    assert sub(*given) is one(*given) is given[2]
    kind.__call__ = lambda *_: "replaced"
    assert one(*given) == sub(*given) == "replaced"
    stub.answer(one, calls)
    assert one(*given) is given[2]
    calls.site[stub.Site.FIRST] = 0
    assert one(*given) == "replaced" and other(*given) == "replaced"


@pytest.fixture
def launching(driver, monkeypatch) -> Any:
    """A class of kernels that launch; calls that reach Python return "python"."""
    monkeypatch.setattr(repeat, "torch_api", lambda: driver.api)
    monkeypatch.setattr(repeat, "_repetition", lambda *_: driver.known(2))
    launched = SimpleNamespace(repeatable=lambda: driver.call)

    class Launching(callee.Callee):
        positional = "a", "s", "out"  # pyright: ignore[reportAssignmentType]
        during = staticmethod(lambda: None)

        @callee.repeated
        def __call__(self, *_: Any, **__: Any) -> str:
            self.during()
            repeat.recorder.launches.append(launched)
            return "python"

    return Launching


def test_replaced_call_is_not_bypassed(torch, launching) -> None:
    given, call, seen = (torch.zeros(8, 16), 2.5, torch.zeros(8, 16)), launching.__call__, []

    def counted(self: Any, *args: Any) -> Any:
        seen.append(self)
        return call(self, *args)

    sub = type("Sub", (launching,), {"__call__": counted})()
    assert [sub(*given) for _ in range(3)] == ["python", given[2], given[2]] and len(seen) == 3
    launching.__call__ = counted
    one = launching()
    assert [one(*given) for _ in range(3)] == ["python", given[2], given[2]] and len(seen) == 6


def test_call_is_replaced_during_a_launch(torch, launching, driver) -> None:
    def make() -> None:
        launching.__call__ = lambda *_: "replaced"
        raise ValueError

    one, a, calls = launching(), torch.zeros(8, 16), Calls(driver.api)
    calls.add((a, 2.5), {}, driver.known(2, make))
    stub.answer(one, calls)
    assert one(a, 2.5) == "replaced"


@pytest.mark.parametrize("forget", [lambda one: one._forget(), lambda _: repeat.forget_all()])
def test_calls_forgotten_meanwhile_are_not_repeated(forget, torch, launching, driver) -> None:
    given, other = ((torch.zeros(n, 16), 2.5, torch.zeros(n, 16)) for n in (8, 9))
    one, scalars = launching(), driver.call.scalars()
    one.during = lambda: forget(one)
    assert one(*given) == "python"  # forgotten during the call
    del one.during
    assert [one(*given) for _ in range(2)] == ["python", given[2]]
    driver.call.scalars = lambda: forget(one) or scalars
    assert one(*other) == "python"  # forgotten while the call was added
    driver.call.scalars = lambda: scalars
    assert [one(*other) for _ in range(2)] == ["python", other[2]]


def test_calls_of_a_forgotten_repeater_are_not_answered(torch, launching) -> None:
    given, one = (torch.zeros(8, 16), 2.5, torch.zeros(8, 16)), launching()
    repeater = one._recent.repeater
    one._forget()
    repeater.run(partial(launching.__call__.__wrapped__, one), one.positional, given, {})
    repeater.answer(one)
    assert one(*given) == "python"


def test_options_are_set_before_calls_are_forgotten(monkeypatch) -> None:
    kernel, seen = dispatch_kernel.Kernel("kernel", lambda: None), list[Any]()  # pyright: ignore[reportArgumentType]
    monkeypatch.setattr(dispatch_kernel.Kernel, "_forget", lambda _: seen.append(kernel.exact))
    kernel.exact = True
    assert seen == [True]


def test_calls_during_the_tuning_of_a_form_are_forgotten(monkeypatch) -> None:
    kernel = dispatch_kernel.Kernel("kernel", lambda: None)  # pyright: ignore[reportArgumentType]
    form = SimpleNamespace(_tuned=lambda *_: kernel._recent)
    monkeypatch.setattr(dispatch_kernel, "select_variant", lambda *_: (form, None))
    assert kernel._tuned(None, None) is not kernel._recent  # pyright: ignore[reportArgumentType]


def packed(data: Any, number: Any) -> Any:
    """A packed array, whose geometry is another one without a `number`."""
    made = type("Packed", (), {})()
    made.data, made.dtype, made.shape = data, "i4", [number is None, 8]
    return made


def test_autocast_changes_operators_only(torch, driver) -> None:
    given = torch.zeros(8, 16), 2.5, torch.zeros(8, 16)
    for is_operator in (False, True):
        calls = Calls(driver.api, is_operator)
        calls.add(given, {}, driver.known(2))
        with torch.autocast("cpu"):
            assert (calls.launch(*given) is NotImplemented) == is_operator


@pytest.mark.parametrize("join", [lambda *pair: pair, packed], ids=["pair", "packed"])
def test_parts_of_arguments_are_repeated(join, torch, driver, monkeypatch) -> None:
    repeater, launched = repeat.Repeater(), SimpleNamespace(repeatable=lambda: driver.call)
    monkeypatch.setattr(repeat, "torch_api", lambda: driver.api)
    monkeypatch.setattr(repeat, "_repetition", lambda *_: driver.known(2))

    def run(*pair: Any) -> Any:
        def call() -> Any:
            repeat.recorder.launches.append(launched)
            return "called"

        out = torch.zeros(8, 16)
        parts = () if join is not packed else pair[1:]
        given = (join(*pair), *parts, out)
        found = repeater.run(call, ("scales", *["s"] * len(parts), "out"), given, {})
        return "repeated" if found is out else found

    a, b = torch.zeros(8, 16), torch.ones(8, 16)
    assert [run(a, 2.5), run(b, 0.5), run(b, None)] == ["called", "repeated", "called"]
    assert driver.memory[0] == b.data_ptr()


def test_arguments_too_many_or_given_twice_are_not_repeated(torch, launching, driver) -> None:
    x, out, one = packed(torch.zeros(8, 16), 1), torch.zeros(8, 16), launching()
    assert [one(x, 2.5, out) for _ in range(2)] == ["python", out]
    assert one(x, 2.5, out, 1) == one(x, 2.5, 1, out=out) == "python"
    assert len(driver.launches) == 1


def test_functions_are_created_while_all_forget() -> None:
    before, done = sys.getswitchinterval(), list[Any]()
    thread = threading.Thread(target=lambda: [repeat.Repeater() for _ in iter(done.copy, [0])])
    sys.setswitchinterval(1e-6)
    thread.start()
    try:
        for _ in range(50):
            repeat.forget_all()
    finally:
        done.append(0)
        thread.join()
        sys.setswitchinterval(before)


def test_machine_code_is_cached_by_its_sources(monkeypatch, tmp_path: Path) -> None:
    keys = list[Any]()
    monkeypatch.setattr(native_code, "get_or_compute", lambda key, *_: keys.append(key) or b"code")
    native_code.cached("f", bytes)
    for name in native_code.SOURCES:
        tmp_path.joinpath(name).touch()
    monkeypatch.setattr(native_code, "__file__", str(tmp_path / "module.py"))
    native_code.cached("f", bytes)
    assert keys[0] != keys[1]
