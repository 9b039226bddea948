"""Blocks of `precompiling`, and executors that compile."""

import sys
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import pytest

import wsdsl
from tests.runtime import test_recent
from tests.test_ahead import gemm, on_card
from wsdsl import CompileError, LaunchError, Schedule, ScheduleError, config, parse, precompiling
from wsdsl.dispatch import compile_child
from wsdsl.kernels import matmul
from wsdsl.runtime.native.recorded_launches import recorder

TEXT = "@kernel\ndef add(X: f32[M], Y: f32[M]):\n for m in tiles(M):\n  Y[m] = X[m] + 1.0"
card, ones = test_recent.card, partial(np.ones, dtype="float32")


@pytest.fixture(autouse=True)
def without_ptxas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WSDSL_PTXAS", "off")


def is_built(kernel: wsdsl.Kernel, m: int) -> bool:
    return kernel._variants.find_bucket(None, dict(M=m), (), ()) is not None


def test_block_compiles_each_bucket_once(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tqdm", None)
    kernel, same = parse(TEXT).add, ones((64, 64))
    with precompiling(processes=1):
        assert [len(kernel(ones(m))) for m in (501, 502, 512)] == [501, 502, 512]
        assert matmul(same, same.T, operand_dtype="tf32").shape == (64, 64)
        assert not kernel._variants.choices
    assert capsys.readouterr().err == "precompile: 3 of 3 kernels\n"
    with precompiling():
        kernel(ones(503))
        matmul(same, same.T, operand_dtype="tf32")
    assert not capsys.readouterr().err and (kernel(ones(503)) == 2).all()


def test_block_compiles_nothing_when_it_raises() -> None:
    def run(m: int, *shape: int) -> None:
        with precompiling():
            kernel(ones(m)).reshape(*shape)

    kernel = parse(TEXT).add
    with ThreadPoolExecutor(1) as executor, precompiling(executor=executor):
        with pytest.raises(ValueError, match="reshape"):
            run(512, 7)
        run(1024, 32, 32)
        assert not is_built(kernel, 1024)
    assert is_built(kernel, 1024) and not is_built(kernel, 512)
    assert recorder.calls is recorder.launches is None


def test_block_compiles_while_it_runs() -> None:
    class Recorded(Executor):
        def submit(self, *_: Any, **__: Any) -> Any:
            jobs.append(Future())
            return jobs[-1]

    kernel, executor, jobs = parse(TEXT).add, Recorded(), list[Any]()
    with suppress(ZeroDivisionError), precompiling(executor=executor):
        kernel(ones(512)), kernel(ones(512))
        assert len(jobs) == 1
        with precompiling():
            kernel(ones(1024))
            assert len(jobs) == 1
        assert len(jobs) == 2
        raise ZeroDivisionError
    assert all(f.cancelled() for f in jobs)
    assert not is_built(kernel, 512) and not is_built(kernel, 1024)
    with ThreadPoolExecutor() as ended:
        pass
    with pytest.raises(CompileError, match=r"WS1141 .*shutdown"), precompiling(executor=ended):
        kernel(ones(512))


def test_block_records_only_its_thread() -> None:
    kernel = parse(TEXT).add
    with ThreadPoolExecutor(1) as other, precompiling():
        assert (other.submit(kernel, ones(512)).result() == 2).all()
    assert not is_built(kernel, 512)


def test_block_raises_errors_of_all_kernels() -> None:
    kernel, tiles = parse(TEXT).add, (dict(m=100), dict(m=103), None)
    run = precompiling()(lambda: [kernel(ones(9), schedule=Schedule(tile=t)) for t in tiles])
    with pytest.raises(ScheduleError) as caught:
        run()
    assert len(caught.value.findings) == 2
    assert [each.is_built for each in kernel._variants.choices.values()] == [True]


def test_block_launches_nothing_on_gpu(card: test_recent.Card) -> None:
    card.fake.args_bytes = 3 * 128
    kernel, new, given = gemm("block"), gemm("new"), on_card(64)
    with config.override(ptxas=""):
        compiled, prepared = kernel.compile(M=64, N=128, K=64), kernel.prepare(*given)
        kernel(*given)
    num = len(card.fake.launched)
    with precompiling():
        assert all(call(*given) is given[2] for call in (kernel, compiled, new))
        prepared()
        card.fake.captures[card.stream] = 1
        with pytest.raises(LaunchError, match="CUDA graph is captured in a `precompiling`"):
            kernel(*given)
    assert len(card.fake.launched) == num
    assert [each.is_built for each in new._variants.choices.values()] == [True]


def test_failure_of_processes_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_child, "compile_job", lambda job: 1 // 0)
    monkeypatch.setattr(sys, "executable", "absent")
    with pytest.raises(CompileError, match=r"could be started: .* 'absent'"):
        parse(TEXT).add.precompile(M=512)
    with ThreadPoolExecutor(1) as pool, pytest.raises(CompileError, match="not compile: ZeroDiv"):
        parse(TEXT).add.precompile(M=512, executor=pool)
