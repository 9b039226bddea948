"""The tool that holds the model of schedules against measurements."""

import json

import pytest

from benchmarks.predictions import Predicted
from tools import fit_model
from wsdsl import Schedule
from wsdsl.ir.hardware.target import H200
from wsdsl.lowering.cost_model import constants


@pytest.fixture
def kernels(tmp_path, monkeypatch):
    """As if what runs beside each other added up more."""
    given = [Schedule(tile=dict(m=m, n=n), consumers=1) for m in (64, 128) for n in (64, 128)]
    sizes = dict(M=512, N=512, K=128)
    rows = [dict(schedule=repr(s), us=1.0) for s in given]
    found = [[Predicted(fit_model.gemm.tile_ir, sizes, row, H200) for row in rows]]
    for name in fit_model.NAMES:
        monkeypatch.setattr(constants, name, getattr(constants, name))
    kept = constants.SHARPNESS
    fit_model.put("SHARPNESS", kept / 2)
    for row in found[0]:
        row.measured = row.microseconds
    fit_model.put("SHARPNESS", kept)
    yield found
    fit_model.put("SHARPNESS", kept)


def test_a_fit_finds_back(kernels, monkeypatch) -> None:
    before = fit_model.loss(kernels)
    monkeypatch.setattr(fit_model, "NAMES", ["SHARPNESS"])
    fit_model.fit(kernels)
    assert fit_model.loss(kernels) < before / 4


def test_result_files_are_read(tmp_path) -> None:
    tried = {
        "default": {"microseconds": 20.0},
        "tile.m=128 tile.n=128 mode=cooperative": {"microseconds": 30.0},
        "tile.n=256": {"failure": "no"},
    }
    ours = {"schedule": repr(Schedule(tile=dict(m=64, n=64), consumers=1))}
    rows = {"wsdsl": ours, "wsdsl best": {"variants": tried}}
    contests = [
        {"kind": "bf16", "shape": "512x512x1024", "rows": rows},
        {"kind": "int8", "shape": "512x512x1024", "rows": rows},
        {"kind": "bf16", "shape": "512x512x2048", "rows": {"wsdsl": {"failure": "no"}}},
    ]
    path = tmp_path / "measured.json"
    path.write_text(json.dumps({"runs": [], "contests": contests}))
    found = [rows for rows in fit_model.read(path) if rows]
    assert [row.measured for row in found[0]] == [20.0, 30.0] and len(found) == 1
    assert [(row.schedule.tile or {})["n"] for row in found[0]] == [64, 128]
