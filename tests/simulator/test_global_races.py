"""Global memory without flags: CTAs may not read or write what others write."""

import numpy as np
import pytest

from wsdsl.ir.ops import StoreGlobal
from wsdsl.ir.parser import parse_kernel
from wsdsl.simulator.simulation import simulate
from wsdsl.simulator.simulation_error import SimulationError

HEAD = """
kernel shares @ scheduled (%X: tensor<f32[P]>, %Y: tensor<f32[P]>) {
  launch_grid(tiles=(("P", 1),), scheduler="grid")
  %i: i32 = cta_index()
  %zero: i32 = constant(value=0)
  %one: i32 = constant(value=1)
  %f: f32 = constant(value=1.0)
  %next: i32 = map(fn="add", args=(%i, %one))
"""
RIGHT = {
    "one's own": "store_global(tensor=%X, index=(%i,), value=%f)",
    "in place": "%v: f32 = load_global(tensor=%X, index=(%i,))\n"
    "named_barrier_sync(barrier=1, num_warpgroups=1)\n"
    "store_global(tensor=%X, index=(%i,), value=%v)",
    "atomically": "store_global(tensor=%X, index=(%zero,), value=%f, accumulate=True)",
    "only read": "%v: f32 = load_global(tensor=%X, index=(%zero,))\n"
    "store_global(tensor=%Y, index=(%i,), value=%v)",
    "past the end": "store_global(tensor=%X, index=(%i,), value=%f)\n"
    "elect() { %big: i32 = constant(value=99)\n"
    "%v: f32 = load_global(tensor=%X, index=(%big,)) }",
}
WRONG = {
    "all write one": (r"it writes X\[0\].*nothing orders CTA 0 and CTA 1",
                      "store_global(tensor=%X, index=(%zero,), value=%f)"),
    "reads the one before": (
        r"it reads X\[0\], which CTA 0 kernel warpgroup 0 accessed by store_global",
        "store_global(tensor=%X, index=(%i,), value=%f)\n"
        '%less: i32 = map(fn="sub", args=(%i, %one))\n'
        "%v: f32 = load_global(tensor=%X, index=(%less,))"),
    "reads the next one": (
        r"it writes X\[1\], which CTA 0 kernel warpgroup 0 accessed by load_global",
        "%v: f32 = load_global(tensor=%X, index=(%next,))\n"
        "store_global(tensor=%X, index=(%i,), value=%f)"),
    "reads a sum": (
        r"it (adds to|reads) X\[0\]",
        "store_global(tensor=%X, index=(%zero,), value=%f, accumulate=True)\n"
        "%v: f32 = load_global(tensor=%X, index=(%zero,))"),
    "writes a sum": (
        r"it (adds to|writes) X\[0\]",
        "store_global(tensor=%X, index=(%zero,), value=%f, accumulate=True)\n"
        "named_barrier_sync(barrier=1, num_warpgroups=1)\n"
        "store_global(tensor=%X, index=(%zero,), value=%f)"),
}  # fmt: skip


def run(body: str, seed: int, head: str = HEAD) -> list[float]:
    held = {"X": np.zeros(5, np.float32), "Y": np.zeros(5, np.float32)}
    simulate(parse_kernel(head + body + "\n}", "shares.ir"), held, seed=seed)
    return held["X"].tolist()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", RIGHT)
def test_right(name: str, seed: int) -> None:
    run(RIGHT[name], seed)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", WRONG)
def test_wrong(name: str, seed: int) -> None:
    message, body = WRONG[name]
    with pytest.raises(SimulationError, match=message) as caught:
        run(body, seed)
    assert caught.value.kind == "race"


def test_races_are_those_of_stated_effects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StoreGlobal, "effects", lambda *_: ())
    run(WRONG["all write one"][1], 0)


BY_TMA = """
kernel adds @ scheduled (%X: tensor<f32[P, Q]>) {
  launch_grid(tiles=(("P", 32),), scheduler="grid")
  %zero: i32 = constant(value=0)
  %f: f32 = constant(value=1.5)
  %staging: shared<8192 x 1> = allocate_shared(label="staging", offset=0)
  %map: tensor_map = make_tensor_map(tensor=%X, box=(16, 32), swizzle="128B")
  %v: frag<f32[64x32]> = full(value=%f)
  store_shared(value=%v, shared=%staging, item=%zero, swizzle="128B")
  fence_async_proxy()
  sync_warp()
  tma_store(map=%map, coordinates=(%zero, %zero), row_dim=0, shared=%staging, item=%zero,
    accumulate=True)
  tma_store_commit()
  tma_store_wait(pending=0, read=False)
}
"""


