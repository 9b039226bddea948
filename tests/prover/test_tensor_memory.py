"""Break a kernel on tensor memory in every small way: the spec or the prover objects, or the change
is harmless for a reason that is written here.
"""

from __future__ import annotations

import pytest

from tests.simulator.kernels import run
from tests.tensor_memory import mutants, scheduled
from wsdsl.diagnostics import ProofError, VerifyError, WsdslError
from wsdsl.ir.op import Kernel
from wsdsl.ir.spec import verify
from wsdsl.prover.prove import prove

TWICE = ("tensor_fence", "sync_cta", "wait_barrier")
DATA = ("delete tensor_product", "twice tensor_product")


def name_of(what: str) -> str:
    change, _, op = what.partition(" op ")
    return f"{change} {op.split(': ', 1)[1].split(' = ')[-1].split('(')[0]}"


def is_harmless(what: str) -> bool:
    name = name_of(what)
    if name.startswith("twice") and name.split()[1] in TWICE:
        return True  # it orders what it ordered once
    # Behind the wait for a slot another one follows, with a fence, before the first product.
    return "tensor_fence" in name and "op 92:" in what


def objection(kernel: Kernel) -> str:
    try:
        verify(kernel)
        prove(kernel)
    except (VerifyError, ProofError) as error:
        return str(error)
    return ""


def test_every_mutant_is_caught() -> None:
    proved = [what for what, kernel in mutants(scheduled("gemm")) if not objection(kernel)]
    left = [what for what in proved if not is_harmless(what)]
    assert {name_of(what) for what in left} == {*DATA}, left


def test_data_mutants_give_wrong_values() -> None:
    for what, kernel in mutants(scheduled("gemm")):
        if name_of(what) in DATA:
            with pytest.raises((WsdslError, AssertionError)):
                run(kernel, 130, 130, 200)
