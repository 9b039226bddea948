"""Compiled in other processes: ahead of calls, and beside calls that another kernel serves."""

import os
import re
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import wsdsl
from tests.kernels import CASES
from tests.runtime import test_recent
from tests.runtime.fake_torch import Tensor
from wsdsl import CompileError, LaunchError, Schedule, ScheduleError, config
from wsdsl.ahead.jobs import Failed, Job
from wsdsl.ahead.process import Process
from wsdsl.ahead.progress import Bar
from wsdsl.artifact import cache
from wsdsl.background import in_fork, num_processes, spread
from wsdsl.child_process import ROOT, ChildProcess
from wsdsl.diagnostics import Finding
from wsdsl.dispatch import misses
from wsdsl.dispatch.compile_child import compile_job
from wsdsl.runtime import device

TEXT = CASES["gemm"].text
N, K = 128, 64


def gemm(word: str = "acc") -> wsdsl.Kernel:
    return wsdsl.parse(TEXT.replace("acc", word)).gemm


def on_card(m: int, k: int = K) -> list[Tensor]:
    return [Tensor(s, n << 34) for n, s in enumerate(((m, k), (N, k), (m, N)), 1)]


class Beside:
    """The process that compiles, which waits until it is `let` go on; what it was asked for."""

    def __init__(self) -> None:
        self.let, self.asked, self.failing = threading.Event(), list[Job](), False

    def run(self, job: Job) -> Any:
        self.asked.append(job)
        assert self.let.wait(60)
        return Failed((Finding("it is broken"),)) if self.failing else compile_job(job)


card = test_recent.card


@pytest.fixture
def beside(card: test_recent.Card, monkeypatch: pytest.MonkeyPatch) -> Iterator[Beside]:
    """On a GPU that is not there."""
    card.fake.args_bytes = 3 * 128
    monkeypatch.setattr(device, "num_sms_of", lambda _: 132)
    made = Beside()
    monkeypatch.setattr(misses, "compile_process", lambda: made)
    yield made
    made.let.set()


def wait_for(kernel: wsdsl.Kernel) -> None:
    for job in kernel._misses._jobs.values():
        job.exception()


def serving(kernel: wsdsl.Kernel, m: int) -> tuple[Any, bool]:
    return kernel.dispatch(kernel.resolve(on_card(m)), on_miss="nearest")


def test_no_call_waits_but_the_first(beside: Beside) -> None:
    kernel = gemm("first")
    kernel(*on_card(64), on_miss="nearest")
    first, settled = serving(kernel, 64)
    assert settled and not beside.asked
    for m in (33, 34, 57):
        kernel(*on_card(m), on_miss="nearest")
        assert serving(kernel, m) == (first, False)
    beside.let.set()
    wait_for(kernel)
    assert [dict(job.sizes)["M"] for job in beside.asked] == [40, 63]
    for m in (33, 34, 57):
        own, settled = serving(kernel, m)
        assert settled and own is kernel.compiled_for(kernel.resolve(on_card(m)))


def test_the_nearest_serves(beside: Beside) -> None:
    kernel = gemm("near")
    made = {m: kernel.compile(M=m, N=N, K=K) for m in (64, 8192)}
    assert serving(kernel, 100) == (made[64], False)
    assert serving(kernel, 7000) == (made[8192], False)


def test_what_can_not_take_a_call_does_not_serve_it(beside: Beside) -> None:
    """Pieces that wait for each other, and have no room."""
    kernel, given = gemm("room"), Schedule(scheduler="split_k", splits=4, reduction="parallel")
    sizes = dict(N=N, K=4096)
    made = kernel.compile(given, M=64, **sizes)
    call = kernel.resolve(on_card(100_000, 4096))
    assert made.signature.together and not misses.is_legal(made, call)
    assert misses.is_legal(made, kernel.resolve(on_card(64, 4096)))
    assert misses.nearest_variants(kernel._variants, given, call.dims, (), ()) == [made]
    assert kernel._misses.dispatch(call, given, ((), ())) is None


def test_failures_are_told_once(beside: Beside) -> None:
    kernel = gemm("failing")
    kernel.on_miss, beside.failing = "nearest", True
    kernel(*on_card(64))
    kernel(*on_card(33))
    beside.let.set()
    wait_for(kernel)
    with pytest.warns(RuntimeWarning, match="compiled for M 33 to 40.*: it is broken"):
        kernel(*on_card(33))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kernel(*on_card(33))
    assert len(beside.asked) == 1


def test_many_threads_ask_once(beside: Beside) -> None:
    kernel = gemm("threads")
    kernel.compile(M=64, N=N, K=K)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda m: serving(kernel, 33 + m % 3), range(64)))
    assert not any(settled for _, settled in found)
    beside.let.set()
    wait_for(kernel)
    assert len(beside.asked) == 1
    assert serving(kernel, 33)[1]


