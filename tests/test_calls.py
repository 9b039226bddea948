"""What is given to a kernel beside arrays that fit: told by name, before anything runs."""

import pickle

import ml_dtypes
import numpy as np
import pytest

import wsdsl
from tests.case_table import matmul_text
from wsdsl import (
    CompileError,
    LaunchError,
    ParseError,
    Schedule,
    ScheduleError,
    WsdslError,
    config,
    dims,
    f32,
    kernel,
    tiles,
)
from wsdsl.ir.hardware.gmem_limits import MAX_SIZE

SOURCE = matmul_text(
    "scaled(A: bf16[M, K], B: bf16[N, K], s: f32, C: f32[M, N])",
    "A[m, k] @ B[n, k]",
    "C[m, n] = acc * s",
)
SCALED = wsdsl.parse(SOURCE).scaled
A = np.ones((8, 16), ml_dtypes.bfloat16)
C = np.zeros((8, 8), np.float32)


@pytest.mark.parametrize("more", [("x",), (1, 2)])
@pytest.mark.parametrize("way", [SCALED, SCALED.simulate, SCALED.reference])
def test_arguments_too_many(way, more) -> None:
    with pytest.raises(LaunchError, match=r"has [56] arguments, expected 4"):
        way(A, A, 1.0, C, *more)


@pytest.mark.parametrize("number", ["1e3", b"7", None, A])
def test_what_is_no_number(number) -> None:
    with pytest.raises(LaunchError, match="argument 3"):
        SCALED(A, A, number, C)


@pytest.mark.parametrize("size", [-1, 1.5, "64", MAX_SIZE + 1, None])
@pytest.mark.parametrize("way", ["compile", "schedule", "explain", "timeline"])
def test_what_is_no_size(way: str, size) -> None:
    with pytest.raises(CompileError, match=f"expected sizes from 0 to {MAX_SIZE}"):
        getattr(SCALED, way)(M=size, N=64, K=64)


def test_numpy_has_sizes_too() -> None:
    assert SCALED.schedule(M=np.int64(64)) == SCALED.schedule(M=64)


@pytest.mark.parametrize("schedule", [64, "persistent", dict(stages=4)])
def test_what_is_no_schedule(schedule) -> None:
    for way in (SCALED.compile, SCALED.schedule, SCALED.explain):
        with pytest.raises(ScheduleError, match="is not a schedule"):
            way(schedule)
    for way in (SCALED, SCALED.simulate):
        with pytest.raises(ScheduleError, match="is not a schedule"):
            way(A, A, 1.0, schedule=schedule)


@pytest.mark.parametrize("way", [wsdsl.parse, wsdsl.compile_ir])
def test_what_is_no_text(way) -> None:
    with pytest.raises(ParseError, match="the source is of type NoneType"):
        way(None)


def doubled_of(T) -> wsdsl.Kernel:
    M = dims("M")

    @kernel
    def doubled(X: T[M], Y: T[M]):
        """Twice X."""
        for m in tiles(M):
            Y[m] = X[m] + X[m]

    return doubled


DOUBLED = doubled_of(f32)


def test_a_factory_may_choose_the_element_type() -> None:
    np.testing.assert_array_equal(DOUBLED(np.ones(5, np.float32)), np.full(5, 2.0))


@pytest.mark.parametrize("way", [SCALED, SCALED.simulate, SCALED.reference])
def test_arguments_by_name(way) -> None:
    for named in (dict(B=A, s=2.0), dict(s=2.0, C=C.copy(), B=A)):
        np.testing.assert_array_equal(way(A, **named), np.full((8, 8), 32.0))
    np.testing.assert_array_equal(way(s=2.0, B=A, A=A), np.full((8, 8), 32.0))


@pytest.mark.parametrize(
    ("args", "named", "words"),
    [
        ((A,), dict(b=A, s=1.0), "has no `b`\n  hint: did you mean `B`"),
        ((A, A, 1.0), dict(shedule=None), "has no `shedule`\n  hint: did you mean `schedule`"),
        ((A, A), dict(s=1e300), "argument 3 (s): 1e+300 does not fit f32"),
        ((A, A), dict(A=A, s=1.0), "`A` is given by position and by name"),
        ((A,), dict(s=1.0), "`B` missing"),
        ((A, A, 1.0, C, C), dict(s=1.0), "has 5 arguments"),
    ],
)
def test_names_that_do_not_fit(args, named, words) -> None:
    with pytest.raises(LaunchError) as refused:
        SCALED(*args, **named)
    assert words in str(refused.value)


