"""What is made of results: files merged, the report, the plots."""

import json

import pytest

from benchmarks import plot, plot_sweep, report, results
from benchmarks.suites import SUITES


def row(interleaved, sustained, run=0, **more):
    figures = {
        "interleaved": {"ratio": interleaved, "tflops": 700 * interleaved},
        "sustained": {"ratio": sustained, "tflops": 600 * sustained},
    }
    return {"correct": True, "error": 0.0017, "run": run, **figures, **more}


def held(suite, shape, **rows):
    found = {"torch": row(1.0, 1.0), **{n.replace("_", " "): r for n, r in rows.items()}}
    return {"suite": suite, "kind": "bf16", "shape": shape, "rows": found}


def result():
    refused = {"correct": False, "failure": "UnfitError: no", "run": 0}
    run = {"gpu": {"name": "H200"}, "versions": {"torch": "2.11"}, "date": "now", "command": "go"}
    return {
        "runs": [run],
        "contests": [
            held("square", "4096x4096x4096", wsdsl=row(1.04, 0.96), wsdsl_best=row(1.08, 1.05)),
            held("square", "8192x8192x8192", wsdsl=row(1.05, 1.05), quack=row(1.07, 1.02)),
            held("deep", "256x256x65536", wsdsl=row(0.5, 0.5), triton=refused),
        ],
    }


def test_a_run_is_read_and_two_are_merged(tmp_path):
    for i, rows in enumerate(({"wsdsl": row(1.0, 1.0)}, {"pallas": row(0.9, 0.9)})):
        told = {"gpu": {}, "versions": {}, "date": str(i), "command": "go"}
        (tmp_path / f"{i}.json").write_text(
            json.dumps(told | {"result": {"contests": [held("square", "1x1x1", **rows)]}})
        )
    merged = results.merge([results.load(tmp_path / f"{i}.json") for i in range(2)])
    assert [run["date"] for run in merged["runs"]] == ["0", "1"]
    rows = merged["contests"][0]["rows"]
    assert {name: r["run"] for name, r in rows.items()} == {"torch": 1, "wsdsl": 0, "pallas": 1}
    assert results.ratio_between(rows, "wsdsl", "pallas", "sustained") is None
    assert results.ratio_between(rows, "pallas", "torch", "sustained") == pytest.approx(0.9)


def test_a_run_of_which_nothing_is_left_is_left_out():
    def one(date, *shapes):
        contests = [held("square", shape, wsdsl=row(1.0, 1.0)) for shape in shapes]
        return {"runs": [{"date": date}], "contests": contests}

    merged = results.merge([one("0", "1x1x1"), one("1", "2x2x2"), one("2", "1x1x1")])
    assert [run["date"] for run in merged["runs"]] == ["1", "2"]
    found = {c["shape"]: {r["run"] for r in c["rows"].values()} for c in merged["contests"]}
    assert found == {"1x1x1": {1}, "2x2x2": {0}}


def test_the_report_marks_what_misses_its_target():
    text = report.report(result())
    assert "1.040 · **0.960** ✗" in text
    assert "1.080 · 1.050" in text
    assert "| wsdsl ÷ cuBLAS |" in text
    assert "mean ≥ 1.03, least ≥ 0.97" in text
    assert "triton: UnfitError: no (deep 256x256x65536)" in text
    assert text.count("### ") == 4  # two suites, all shapes, not measured


def swept(suite, *at):
    """Points of N with the throughput of cuBLAS, the default and our best."""
    return [
        held(
            suite,
            f"1024x{n}x{SUITES[suite][0].shape[2]}",
            torch=row(1.0, 1.0) | tflops(base),
            wsdsl=row(default / base, default / base) | tflops(default, base),
            wsdsl_best=row(best / base, best / base) | tflops(best, base),
        )
        for n, base, default, best in at
    ]


def tflops(own, base=None):
    figures = {"ratio": own / (base or own), "tflops": own}
    return {"interleaved": figures, "sustained": figures}


SWEPT_RESULT = {
    "runs": [],
    "contests": [
        *swept(
            "sweep-16384",
            (1536, 500, 600, 600),
            (2112, 400, 550, 600),
            (6000, 500, 550, 550),
            (384, 300, 285, 300),
        ),
        *swept("sweep-1024", (1536, 500, 600, 600), (2112, 250, 550, 550)),
    ],
}


def test_what_a_sweep_amounts_to():
    text = report.report(SWEPT_RESULT)
    lines = [
        [c.strip() for c in line.split("|")[1:-1]] for line in text.splitlines() if "|" in line
    ]
    assert lines[0] == ["", "K = 1024", "K = 16384", "target"]
    rows = {line[0]: line[2] for line in reversed(lines)}
    assert rows["least (at N)"] == "**0.950** ✗ (384) · **0.950** ✗ (384)"
    assert rows["saw-tooth from 1536 on: wsdsl"] == " · ".join(["**0.917** ✗ (1536, 2112)"] * 2)
    assert rows["saw-tooth: wsdsl"] == "0.475 (384, 1536) · 0.475 (384, 1536)"
    assert rows["saw-tooth: cuBLAS"].startswith("0.600 (384, 1536)")
    by_choice = [line[2] for line in lines if line[0] == "least (at N)"]
    assert by_choice[2] == "**0.917** ✗ (2112) · **0.917** ✗ (2112)"
    # The target of the saw-tooth is that of one sweep.
    assert [line[1] for line in lines if line[0] == "saw-tooth from 1536 on: wsdsl"] == [
        "0.917 (1536, 2112) · 0.917 (1536, 2112)"
    ]
    assert "all" not in text  # shapes of sweeps are not among those of the suites


def test_waves_begin_where_one_more_column_takes_another():
    assert plot_sweep.wave_starts((128, 256), 1024, 9000) == [4096, 8448]
    assert plot_sweep.wave_starts((128, 128), 1024, 7872) == [2048, 4224, 6272]


def test_the_plot_of_sweeps(tmp_path, import_optional):
    import_optional("matplotlib")
    plot_sweep.draw(SWEPT_RESULT, tmp_path / "sweep.svg")
    text = (tmp_path / "sweep.svg").read_text()
    assert "K = 1024 · interleaved" in text and "K = 16384 · sustained" in text
    assert "a new wave of 128 × 256 tiles begins" in text


def test_the_plot_has_every_shape(tmp_path, import_optional):
    import_optional("matplotlib")
    path = tmp_path / "gemm.svg"
    plot.draw(result(), path)
    text = path.read_text()
    assert "8192×8192×8192" in text
    assert "wsdsl best" in text
