"""Machine code that writes registers which a wgmma still reads is rejected."""

import ctypes
import re
import struct
from typing import Any
from unittest.mock import MagicMock

import pytest

import wsdsl
from tests.codegen.support import needs_ptxas
from tests.corpus.texts import TEXTS
from wsdsl import LaunchError, Schedule
from wsdsl.artifact.machine_code import OF_REGISTERS, WORD, functions, overwritten
from wsdsl.codegen import ptxas_diagnostics
from wsdsl.codegen.ptxas import assemble, find_nvdisasm
from wsdsl.codegen.ptxas_diagnostics import OverwrittenError
from wsdsl.runtime.loaded_module import Module

pytestmark = needs_ptxas
LDG = 0x181
SIZES = dict[str, Any](M=64, N=4096, K=4096)
LOOP = """
.version 8.3
.target sm_90a
.address_size 64
.visible .entry loop(.param .u64 p, .param .u32 n)
.maxntid 128
{
.reg .f32 %f<4>; .reg .b32 %a<4>; .reg .b32 %r<4>; .reg .b64 %p; .reg .b64 %d; .reg .pred %c;
ld.param.u64 %p, [p]; ld.param.u32 %r1, [n]; mov.u64 %d, 0;
mov.f32 %f0, 0f00000000; mov.f32 %f1, %f0; mov.f32 %f2, %f0; mov.f32 %f3, %f0;
again:
LOADS
wgmma.fence.sync.aligned;
wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16
    {%f0, %f1, %f2, %f3}, {%a0, %a1, %a2, %a3}, %d, 1, 1, 1, 0;
wgmma.commit_group.sync.aligned;
wgmma.wait_group.sync.aligned PENDING;
add.u32 %r1, %r1, -1; setp.ne.u32 %c, %r1, 0; add.s64 %p, %p, 4096; @%c bra again;
wgmma.wait_group.sync.aligned 0;
st.global.v4.f32 [%p], {%f0, %f1, %f2, %f3};
ret;
}
"""


def looped(pending: int) -> bytes:
    """An operand is written while as many groups as `pending` are in flight."""
    loads = "".join(f"ld.global.b32 %a{i}, [%p + {512 * i}];\n" for i in range(4))
    ptx = LOOP.replace("LOADS", loads).replace("PENDING", str(pending))
    assert OF_REGISTERS.search(ptx.encode())
    made = assemble(ptx)
    assert made is not None
    return made.cubin


def decoded() -> wsdsl.Kernel:
    return wsdsl.parse(TEXTS["decoded_weights"][0]).decoded_weights


def test_early_writes_are_found() -> None:
    assert overwritten(looped(0)) == {}
    (places,) = overwritten(looped(1)).values()
    words = functions(looped(1))["loop"]
    assert {words[place // WORD].kind for place in places} == {LDG}


def test_a_wait_that_leaves_too_much_is_seen() -> None:
    """In wsdsl's machine code, with one word changed."""
    compiled = decoded().compile(**SIZES)
    assert overwritten(compiled.cubin) == {}
    assert not OF_REGISTERS.search(
        decoded().compile(Schedule(operand_transform="smem"), **SIZES).ptx.encode()
    )
    waits = [w for w in functions(compiled.cubin)["decoded_weights"] if w.pending is not None]
    changed = compiled.cubin
    for wait in {*waits}:
        later = wait.high & ~0xF00 | 0x700
        changed = changed.replace(struct.pack("<QQ", *wait), struct.pack("<QQ", wait.low, later))
    assert [*overwritten(changed)] == ["decoded_weights"]


@pytest.mark.skipif(find_nvdisasm() is None, reason="needs nvdisasm")
def test_words_are_read_as_nvdisasm_reads_them() -> None:
    compiled = decoded().compile(**SIZES)
    words = functions(compiled.cubin)["decoded_weights"]
    shown = re.findall(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@\S+ )?(\S+) *(.*?) ?;", compiled.sass, re.M)
    assert len(shown) == len(words) > 500
    for (name, operands), word in zip(shown, words):
        found = re.match(r"(?:P\d|PT)?(?:, )?R(\d+)\b", operands)
        if name.startswith("HGMMA"):
            left = re.match(r"R\d+, R(\d+)", operands)
            assert {int(left[1]) + i for i in range(4)} if left else set() == {*word.operand}
            assert word.ends_group == ("gsb0" in operands)
        elif "DEPBAR" in name and "gsb0" in operands:
            assert word.pending == int(operands.split(", ")[1], 16)
        else:
            first = [r for r in word.written if r < 255][:1]
            assert first == ([int(found[1])] if found else []), (name, operands)


def of_operands(cubin: bytes) -> dict[str, list[int]]:
    """As if an assembler always gave them away."""
    held = {name: any(w.operand for w in words) for name, words in functions(cubin).items()}
    return {name: [0x40] for name, found in held.items() if found}


def test_operands_then_are_made_elsewhere_unless_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ptxas_diagnostics, "overwritten", of_operands)
    compiled = decoded().compile(**SIZES)
    assert compiled.schedule.operand_transform == "smem"
    assert "reuses registers" in compiled.explain()
    with pytest.raises(
        OverwrittenError, match=r"acc \+= .*\n.*\^\n.*13\.3 .*operand_transform=\"smem\""
    ):
        _ = decoded().compile(Schedule(operand_transform="registers"), **SIZES).cubin


@pytest.mark.parametrize("pending", [0, 1])
def test_code_from_the_driver_is_checked(pending: int, monkeypatch: pytest.MonkeyPatch) -> None:
    cubin, loaded = looped(pending), list[bytes]()
    held = ctypes.create_string_buffer(cubin)

    def call(function: str, *arguments: Any) -> Any:
        if function == "cuModuleLoadData":
            loaded.extend(arguments)
        made = {"cuLinkComplete": (ctypes.addressof(held), len(cubin)), "cuDriverGetVersion": 12090}
        return made.get(function, 0)

    monkeypatch.setattr("wsdsl.runtime.driver.call", call)
    monkeypatch.setattr("wsdsl.runtime.driver.api", MagicMock())
    module = Module(decoded().compile(**SIZES).ptx, "loop", 0)
    if pending == 0:
        assert module._load_image()[0] == 0 and loaded == [cubin]
        return
    with pytest.raises(
        LaunchError, match=r"assembler \(CUDA 12.9\) overwrites .*\n.*install ptxas"
    ):
        module._load_image()
    assert loaded == []