@pytest.mark.parametrize("names", ["self stream seed on_miss", "schedule arch exact self"])
def test_parameters_that_are_named_as_options(names: str) -> None:
    x, y, s, t = names.split()
    text = f"@kernel\ndef k({x}: f32[M], {y}: f32[M], {s}: f32, {t}: i32, Z: f32[M]):\n"
    text += f"    for m in tiles(M):\n        Z[m] = {x}[m] * {s} + {y}[m] * cast({t}, f32)"
    ones = np.ones(64, np.float32)
    renamed, given = wsdsl.parse(text).k, {x: ones, y: ones, s: 2.0, t: 3}
    with config.override(ptxas="off"):
        made = renamed.compile(M=64)
        for way in (renamed, renamed.simulate, renamed.reference, made, made.simulate):
            for num in range(5):
                assert (way(*[*given.values()][:num], **dict([*given.items()][num:])) == 5).all()
    assert (renamed.simulate(*given.values(), schedule=wsdsl.Schedule(), seed=3) == 5).all()


@pytest.mark.parametrize("name", ["schedule", "on_mis", "simulate", "tile"])
def test_attributes_that_are_not_set(name: str) -> None:
    with pytest.raises(
        WsdslError, match=rf"`{name}` of a kernel.*\n.*`?on_miss.*@kernel\(schedule="
    ):
        setattr(SCALED, name, None)


def test_a_schedule_of_all_calls() -> None:
    """Of forms and packed kernels, too; a call's own goes before it."""
    own, other = Schedule(tile=dict(p=64)), Schedule(tile=dict(p=128))
    scheduled = kernel(schedule=own)(at_the_top_python)
    for made in (scheduled, pickle.loads(pickle.dumps(scheduled)), scheduled.packed()):
        assert made.schedule().tile == made.compile().schedule.tile == {"p": 64}
        assert made.schedule(other).tile == {"p": 128}
    assert (scheduled(np.ones(300, np.float32)) == 2).all()
    with pytest.raises(ScheduleError, match="is not a schedule"):
        kernel(schedule=4)(at_the_top_python)
    with pytest.raises(ParseError, match=r"(?s)is above Schedule, not.*@kernel\(schedule="):
        kernel(own)


@pytest.mark.parametrize("field", ["tiles", "Stages", "num_stages", "zzz"])
def test_a_schedule_has_no_such_field(field: str) -> None:
    with pytest.raises(ScheduleError, match=f"has no `{field}`\n  hint: "):
        wsdsl.Schedule(**{field: 4})
    with pytest.raises(ScheduleError, match="did you mean `stages`"):
        wsdsl.Schedule(stage=4)
    with pytest.raises(ScheduleError, match="arch is None"):
        wsdsl.Schedule(arch=None)


def test_a_dimension_named_self() -> None:
    named = wsdsl.parse(SOURCE.replace("M", "self")).scaled
    ways = named.compile, named.schedule, named.plan, named.explain, named.dispatched_schedule
    assert all(way(self=64, N=64, K=64) for way in (*ways, named.shape_bucket, named.timeline))


def test_a_home_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WSDSL_CACHE_DIR", "~nobody-of-this-name/kept")
    with pytest.raises(WsdslError, match="WSDSL_CACHE_DIR is '~nobody"):
        config.CACHE_DIR.get()


def test_matmul_has_no_such_argument() -> None:
    with pytest.raises(LaunchError, match="has no `activaton`\n  hint: did you mean `activation`"):
        wsdsl.kernels.matmul(A, A.T, activaton="relu")


@pytest.mark.parametrize("given", [dict(M=37, N=29, K=51), dict(N=29, K=51)])
def test_what_is_compiled_for_sizes_takes_arrays_of_them(given: dict[str, int]) -> None:
    """Rows of 102 bytes are none that TMA takes."""
    a, b = (np.ones((n, 51), ml_dtypes.bfloat16) for n in (37, 29))
    with config.override(ptxas="off"):
        assert (SCALED.compile(**given)(a, b, 2.0) == 102).all()
        with pytest.raises(LaunchError, match="compile it for these sizes"):
            SCALED.compile()(a, b, 2.0)


P = dims("P")


def at_the_top_python(X: f32[P], Y: f32[P]):
    for p in tiles(P):
        Y[p] = X[p] + X[p]


@kernel
def at_the_top(X: f32[P], Y: f32[P]):
    for p in tiles(P):
        Y[p] = X[p] + X[p]


def test_a_kernel_is_named_as_its_function_is() -> None:
    assert DOUBLED.__name__ == "doubled" and DOUBLED.__doc__ == "Twice X."
    assert DOUBLED.__module__ == __name__


@pytest.mark.parametrize("made", [DOUBLED, SCALED])
def test_kernels_are_pickled(made: wsdsl.Kernel) -> None:
    again = pickle.loads(pickle.dumps(made))
    assert again.name == made.name and str(again.tile_ir) == str(made.tile_ir)
    assert again.source == made.source and again.__doc__ == made.__doc__


def test_a_kernel_that_a_module_has_is_pickled_by_its_name() -> None:
    assert pickle.loads(pickle.dumps(at_the_top)) is at_the_top