def test_a_fork_compiles_by_itself(beside: Beside, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = gemm("forked")
    kernel.compile(M=64, N=N, K=K)
    assert not serving(kernel, 33)[1]
    with kernel._variants._lock:
        pid = os.fork()
        if pid == 0:
            signal.alarm(60)
            monkeypatch.setattr(beside, "let", threading.Event())
            beside.let.set()
            ok = not serving(kernel, 33)[1]
            asked = kernel._misses._jobs.items()
            ended = [j.exception() for k, j in asked if k[0] == os.getpid()]
            os._exit(0 if ok and len(ended) == 1 and serving(kernel, 33)[1] else 1)
        assert os.waitpid(pid, 0)[1] == 0


def test_on_miss_is_a_word() -> None:
    word: Any = "soon"
    with pytest.raises(LaunchError, match="on_miss is 'soon', expected \"wait\" or"):
        gemm().dispatch(gemm().resolve(on_card(64)), on_miss=word)


@pytest.fixture(scope="module")
def process() -> Iterator[Process]:
    made = Process(compile_job)
    yield made
    made.close()


def job(**changes: Any) -> Job:
    kernel = gemm()
    sizes = (("K", K), ("M", 33), ("N", N))
    made = Job(str(kernel.tile_ir), None, None, sizes, (), ())
    return replace(made, config=made.config | {"ptxas": "off"}, **changes)


@pytest.mark.parametrize("num", [1, 3])
def test_a_process_makes_what_this_one_would(process: Process, num: int) -> None:
    kernel, asked = gemm(), job(num_processes=num)
    made = process.run(asked)
    assert not isinstance(made, Failed)
    with config.override(ptxas="off"):
        own = kernel.compile(kernel.dispatched_schedule(M=33, N=N, K=K), **dict(made.sizes))
        other = gemm("acc")
        other._variants.adopt_result(asked, made)
        found = other._variants.find_bucket(None, dict(M=33, N=N, K=K), (), ())
        assert found is not None and found.is_built and found.ptx == own.ptx


def test_fork_failure_repeats_call() -> None:
    me, old = os.getpid(), num_processes.set(3)
    assert spread(lambda x: x // (x < 4 or os.getpid() == me), range(8)) == [*range(8)]
    with pytest.raises(ZeroDivisionError):
        in_fork(lambda: 1 // 0)()
    num_processes.reset(old)


def test_what_a_process_refuses(process: Process) -> None:
    made = process.run(job(schedule=Schedule(tile=dict(m=100))))
    assert isinstance(made, Failed) and isinstance(made.error(), ScheduleError)
    made = process.run(job(text="no kernel"))
    assert isinstance(made, Failed) and isinstance(made.error(), CompileError)


def test_a_process_that_is_gone() -> None:
    made = Process(compile_job)
    os.kill(made.process.pid, signal.SIGKILL)
    found = made.run(job())
    assert isinstance(found, Failed) and "has ended" in str(found.error())
    made.close()


def test_answers_are_longer_than_a_pipe_holds() -> None:
    child, asked = ChildProcess("tests.echo_child"), b"x" * (1 << 20)
    child.send(asked)
    assert child.receive() == asked
    child.close()


def test_an_exit_does_not_wait() -> None:
    """Of a process for which another one compiles; that one ends too."""
    script = """
import subprocess, sys
from tests.test_ahead import gemm, job
from wsdsl.dispatch.misses import compile_process
from wsdsl.background import in_background
from wsdsl.child_process import ChildProcess

process = compile_process()
in_background(lambda: process.run(job(text="kernel " * 10_000_000)))
print(process.process.pid)
"""
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT, check=True)
    assert not done.stderr
    with pytest.raises(ProcessLookupError):
        os.kill(int(done.stdout), 0)


def test_warm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setenv("WSDSL_CACHE_DIR", str(tmp_path))
    monkeypatch.setitem(sys.modules, "tqdm", None)
    with config.override(ptxas="off"):
        kernel = gemm("warm")
        made = kernel.precompile(M=(5, 6, 64, 4096), N=N, K=[K], processes=1)
        assert 1 < len(made) <= 3 and all(compiled.is_built for compiled in made)
        assert "precompile gemm: 3 of 3 kernels" in capsys.readouterr().err
        assert kernel.precompile(M=6, N=N, K=K) == made[:1] and not capsys.readouterr().err
        cache.forget()
        again = gemm("warm")._variants.find_bucket(None, dict(M=7, N=N, K=K), (), ())
        assert again is not None and again.ptx == made[0].ptx
        with pytest.raises(
            CompileError, match=r"needs sizes for N\n.* as in gemm.precompile\(M=range"
        ):
            kernel.precompile(M=5, K=K)
        with pytest.raises(CompileError, match="expected sizes from 0"):
            kernel.precompile(M=[-1], N=N, K=K)


def test_bar_shows_progress_by_tqdm(import_optional: Any, capsys: Any) -> None:
    import_optional("tqdm")
    bar = Bar("tune gemm", 2)
    bar.step("fastest -1.0 %")
    bar.close()
    assert re.search(r"tune gemm:.* 1/2 .*fastest -1.0 %", capsys.readouterr().err)
