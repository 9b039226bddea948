"""The command line: what it prints, its exit status, and a hint for every mistake."""

import dataclasses
import json
import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from wsdsl import config
from wsdsl.artifact.artifact import Artifact
from wsdsl.artifact.serialization import from_bytes, to_bytes
from wsdsl.cli import main
from wsdsl.cli.options import schedule_from
from wsdsl.schedule import Schedule

ROOT = Path(__file__).parents[1]
GEMM = str(ROOT / "examples" / "02_gemm.py")
ATTENTION = str(ROOT / "examples" / "07_attention.py")
SIZES = ["--size", "M=128", "N=128", "K=64"]
SMS = ["timeline", "--sms", GEMM, *SIZES]
TWO = """
def first(X: f32[M], Y: f32[M]):
    for m in tiles(M):
        Y[m] = X[m] + 1.0

def second(X: f32[M], Y: f32[M]):
    for m in tiles(M):
        Y[m] = X[m] * 2.0
"""


@pytest.fixture
def wsdsl(capsys):
    def run(*arguments):
        status = main([str(a) for a in arguments])
        out, err = capsys.readouterr()
        return status, out, err

    return run


@pytest.fixture
def two(tmp_path):
    path = tmp_path / "two.ws"
    path.write_text(TWO.replace("\ndef", "\n@kernel\ndef"))
    return path


def test_compile_prints_schedule_and_resources(wsdsl):
    status, out, _ = wsdsl("compile", GEMM)
    assert status == 0 and "Schedule(tile=dict(" in out and "smem_bytes" in out
    status, out, _ = wsdsl("compile", GEMM, "--json", "--set", "stages=3", "--set", "tile.n=128")
    told = json.loads(out)
    assert status == 0 and told["kernel"] == "gemm" and "stages=3" in told["schedule"]
    assert told["resources"]["smem_bytes"] > 0


@pytest.mark.sampled(2)
@pytest.mark.parametrize("level", ["tile", "partitioned", "scheduled"])
def test_dumped_ir_compiles_to_the_same_ptx(wsdsl, tmp_path, level):
    with config.override(ptxas="off"):
        wsdsl("compile", GEMM, "--emit", level, "--emit", "ptx", "-o", tmp_path)
        status, again, err = wsdsl("compile", tmp_path / f"gemm.{level}.ir", "--emit", "ptx")
    ptx = (tmp_path / "gemm.ptx").read_text()
    assert status == 0, err
    assert {p.name for p in tmp_path.iterdir()} == {"gemm.ptx", f"gemm.{level}.ir"}
    assert again == ptx
    told = wsdsl("run", tmp_path / f"gemm.{level}.ir", "--reference", GEMM, *SIZES)[1]
    assert "relative error" in told and "correct" in told


def test_run_makes_arrays_of_small_types(wsdsl, tmp_path):
    """Two to a byte, and scales that are numbers."""
    file = tmp_path / "small.ws"
    file.write_text(
        "@kernel\ndef small(X: i4[M, N], s: f8e8m0[M], Y: f32[M, N], Z: u4[M, N]):\n"
        "    for m, n in tiles(M, N):\n"
        "        Y[m, n] = cast(X[m, n], f32) * cast(s[m], f32)\n"
        "        Z[m, n] = bitcast(X[m, n], u4)\n"
    )
    sizes = ("--size", "M=40", "--size", "N=72")
    status, out, err = wsdsl("run", str(file), *sizes, "--backend", "simulator")
    assert status == 0, err
    assert "Y: relative error 0, correct" in out and "Z: relative error 0, correct" in out


def test_run_names_one_kernel_of_a_file(wsdsl, two):
    status, out, err = wsdsl("run", f"{two}:second", "--size", "M=70", "--backend", "simulator")
    assert status == 0 and "Y: relative error 0" in out, err


def test_doctor_has_rows(wsdsl):
    status, out, _ = wsdsl("doctor", "--json")
    assert status in (0, 1) and json.loads(out)


