"""Memory that the runtime lends: who shares it, when it grows and goes, and graphs."""

import gc
import struct
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from tests.case_data import rejects
from tests.kernels import CASES
from tests.runtime.fake_driver import MAIN, SIDE, FakeDriver
from wsdsl.artifact.artifact import Access
from wsdsl.artifact.signature import (
    PointerArgument,
    ScalarArgument,
    Signature,
    SizeArgument,
    StrideArgument,
    WorkspaceTensor,
)
from wsdsl.diagnostics import LaunchError
from wsdsl.ir.ops import (
    GriddepWait,
    LoadGlobal,
    SemaphoreArrive,
    SemaphoreWait,
    StoreGlobal,
    ThreadLoad,
    TmaLoad,
    TmaStore,
)
from wsdsl.ir.rewriter import walk
from wsdsl.ir.types import DTYPES, Tensor
from wsdsl.runtime import launcher, workspace
from wsdsl.runtime.arrays import streams
from wsdsl.runtime.arrays.streams import Place, place_of
from wsdsl.runtime.arrays.views import ArrayView
from wsdsl.runtime.launcher import Launcher
from wsdsl.runtime.packed_arguments import PackedArguments, layout
from wsdsl.runtime.prepared import Prepared

F32, I32 = DTYPES["f32"], DTYPES["i32"]
PARTIALS = Tensor(F32, ("partials_lines", 256))
FLAGS = Tensor(I32, ("flags_lines",))
GEMM = Signature(
    name="gemm",
    arguments=(
        PointerArgument("C"),
        StrideArgument("C", 0),
        PointerArgument("partials"),
        StrideArgument("partials", 0),
        PointerArgument("flags"),
        ScalarArgument("alpha", F32),
        *(SizeArgument(d) for d in ("M", "N", "K", "partials_lines", "flags_lines")),
    ),
    threads=384,
    smem_bytes=200_000,
    tiles=(("M", 128), ("N", 256)),
    scheduler="stream_k",
    contraction=(("K", 64),),
    lent=(
        WorkspaceTensor("partials", PARTIALS, 128, zeroed=False),
        WorkspaceTensor("flags", FLAGS, 2, zeroed=True),
    ),
)
SLOT = 128 * 256 * 4


class Launched(NamedTuple):
    stream: int
    c: int
    partials: int
    stride: int
    flags: int
    alpha: float
    sizes: tuple[int, ...]


class Machine:
    """A launcher on a card of 132 SMs; `stream` is the current one."""

    def __init__(self, fake: FakeDriver) -> None:
        self.fake, self.stream = fake, MAIN
        offsets, fake.args_bytes = layout(GEMM.arguments)
        self.format = offsets
        self.launcher = Launcher(b"\x7fELF", GEMM, Access())

    def prepare(self, m: int = 128, n: int = 256, k: int = 640, **options: Any) -> Prepared:
        view = ArrayView(0xC000, F32, (m, n), (n, 1), "cuda:0")
        dims = {"M": m, "N": n, "K": k}
        return self.launcher.prepare({"C": view}, {"alpha": 2.0}, dims, **options)

    def launched(self, index: int = -1) -> Launched:
        stream, raw = self.fake.launched[index]
        values = [
            struct.unpack_from(code, raw, offset)[0]
            for code, offset in zip("QqQqQfiiiii", self.format, strict=True)
        ]
        c, _, partials, stride, flags, alpha, *sizes = values
        assert partials in self.fake.memory, "launched with memory that is free"
        assert flags in self.fake.zeroed
        assert self.fake.memory[partials] >= 1024 * sizes[3]
        assert self.fake.memory[flags] >= 4 * sizes[4]
        return Launched(stream, c, partials, stride, flags, alpha, tuple(sizes))


pytestmark = pytest.mark.usefixtures("quick_collections")


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    fake = FakeDriver()
    fake.install(monkeypatch.setattr)
    monkeypatch.setattr(workspace._private_stream, "known", {})
    made = Machine(fake)
    monkeypatch.setattr(launcher, "current_stream", lambda view: lambda: made.stream)
    yield made
    # Before the real driver comes back.
    made.launcher = Launcher(b"\x7fELF", GEMM, Access())
    gc.collect()


def test_sizes_and_strides(machine: Machine) -> None:
    machine.prepare(m=300, n=300)()
    found = machine.launched()
    # 3 x 2 tiles of 10 steps, cut between 60 workers.
    assert found.sizes == (300, 300, 640, 6 * 128, 6 * 2)
    assert (found.c, found.stride, found.alpha) == (0xC000, 256, 2.0)
    assert sorted(machine.fake.memory.values()) == [6 * 2 * 4, 6 * SLOT]
    assert machine.fake.zeroed == {found.flags}