@pytest.mark.parametrize("seed", range(3))
def test_reductions_by_tma_commute(seed: int) -> None:
    """Two CTAs add to one box, which ends within the tensor; stores would be a race."""
    x = np.zeros((60, 40), np.float32)
    simulate(parse_kernel(BY_TMA), {"X": x}, seed=seed)
    assert (x[:, :32] == 3).all() and not x[:, 32:].any()
    stores = BY_TMA.replace("accumulate=True", "accumulate=False")
    with pytest.raises(SimulationError, match="nothing orders CTA 0 and CTA 1"):
        simulate(parse_kernel(stores), {"X": x}, seed=seed)


@pytest.mark.parametrize("seed", range(3))
def test_a_reduction_by_tma_is_not_read_at_once(seed: int) -> None:
    read = "%r: f32 = load_global(tensor=%X, index=(%zero, %zero))\n}"
    text = BY_TMA.rstrip()[:-1] + read
    with pytest.raises(SimulationError, match=r"it (reads|adds to) X\["):
        simulate(parse_kernel(text), {"X": np.zeros((60, 40), np.float32)}, seed=seed)


@pytest.mark.parametrize("seed", range(3))
def test_ctas_of_a_cluster_may_be_ordered(seed: int) -> None:
    text = """
kernel meet @ scheduled (%X: tensor<f32[P]>, %Y: tensor<f32[P]>) {
  launch_grid(tiles=(("P", 1),), scheduler="grid", cluster=2)
  %i: i32 = cta_index()
  %one: i32 = constant(value=1)
  %f: f32 = cast(x=%i)
  store_global(tensor=%X, index=(%i,), value=%f)
  sync_cluster()
  %other: i32 = map(fn="xor", args=(%i, %one))
  %v: f32 = load_global(tensor=%X, index=(%other,))
  store_global(tensor=%Y, index=(%i,), value=%v)
}
"""
    held = {"X": np.zeros(4, np.float32), "Y": np.zeros(4, np.float32)}
    simulate(parse_kernel(text), held, seed=seed)
    assert held["Y"].tolist() == [1, 0, 3, 2]
    with pytest.raises(SimulationError, match="no wait orders this after it"):
        simulate(parse_kernel(text.replace("  sync_cluster()\n", "")), held, seed=seed)


OVERLAPPING = HEAD.replace('scheduler="grid"', 'scheduler="grid", overlapping=True')


@pytest.mark.parametrize("seed", range(3))
def test_items_that_overlap_write_the_same_bits(seed: int) -> None:
    same = "store_global(tensor=%X, index=(%zero,), value=%f)"
    assert run(same, seed, OVERLAPPING) == [1, 0, 0, 0, 0]
    other = f"%g: f32 = cast(x=%i)\n{same.replace('%f', '%g')}"
    with pytest.raises(SimulationError, match=r"wrote other bits to X\[0\]") as caught:
        run(other, seed, OVERLAPPING)
    assert caught.value.kind == "overlap"


def test_items_that_overlap_write_nan_of_either_sign() -> None:
    """NumPy's NaN; the GPU's has no sign."""
    text = """
  %minus: f32 = constant(value=-1.0)
  %nan: f32 = map(fn="sqrt", args=(%minus,))
  %other: f32 = map(fn="neg", args=(%nan,))
  %odd: bool = map(fn="gt", args=(%i, %zero))
  %g: f32 = map(fn="where", args=(%odd, %nan, %other))
  store_global(tensor=%X, index=(%zero,), value=%g)"""
    assert np.isnan(run(text, 0, OVERLAPPING)[0])


@pytest.mark.parametrize("seed", range(3))
def test_boxes_that_overlap_have_the_same_bits(seed: int) -> None:
    stores = BY_TMA.replace("accumulate=True", "accumulate=False")
    stores = stores.replace('scheduler="grid"', 'scheduler="grid", overlapping=True')
    x = np.zeros((60, 40), np.float32)
    simulate(parse_kernel(stores), {"X": x}, seed=seed)
    assert (x[:, :32] == 1.5).all() and not x[:, 32:].any()
    own = "%i: i32 = cta_index()\n  %f: f32 = cast(x=%i)"
    other = stores.replace("%f: f32 = constant(value=1.5)", own)
    with pytest.raises(SimulationError, match=r"wrote other bits to X\[0, 0\]"):
        simulate(parse_kernel(other), {"X": x}, seed=seed)