def test_cache(wsdsl, tmp_path, monkeypatch):
    status, _, err = wsdsl("cache")
    assert status == 2 and "set WSDSL_CACHE_DIR to a directory" in err
    monkeypatch.setenv("WSDSL_CACHE_DIR", str(tmp_path / "kept"))
    assert wsdsl("cache", "--check")[:1] == (0,)  # of an empty one
    assert wsdsl("compile", GEMM, *SIZES)[0] == 0
    status, out, _ = wsdsl("cache", "--json")
    told = json.loads(out)
    (row,) = told["kernels"]
    assert status == 0 and row["kernel"] == "gemm" and row["schedule"].startswith("Schedule(")
    assert told["bytes"] <= told["limit"] and told["damaged"] == 0
    status, out, _ = wsdsl("cache")
    assert status == 0 and "KiB  gemm\n" in out and "0 damaged" in out
    (tmp_path / "kept" / ("0" * 64 + ".entry")).write_bytes(b"no entry")
    assert wsdsl("cache", "--check", "--json")[0] == 1
    status, out, _ = wsdsl("cache", "--check")
    assert status == 1 and "1 damaged" in out
    monkeypatch.setattr("wsdsl.cli.disk_cache.emitter", lambda: "a later one")
    assert f"{told['entries']} of other versions" in wsdsl("cache")[1]
    assert f"{told['entries'] + 1} entries removed" in wsdsl("cache", "--clear")[1]
    assert not list((tmp_path / "kept").iterdir())


def test_cache_check_makes_what_an_entry_holds_again(wsdsl, two, tmp_path, monkeypatch):
    """An entry with a part of another kernel's, whose checksum is right."""
    monkeypatch.setenv("WSDSL_CACHE_DIR", str(tmp_path / "kept"))
    monkeypatch.setenv("WSDSL_PTXAS", "off")
    for arguments in ([f"{two}:first"], [GEMM, *SIZES]):
        assert wsdsl("compile", *arguments)[0] == 0
    held = [(f, from_bytes(f.stem, f.read_bytes())) for f in (tmp_path / "kept").glob("*.entry")]
    (path, own), (_, other) = [x for x in held if isinstance(x[1].value, Artifact)]
    assert wsdsl("cache", "--check")[0] == 0
    for field in ("deflated_ptx", "deflated_ir", "certificate", "signature"):
        value = dataclasses.replace(own.value, **{field: getattr(other.value, field)})
        path.write_bytes(to_bytes(own._replace(value=value)))
        status, out, _ = wsdsl("cache", "--check")
        assert status == 1 and "1 damaged" in out, field


def test_bench_lists_what_there_is(wsdsl, monkeypatch):
    monkeypatch.chdir(ROOT)
    status, out, _ = wsdsl("bench")
    assert status == 0 and {"gemm", "compile_time", "device"} <= set(out.split())


SET, RUN = ["compile", GEMM, "--set"], ["run", GEMM, *SIZES]
GIVEN = ["explain", GEMM, *SIZES, "--schedule"]
MISTAKES = [
    ([], "required", "--help"),
    (["compyle"], "compyle", "--help"),
    (["compile", "nowhere.py"], "nowhere.py", ""),
    (["compile", "README.md"], "not a kernel's source file", ".ws"),
    (["compile", f"{GEMM}:gem"], "no kernel `gem`", "did you mean `gemm`?"),
    (["compile", GEMM, "--emit", "c"], "invalid choice", "--help"),
    ([*SET, "stage=4"], "no field `stage`", "did you mean `stages`?"),
    ([*SET, "tile=4"], "tile=4", "tile.m=128"),
    ([*SET, "tile.n=wide"], "not an integer", "tile.n=128"),
    ([*SET, "stages=99"], "Schedule.stages is 99", ""),
    ([*SET, "multicast=true"], "no CTAs", ": --set cluster.n=2"),
    ([*SET, "scheduler=split_k"], "needs Schedule.splits", "--set splits=4;"),
    ([*SET, "sf_load=cp"], "needs a matmul", "--set arch=sm_100a"),
    (["compile", ATTENTION], "must be known at compile time", "--size D=128, or"),
    ([*SET, "stages"], "expected NAME=VALUE", "stages=4"),
    (["run", GEMM, "--size", "M=64"], "needs a size for K, N", "--size K=512 N=512"),
    (["run", GEMM, "--size", "M=x", "N=1", "K=1"], "'x' is not a size", "--size M=512"),
    ([*RUN, "P=3"], "no dimension `P`", "M, K, N"),
    ([*RUN, "--scalar", "alpha=1"], "no scalar `alpha`", ""),
    ([*RUN, "--scalar", "alpha=x"], "'x' is not a number", "alpha=0.5"),
    ([*GIVEN, "print(1)"], "not a schedule", "tile=dict(n=128)"),
    ([*GIVEN, "Schedule(tiles=1)"], "has no `tiles`", "`tile`"),
    ([*GIVEN, "Schedule(tile={[]: 3})"], "not a schedule", "tile="),
    ([*GIVEN, "Schedule(stages=4, stages=5)"], "not a schedule", ""),
    ([*GIVEN, ""], "not a schedule", "tile="),
    (["schedule", "kernel.ir", *SIZES], "is dumped IR", ".ws file"),
    ([*SMS, "-o", "t.gif"], "has the suffix of no figure", "timeline.svg"),
    (["schedule", GEMM, "--size", "M=0", "N=1", "K=1"], "has no tiles", ""),
    (["compile", GEMM, "--emit", "tile", "-o", "README.md"], "README.md", ""),
    ([*RUN, "--seed", "-1"], "'-1' is not a non-negative integer", "--help"),
    (["run", GEMM, "--size", "M=1", "N=1", "K=99999999999999"], "`A` alone ", ""),
    (["run", GEMM, "--size", "M=10000000,N=10000000", "K=64"], "`C` alone 186,264.5", ""),
    (["run", "kernel.ir"], "kernel.ir is dumped IR", "--reference FILE.py"),
    ([*RUN, "--reference", GEMM], "--reference needs dumped IR", "leave it out"),
    (["bench", "nothing"], "benchmark", ""),
]