def test_a_warm_launch_allocates_nothing(machine: Machine) -> None:
    prepared = machine.prepare()
    before = machine.fake.log.count("cuMemAlloc")
    for _ in range(3):
        prepared()
    machine.prepare()()
    assert machine.fake.log.count("cuMemAlloc") == before == 2
    assert (
        "cuStreamSynchronize"
        not in machine.fake.log[machine.fake.log.index("cuMemsetD8Async") + 2 :]
    )
    assert len({machine.launched(i)[2:5] for i in range(4)}) == 1


def test_tiles_that_come_out_even_are_lent_the_least(machine: Machine) -> None:
    machine.prepare(m=128 * 132, n=256)()
    assert machine.launched().sizes[3:] == (128, 2)


def test_an_empty_problem_launches_and_takes_nothing(machine: Machine) -> None:
    prepared = machine.prepare(m=0)
    prepared()
    assert prepared.grid == 0
    assert not machine.fake.launched
    assert not machine.fake.memory


def test_no_contraction_is_one_step(machine: Machine) -> None:
    prepared = machine.prepare(m=300, k=0)
    prepared()
    assert prepared.grid == 3
    assert machine.launched().sizes[3:] == (128, 2)


def test_streams_do_not_share(machine: Machine) -> None:
    prepared = machine.prepare()
    prepared()
    machine.stream = SIDE
    prepared()
    machine.stream = MAIN
    prepared()
    first, second, third = (machine.launched(i) for i in range(3))
    assert (first.stream, second.stream) == (MAIN, SIDE)
    assert first == third
    assert not {first.partials, first.flags} & {second.partials, second.flags}
    machine.prepare(stream=SIDE)()
    assert machine.launched()[1:] == second[1:]


def test_scalars_are_exchanged_everywhere(machine: Machine) -> None:
    prepared = machine.prepare()
    for stream in (MAIN, SIDE):
        machine.stream = stream
        prepared()
    prepared.set_scalar("alpha", 5.0)
    for stream in (MAIN, SIDE, 0x300):
        machine.stream = stream
        prepared()
        assert machine.launched().alpha == 5.0
    rejects("no scalar 'beta'", prepared.set_scalar, "beta", 1.0)


def test_it_grows_and_what_was_too_small_goes(machine: Machine) -> None:
    small = machine.prepare()
    small()
    before = machine.launched()
    machine.prepare(m=1280)()
    after = machine.launched()
    assert after.partials != before.partials
    gc.collect()
    assert set(machine.fake.memory) == {after.partials, after.flags}
    small()
    shared = dict(partials=after.partials, flags=after.flags)
    assert machine.launched() == before._replace(**shared)
    assert set(machine.fake.memory) == {after.partials, after.flags}


def test_native_arguments_are_valid_until_memory_is_replaced(machine: Machine) -> None:
    small = machine.prepare()
    small()
    known = small.repeatable()
    assert known is not None and known.stream_id == place_of(MAIN).stream
    assert bytes(known.packed) == machine.fake.launched[-1][1]
    again = small.repeatable()
    assert again is not None and again.packed is known.packed
    machine.stream = SIDE
    assert small.repeatable() is None
    machine.stream = MAIN
    machine.prepare(m=1280)()
    assert not known.is_valid.value and small.repeatable() is None
    machine.fake.captures[MAIN] = 3
    small()
    assert small.repeatable() is None


def test_streams_that_are_not_kept_leave_nothing(machine: Machine) -> None:
    """Not to calls that were lent their memory, either."""
    calls = [machine.prepare() for _ in range(3)]
    for stream in range(1000, 1200):
        machine.stream = stream
        calls[stream % 3]()
        machine.launched()
    gc.collect()
    assert len(machine.fake.memory) <= 2 * streams.MAX_STREAMS


def test_a_scalar_is_exchanged_while_memory_is_replaced(machine: Machine) -> None:
    prepared, places = machine.prepare(), (MAIN, SIDE)
    for machine.stream in places:
        prepared()
    exchange, lending = PackedArguments.set_scalar, prepared._lending
    assert lending is not None

    def meanwhile(self: PackedArguments, name: str, value: float) -> bool:
        for stream in places:
            lending.forget(Place(stream + 7, None))
        return exchange(self, name, value)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PackedArguments, "set_scalar", meanwhile)
        prepared.set_scalar("alpha", 5.0)
    for machine.stream in places:
        prepared()
        assert machine.launched().alpha == 5.0


