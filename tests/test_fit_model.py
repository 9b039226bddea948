"""The tool that holds the model of schedules against measurements."""

import json

import pytest

from tools import fit_model
from wsdsl import Schedule
from wsdsl.lowering.model import split_k_cost


@pytest.fixture
def rows(tmp_path):
    """As if sums were handed on at half the speed."""
    path = tmp_path / "measured.jsonl"
    cut = [Schedule(scheduler="split_k", splits=s, tile=dict(n=128, m=128)) for s in (2, 4, 8)]
    given = [Schedule(scheduler="persistent", tile=dict(n=64)), *cut]
    held = [dict(M=512, N=512, K=16384, schedule=repr(s), us=1.0) for s in given]
    held.append(dict(M=512, N=512, K=16384, schedule="cublas", us=1.0))
    path.write_text("\n".join(map(json.dumps, held)))
    found = fit_model.read(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(split_k_cost, "WRITE_BYTES", split_k_cost.WRITE_BYTES / 2)
        patch.setattr(split_k_cost, "READ_BYTES", split_k_cost.READ_BYTES / 2)
        for row in found:
            row.measured = row.predicted()
    return found


def test_a_fit_finds_back(rows, monkeypatch, capsys) -> None:
    assert len(rows) == 4  # without cuBLAS's
    for module, name in fit_model.CONSTANTS:
        monkeypatch.setattr(module, name, getattr(module, name))
    before = fit_model.loss(rows)
    fit_model.fit(rows)
    assert fit_model.loss(rows) < before / 4
    fit_model.show(rows)
    assert "512x512x16384" in capsys.readouterr().out


def test_result_files_are_read(tmp_path) -> None:
    tried = {
        "default": {"microseconds": 20.0, "sustained_microseconds": 20.0},
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
    found = fit_model.read(path)
    assert [(row.shape, row.measured) for row in found] == [
        ("512x512x1024", 20.0),
        ("512x512x1024", 30.0),
    ]
    assert [(row.schedule.tile or {})["n"] for row in found] == [64, 128]
