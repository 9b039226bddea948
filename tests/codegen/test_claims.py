"""PTX of clusters that claim others, which the assembler takes and the check compares."""

import re

import pytest

from tests.claimed_kernels import FORMS, claimed
from tests.codegen.support import needs_ptxas, ptx_of
from tests.codegen.test_tensor_memory import machine_code
from tests.kernels import CASES
from tests.tensor_memory import lowered
from wsdsl.diagnostics import VerifyError
from wsdsl.prover.ptx.check_ptx import check_skeleton
from wsdsl.schedule import Arch

ASK = "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes"
QUERY = "clusterlaunchcontrol.query_cancel"


@pytest.mark.parametrize("form", FORMS)
def test_one_thread_asks_and_each_partition_reads(form: str) -> None:
    ptx = ptx_of(claimed(form))
    check_skeleton(claimed(form), ptx)
    many = "" if form == "alone" else ".multicast::cluster::all"
    assert ptx.count("try_cancel") == ptx.count(f"{ASK}{many}.b128") == 1
    first = f"@there {QUERY}.get_first_ctaid::x.b32.b128 (%r\\d+), answer;"
    assert ptx.count("ld.shared.b128 answer") == len(re.findall(first, ptx)) == 3
    assert ptx.count("@there shr.u32") == (0 if form == "alone" else 3)


@needs_ptxas
@pytest.mark.parametrize("arch", ["sm_100a", "sm_103a"])
@pytest.mark.parametrize("form", FORMS)
def test_machine_code_asks_for_work(form: str, arch: Arch) -> None:
    kernel = lowered(CASES["gemm"], arch, tile=dict(m=128, n=256), **FORMS[form])
    machine_code(kernel, "UGETNEXTWORKID", 1)


def _without(line: str) -> str:
    return f"// {line}"


MUTANTS = {
    "asks nowhere": ("try_cancel", _without),
    "asks twice": ("try_cancel", lambda line: f"{line}\n{line}"),
    "for all": ("try_cancel", lambda line: line.replace(".b128", ".multicast::cluster::all.b128")),
    "to elsewhere": ("try_cancel", lambda line: line.replace("], [", "+16], [", 1)),
    "on another barrier": ("try_cancel", lambda line: line.replace("]; //", "+8]; //")),
    "never looks": ("is_canceled", _without),
    "takes any": ("get_first_ctaid", lambda line: line.replace("@there ", "")),
    "takes none": ("get_first_ctaid", _without),
    "of y": ("get_first_ctaid", lambda line: line.replace("::x", "::y")),
}


@pytest.mark.parametrize("what", MUTANTS)
def test_every_change_of_the_ptx_is_reported(what: str) -> None:
    kernel = claimed("alone")
    told, change = MUTANTS[what]
    lines = ptx_of(kernel).splitlines()
    places = [i for i, line in enumerate(lines) if told in line]
    assert places
    for i in places:
        broken = [*lines[:i], change(lines[i]), *lines[i + 1 :]]
        assert broken[i] != lines[i]
        with pytest.raises(VerifyError):
            check_skeleton(kernel, "\n".join(broken))
