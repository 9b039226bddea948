"""`python -m benchmarks.records`: winners go into the file of text that is shipped."""

import dataclasses
from pathlib import Path

import pytest

from benchmarks import records
from tests.records.recorded import make_gemm, row
from wsdsl import config
from wsdsl.dispatch.kernel import Kernel
from wsdsl.records import text
from wsdsl.records.database import Database
from wsdsl.tune.result import Trial, Tuned


def test_winners_replace_what_was_shipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    old = [row(make_gemm(), sizes=name, source="shipped") for name in ("M = 1", "M = 2")]
    out = tmp_path / "h200.csv"
    out.write_text(text.to_text(old))

    def tune_for(self: Kernel, sizes: dict[str, int], **_: object) -> Tuned:
        assert sizes == dict(M=256, N=512, K=1024)
        new = dataclasses.replace(old[0], bursts=20.0, date="2999-01-01 00:00:00", source="tune")
        other = dataclasses.replace(new, device="another", sizes="M = 3")
        Database(tmp_path / "records.db").add([new, other])
        trial = Trial(new.whole)
        return Tuned("gemm", sizes, new.device, trial, [trial], None)

    monkeypatch.setattr(Kernel, "tune_for", tune_for)
    words = ["records", "--shape", "256x512x1024", "--out", str(out)]
    monkeypatch.setattr("sys.argv", words)
    with config.override(cache_dir=tmp_path):
        assert records.main() == 0
    assert "256x512x1024: stays" in (told := capsys.readouterr().out)
    assert "1 new record, 2 in all" in told
    held = {r.sizes: r for r in text.read(out)}
    assert {name: r.bursts for name, r in held.items()} == {"M = 1": 20.0, "M = 2": 31.25}
    assert {r.source for r in held.values()} == {"shipped"}


def test_a_file_is_of_a_card() -> None:
    names = {"NVIDIA H100 80GB HBM3": "h100", "NVIDIA H200": "h200", "NVIDIA GH200 480GB": "gh200"}
    assert {device: records.file_name(device) for device in names} == names
