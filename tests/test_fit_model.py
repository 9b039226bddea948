"""The tool that holds the model of schedules against measurements."""

import json

import pytest

from tools import fit_model
from wsdsl import Schedule
from wsdsl.lowering import predict_handing


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
        patch.setattr(predict_handing, "WRITE_BYTES", predict_handing.WRITE_BYTES / 2)
        patch.setattr(predict_handing, "READ_BYTES", predict_handing.READ_BYTES / 2)
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