@pytest.mark.parametrize(
    ("arguments", "message", "hint"), MISTAKES, ids=[" ".join(m[0][-3:]) for m in MISTAKES]
)
def test_mistakes_have_a_hint_and_no_traceback(wsdsl, monkeypatch, arguments, message, hint):
    monkeypatch.chdir(ROOT)
    status, out, err = wsdsl(*arguments)
    assert status == 2 and out == "" and "Traceback" not in err
    assert message in err and hint in err


def test_where_it_runs_is_the_environments_unless_told(wsdsl, monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("WSDSL_BACKEND", "nowhere")
    status, _, err = wsdsl("run", GEMM, *SIZES)
    assert status == 2 and "WSDSL_BACKEND is 'nowhere'" in err
    assert wsdsl("run", GEMM, *SIZES, "--backend", "simulator")[0] == 0


def test_a_file_of_two_kernels_must_say_which(wsdsl, two):
    status, _, err = wsdsl("compile", two)
    assert status == 2 and f"{two}:first or {two}:second" in err


def test_errors_as_json(wsdsl):
    status, out, _ = wsdsl("compile", "nowhere.py", "--json")
    told = json.loads(out)
    assert status == 2 and told["error"] == "UsageError" and told["findings"][0]["message"]


def test_a_module_that_fails_to_import(wsdsl, tmp_path):
    path = tmp_path / "broken.py"
    path.write_text("import wsdsl_is_not_called_so\n")
    status, _, err = wsdsl("compile", path)
    assert status == 2 and "ModuleNotFoundError" in err and "the traceback" in err


def test_schedule_options_build_a_schedule(capsys):
    assert schedule_from([]) is None
    given = ["tile.m=128", "tile.n=192", "stages=4", "mode=cooperative", "registers.load=40"]
    assert schedule_from(given) == Schedule(
        tile={"m": 128, "n": 192}, stages=4, mode="cooperative", registers={"load": 40}
    )
    assert schedule_from(["constant=B"]) == Schedule(pdl_independent=("B",))
    assert schedule_from(["overlap=false"]) == Schedule(launch_pdl=False)
    assert schedule_from(["cluster.m=2", "multicast=false"]) == Schedule(
        cluster={"m": 2}, multicast=False
    )
    assert schedule_from(["constant=A,B"]) == Schedule(pdl_independent=("A", "B"))
    assert "`--set constant` is deprecated; use `--set pdl_independent`" in capsys.readouterr().err


def test_schedule_prints_and_draws_timeline(wsdsl, tmp_path, import_optional):
    import_optional("matplotlib")
    path = tmp_path / "nor" / "this" / "timeline.svg"
    sizes = ["--size", "M=1024", "--size", "N=2112", "--size", "K=16384"]
    given = 'Schedule(tile=dict(m=128, n=192), scheduler="stream_k")'
    status, out, err = wsdsl("timeline", "--sms", GEMM, *sizes, "--schedule", given, "-o", path)
    assert status == 0, err
    assert "132 SMs, 88 tiles, 88 of them split: 176 work units" in out
    texts = [e.text or "" for e in ElementTree.parse(path).getroot().iter()]
    assert any('scheduler="stream_k"' in text for text in texts)


def test_schedule_as_json(wsdsl):
    sizes = ["--size", "M=4096", "N=4096", "K=1024"]
    status, out, err = wsdsl("schedule", GEMM, *sizes, "--set", "scheduler=persistent", "--json")
    told = json.loads(out)
    assert status == 0, err
    assert told["workers"] == 132 and told["pieces"] == told["tiles"]
    assert told["tiles_cut"] == 0 and 0 < told["idle"] < 1


def test_schedule_rejects_figure_without_matplotlib(wsdsl, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    status, _, err = wsdsl(*SMS, "-o", tmp_path / "timeline.png")
    assert status == 2 and "needs matplotlib" in err and "wsdsl[plot]" in err


def test_sweep_times_every_combination(wsdsl, tmp_path, import_optional):
    asked = ["sweep", "examples/02_gemm.py", "--predict", "--size", "M=1024,N=1024,K=1024"]
    status, out, _ = wsdsl(*asked, "--set", "stages=2,4,32", "--set", "tile.n=64,128")
    rows = [line.split() for line in out.splitlines()[1:-1]]
    assert status == 0 and [row[1:3] for row in rows[:2]] == [["2", "64"], ["2", "128"]]
    times = {tuple(row[1:3]): float(row[0]) for row in rows if row[0] != "–"}
    (best,) = re.findall(r"^fastest: --set stages=(\d+) --set tile.n=(\d+)$", out, re.MULTILINE)
    assert times[best] == min(times.values())
    assert len(times) == 4 and "bytes of SMEM" in out
    (point,) = json.loads(wsdsl(*asked, "--set", "stages=4", "--json")[1])["points"]
    assert point["predicted"] > 0 and "stages=4" in point["schedule"]
    assert "no field to vary" in wsdsl(*asked)[2]
    import_optional("matplotlib")
    path = tmp_path / "sweep.svg"
    assert wsdsl(*asked, "--set", "stages=2,4", "--set", "tile.n=64,128", "-o", path)[0] == 0
    assert "tile.n=128" in path.read_text()


def test_version(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("wsdsl 0.")


def test_a_folder_to_write_to_gets_all_levels(wsdsl, tmp_path):
    folder = tmp_path / "not" / "there"
    status, *_ = wsdsl("compile", GEMM, "-o", folder)
    assert status == 0
    suffixes = {path.name.partition(".")[2] for path in folder.iterdir()}
    assert {"tile.ir", "plan.txt", "scheduled.ir", "ll", "ptx"} <= suffixes
    assert "ptx_kernel" in (folder / "gemm.ll").read_text()
    assert "producer load" in (folder / "gemm.plan.txt").read_text()
    again = tmp_path / "again"
    assert wsdsl("compile", folder / "gemm.scheduled.ir", "-o", again)[0] == 0
    assert {path.name for path in again.iterdir()} == {
        path.name
        for path in folder.iterdir()
        if path.name not in ("gemm.tile.ir", "gemm.partitioned.ir", "gemm.plan.txt")
    }


def test_sums_in_memory_are_rounded_once_for_each_tile(wsdsl, tmp_path):
    path = tmp_path / "sums.ws"
    path.write_text(
        "@kernel\ndef sums(X: f32[M, N], S: bf16[M]):\n    for m, n in tiles(M, N):\n"
        "        S[m] += sum(X[m, n], over=n)\n"
    )
    given = "--size", "M=16,N=2048", "--backend", "simulator", "--set", "tile.n=16", "--json"
    status, out, _ = wsdsl("run", path, *given)
    (row,) = json.loads(out)["outputs"]
    assert status == 0 and 2**-8 < row["relative_error"] < row["limit"] < 2**-4


def test_sizes_are_those_of_outputs_that_no_input_tells(wsdsl, tmp_path):
    path = tmp_path / "iota.ws"
    path.write_text(
        "@kernel\ndef iota(Y: i32[M]):\n    for m in tiles(M):\n        Y[m] = index(m)\n"
    )
    assert wsdsl("run", path, "--size", "M=70", "--backend", "simulator")[0] == 0