def test_a_capture_has_its_own_for_ever(machine: Machine) -> None:
    prepared = machine.prepare()
    prepared()
    eager = machine.launched()
    captured: list[Launched] = []
    for capture in (11, 11, 12):
        machine.fake.captures = {MAIN: capture}
        prepared()
        captured.append(machine.launched())
        machine.fake.captures = {}
        prepared()
        assert machine.launched() == eager
    assert captured[0] == captured[1]
    owned = [{x.partials, x.flags} for x in (eager, captured[0], captured[2])]
    assert not owned[0] & owned[1] and not owned[0] & owned[2] and not owned[1] & owned[2]
    del prepared
    machine.launcher = Launcher(b"\x7fELF", GEMM, Access())
    gc.collect()
    assert set(machine.fake.memory) == owned[1] | owned[2]


def test_prepared_within_a_capture(machine: Machine) -> None:
    """The kernel is loaded, but there is no memory for this stream yet; a growing one too."""
    machine.prepare()
    machine.stream = SIDE
    machine.fake.captures = {SIDE: 5}
    machine.prepare()()
    first = machine.launched()
    machine.prepare(m=1280)()
    assert machine.launched().partials != first.partials
    assert first.partials in machine.fake.memory
    gc.collect()


def test_memory_may_go_while_another_thread_captures(machine: Machine) -> None:
    prepared = machine.prepare()
    machine.fake.captures = {SIDE: 5}
    machine.launcher = Launcher(b"\x7fELF", GEMM, Access())
    del prepared
    gc.collect()
    assert not machine.fake.memory


@pytest.mark.parametrize("capturing", [False, True])
def test_too_little_memory(machine: Machine, capturing: bool) -> None:
    prepared = machine.prepare()
    machine.fake.capacity = 4 * SLOT
    if capturing:
        machine.fake.captures = {MAIN: 3}
    with pytest.raises(LaunchError, match=f"gemm needs {10 * SLOT} bytes of device") as caught:
        machine.prepare(m=1280)()
    assert "for workspace partials" in str(caught.value)
    assert "fewer splits" in str(caught.value)
    machine.fake.captures = {}
    prepared()
    machine.launched()


def test_more_lines_than_i32(machine: Machine) -> None:
    signature = replace(GEMM, scheduler="split_k", splits=2)
    machine.launcher = Launcher(b"\x7fELF", signature, Access())
    rejects("workspace partials, for 33552384 tiles", machine.prepare, m=2**31 - 2**17, n=512)


def test_threads(machine: Machine) -> None:
    """Each on a stream of its own, through one prepared call and through calls of its own."""
    prepared: Any = machine.prepare(stream=0x1000)
    current = threading.local()
    prepared._stream_of = lambda: current.stream
    errors: list[BaseException] = []
    start = threading.Barrier(8)

    def work(number: int) -> None:
        try:
            current.stream = 0x1000 + number % 4
            start.wait()
            for turn in range(40):
                prepared()
                machine.prepare(m=128 * (1 + (turn + number) % 5), stream=current.stream)()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    owner: dict[int, int] = {}
    for i, (stream, raw) in enumerate(machine.fake.launched):
        partials = struct.unpack_from("Q", raw, machine.format[2])[0]
        assert owner.setdefault(partials, stream) == stream, i
    prepared = None
    gc.collect()
    assert len(machine.fake.memory) == 2 * 4


@pytest.mark.parametrize("cluster", [1, 2])
def test_a_kernel_that_does_not_fit(machine: Machine, cluster: int) -> None:
    machine.fake.resident = machine.fake.clusters = 0
    machine.launcher = Launcher(b"\x7fELF", replace(GEMM, cluster=cluster), Access())
    what = "cluster" if cluster > 1 else "CTA"
    rejects(f"no {what} of gemm .200000 bytes of SMEM", machine.prepare)


def test_room_is_asked_for_once(machine: Machine) -> None:
    for _ in range(3):
        machine.prepare()
    query = "cuOccupancyMaxActiveBlocksPerMultiprocessor"
    assert machine.fake.log.count(query) == 1
    machine.launcher = Launcher(b"\x7fELF", replace(GEMM, scheduler="persistent"), Access())
    machine.prepare()
    assert machine.fake.log.count(query) == 1


def test_nothing_is_touched_before_the_kernel_in_front_is_over() -> None:
    """Launches on one stream share memory, and the next may start before the last one has ended."""
    case = CASES["epilogue"]
    body = case.kernel._compile(None, case.sizes, ()).scheduled.body
    waits = next(i for i, op in enumerate(body) if isinstance(op, GriddepWait))
    touching = (
        LoadGlobal,
        StoreGlobal,
        ThreadLoad,
        TmaLoad,
        TmaStore,
        SemaphoreArrive,
        SemaphoreWait,
    )
    assert not any(isinstance(op, touching) for op in walk(body[:waits]))
    assert any(isinstance(op, touching) for op in walk(body[waits:]))
