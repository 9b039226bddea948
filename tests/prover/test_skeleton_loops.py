"""Loops of the same bounds, one behind the other: LLVM asks once whether they run."""

from __future__ import annotations

import pytest

from wsdsl import parse
from wsdsl.codegen.ptx_emission import emit_ptx
from wsdsl.diagnostics import VerifyError
from wsdsl.prover.prove import prove
from wsdsl.prover.ptx.check_ptx import check_skeleton

KERNELS = parse("""
@kernel
def twice(X: f32[M, N], Y: f32[M, N], T: f32[M, N]):
    for n in tiles(N):
        for m in tiles(M):
            T[m, n] = X[m, n] * 2.0
        for m in tiles(M):
            T[m, n] += Y[m, n]

@kernel
def centred(X: f32[M, N], S: f32[N], Y: f32[M, N]):
    for n in tiles(N):
        s = zeros(f32[n])
        for m in tiles(M):
            s += sum(X[m, n], over=m)
        for m in tiles(M):
            S[n] = s
            Y[m, n] = X[m, n] - s
""")


@pytest.mark.parametrize(
    ("name", "change"),
    # Where both loops have the same events, one that is lost may be an iteration less.
    [("twice", ("8, 128", "9, 128")), ("centred", ("8, 512", "9, 512")), ("centred", None)],
    ids=str,
)
def test_meetings_of_either_loop_are_compared(name: str, change: tuple[str, str] | None) -> None:
    made = vars(KERNELS)[name]._compile(None, dict(M=300, N=200), ())
    lines = emit_ptx(made.llvm).splitlines()
    prove(made.scheduled)
    check_skeleton(made.scheduled, "\n".join(lines))
    meetings = [i for i, line in enumerate(lines) if "bar.sync" in line]
    assert len(meetings) > 1
    for at in meetings:
        line = lines[at].replace(*change) if change else ""
        assert line != lines[at]
        with pytest.raises(VerifyError):
            check_skeleton(made.scheduled, "\n".join([*lines[:at], line, *lines[at + 1 :]]))
