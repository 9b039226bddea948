# ruff: noqa: E501 - lines of IR
"""What users see of the prover: certificates, errors, the command; and its place in compiling."""

import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import wsdsl
from tests.kernels import CASES
from tests.lowering.test_spread_rows import KERNELS
from tests.simulator.kernels import SAMPLES, sample, sample_text
from tests.simulator.test_samples import NAMES
from wsdsl import Schedule, config
from wsdsl.cli import main
from wsdsl.diagnostics import ProofError, VerifyError
from wsdsl.ir.ops import StorePartials
from wsdsl.ir.parser import OPS, parse_kernel
from wsdsl.prover.machine.explore import Explored, _explore, explore
from wsdsl.prover.machine.op_handlers import HANDLERS
from wsdsl.prover.prove import digest, prove
from wsdsl.schedule import Arch

ROOT = Path(__file__).parents[2]
NO_MODEL_NEEDED = {
    "elect", "for_range", "if", "yield",  # control, in machine/flatten.py
    "prefetch_tensor_map", "prefetch_tile", "prefetch_box",  # no other thread notices them
}  # fmt: skip


def test_every_scheduled_op_has_a_model() -> None:
    scheduled = {name for name, cls in OPS.items() if "scheduled" in cls.levels}
    assert scheduled - {name for name, cls in OPS.items() if cls in HANDLERS} == NO_MODEL_NEEDED


@pytest.mark.parametrize("name", NAMES)
def test_samples_are_proved(name: str) -> None:
    kernel = sample(name)
    certificate = prove(kernel)
    assert certificate.digest == digest(kernel)
    assert "for all sizes" in str(certificate) and "not proved: values" in str(certificate)


@pytest.mark.parametrize(
    ("schedule", "unaligned"),
    [
        # What threads copy of one loop they copy for their own CTA, and so are 16 rows of four.
        (Schedule(tile=dict(m=64, n=64), consumers=1, cluster=dict(m=2)), ("A", "B")),
        (Schedule(tile=dict(m=64, n=64), consumers=1, cluster=dict(n=2)), ("D", "E")),
        (Schedule(tile=dict(m=16, n=64), mma_m="n", cluster=dict(n=4)), ()),
    ],
    ids=repr,
)
def test_slots_of_a_ring_that_differ_in_who_could_share_them(
    schedule: Schedule, unaligned: tuple[str, ...]
) -> None:
    prove(CASES["two_loops"].kernel._compile(schedule, {}, unaligned).scheduled)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", CASES)
def test_proofs_are_quick(name: str) -> None:
    """The limit is 150 ms on two cores that do nothing else; here others may run beside."""
    case = CASES[name]
    kernel = case.kernel._compile(None, dict(case.sizes), ()).scheduled
    explore(kernel)
    started = time.process_time()
    explore(kernel)
    assert time.process_time() - started < 0.6


def test_slots_that_nobody_gives_back_are_proved_in_a_hurry(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """That a slot of `partials` has been read is known by the barrier of the next one."""
    schedule = Schedule(mode="pingpong", consumers=2)
    kernel = KERNELS.probabilities._compile(schedule, dict(M=4096, N=512, K=512), ()).scheduled
    assert any(op.barriers for op in kernel.of(StorePartials))
    monkeypatch.setattr("wsdsl.prover.machine.explore._explore", partial(hurried, _explore))
    explore(kernel)


def hurried(explore: Callable[..., Explored], *given: Any) -> Explored:
    assert given[2], "a guess has failed"
    return explore(*given)


def changed(name: str, *changes: tuple[str, str]) -> str:
    text = sample_text(name)
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return text


def test_ctas_end_together() -> None:
    with pytest.raises(ProofError) as caught:
        prove(parse_kernel(changed("gemm_cluster", ("  sync_cluster()\n}", "}"))))
    assert caught.value.counterexample.kind == "exit"


def test_prove_rejects_flags_outside_of_a_workspace() -> None:
    wait = "  %item: i32 = constant(value=0)\n  semaphore_wait(tensor=%F, index=(%item,), count=%item)\n"
    text = changed("gemm", ("%C: tensor<bf16[M, N]>)", "%C: tensor<bf16[M, N]>, %F: tensor<i32[P]>)"),
                   ("  %first: i32 = cta_index()\n", f"  %first: i32 = cta_index()\n{wait}"))  # fmt: skip
    with pytest.raises(ProofError, match="only flags of workspaces"):
        prove(parse_kernel(text))


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
def test_of_two_loops_alike_a_partition_runs_the_second_alone(arch: Arch) -> None:
    """It is met there by those who run both: they run equally often."""
    text = """
@kernel
def two(X: f16[M, K], Y: f16[N, K], Z: f16[M, K], W: u8[N, K], C: f32[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += X[m, k] @ Y[n, k]
        for k in tiles(K):
            acc += Z[m, k] @ cast(W[n, k], f16)
        C[m, n] = acc
"""
    asked = Schedule(arch=arch, operand_transform="smem", stages=2, tile=dict(m=128, n=64, k=64))
    assert wsdsl.parse(text).two.compile(schedule=asked).certificate is not None


def test_a_fragment_that_may_be_overwritten() -> None:
    text = sample_text("gemm_registers")
    start = text.index(", fragments=(")
    end = text.index(")", start) + 1
    with pytest.raises(ProofError, match="may be overwritten while this reads them"):
        prove(parse_kernel(text[:start] + text[end:]))


def test_compiling_proves_and_keeps_the_certificate() -> None:
    case = CASES["gemm"]
    with config.override(ptxas="off"):
        compiled = case.kernel.compile(**case.sizes)
    assert compiled.prove() is compiled.certificate
    assert compiled.certificate.digest == digest(compiled.scheduled)


def test_what_is_not_proved_is_not_assembled_but_can_be_simulated() -> None:
    text = changed("gemm", ("mbarrier_wait(barriers=%empty, state=%f1)", ""))
    compiled = wsdsl.compile_ir(text, "edited.ir")
    with pytest.raises(ProofError) as caught:
        _ = compiled.cubin
    found = caught.value.counterexample
    assert found.sizes is not None
    assert "edited.ir" in str(caught.value)
    told = str(caught.value).split("\n")
    (way,) = [i for i, line in enumerate(told) if "steps that lead to it" in line]
    assert any("hint: wait" in line for line in told[:way]) and way < 8 < len(told)


def test_a_barrier_that_codegen_loses_is_noticed() -> None:
    compiled = wsdsl.compile_ir(sample_text("gemm"))
    compiled.ptx = compiled.ptx.replace("fence.proxy.async.shared::cta", "// lost", 1)
    with pytest.raises(VerifyError, match=r"fence\.proxy\.async"):
        compiled.prove()


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prove", str(ROOT / "examples" / "02_gemm.py")]) == 0
    assert "no reachable deadlock" in capsys.readouterr().out
    assert main(["prove", str(SAMPLES / "gemm.scheduled.ir"), "--json"]) == 0
    (told,) = json.loads(capsys.readouterr().out)
    assert told["kernel"] == "gemm" and told["states"] > 0


def test_the_command_on_a_wrong_kernel(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "wrong.ir"
    path.write_text(changed("gemm", ('label="empty", arrivals=2', 'label="empty", arrivals=3')))
    assert main(["prove", str(path)]) == 2
    err = capsys.readouterr().err
    assert "deadlock" in err
    assert "waits here for parity" in err
