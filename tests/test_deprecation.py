"""Deprecated public names warn, and do what the new names do."""

import importlib
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.records.recorded import make_gemm
from wsdsl import Compiled, config
from wsdsl.cli import main
from wsdsl.ir import parser
from wsdsl.ir.op import FORMER_NAMES
from wsdsl.ir.op_fields import op_name

GEMM = make_gemm()
FILE = "examples/02_gemm.py --size M=1024 N=64 K=64"


def warns(text: str) -> Any:
    return pytest.warns(DeprecationWarning, match=f"^{text}$")


@pytest.mark.parametrize(("owner", "old", "new"), [
    (GEMM, "size_class", "shape_bucket"), (GEMM, "schedule_of_calls", "dispatched_schedule"),
    (GEMM, "warm", "precompile"), (GEMM, "tile", "tile_ir"),
    (Compiled(GEMM.tile_ir), "is_made", "is_built"),
])  # fmt: skip
def test_renamed_member_warns(owner: Any, old: str, new: str) -> None:
    kind = type(owner).__name__
    with warns(f"{kind}.{old} is deprecated; use {kind}.{new}"):
        assert getattr(owner, old) == getattr(owner, new)


def test_knobs_module_warns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "wsdsl.knobs", raising=False)
    with warns("wsdsl.knobs is deprecated; use wsdsl.config") as told:
        assert importlib.import_module("wsdsl.knobs").override is config.override
    assert told[0].filename == __file__


def test_renamed_variable_warns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WSDSL_TUNING_CACHE")
    monkeypatch.setenv("WSDSL_RECORDS", "off")
    with warns("WSDSL_RECORDS is deprecated; use WSDSL_TUNING_CACHE"):
        assert not config.TUNING_CACHE.get()
    with warns("override.records=.* use override.tuning_cache=.*"), config.override(records=True):
        assert config.TUNING_CACHE.get()


@pytest.mark.parametrize(("old", "new"), [
    ("records show g", "tuning-cache show g"), (f"schedule {FILE} --explain", f"explain {FILE}"),
    (f"schedule {FILE} -o t.gif", f"timeline --sms {FILE} -o t.gif"),
])  # fmt: skip
def test_renamed_command_warns(old: str, new: str, capsys: pytest.CaptureFixture[str]) -> None:
    expected = main(new.split()), *capsys.readouterr()
    status, (out, told) = main(old.split()), capsys.readouterr()
    note, _, err = told.partition("\n")
    assert (status, out, err) == expected
    assert f" is deprecated; use `wsdsl {new.split(' ex')[0].split(' sh')[0]}" in note


def test_old_names_of_ops_are_read() -> None:
    text = Path(__file__).with_name("samples").joinpath("gemm.scheduled.ir").read_text()
    older = text
    for old, cls in FORMER_NAMES.items():
        older = re.sub(rf"\b{op_name(cls)}\(", f"{old}(", older)
    assert older != text and parser.parse_kernel(older) == parser.parse_kernel(text)
