"""Numbers that are the same for all tiles are loaded once."""

from wsdsl import Schedule, parse
from wsdsl.ir.barrier_ops import ForRange
from wsdsl.ir.memory_ops import LoadGlobal
from wsdsl.ir.op import Op
from wsdsl.ir.pipeline_ops import Partition
from wsdsl.ir.tile_ops import Map
from wsdsl.ir.types import F32, Tile
from wsdsl.ir.walk import walk

TEXT = """
@kernel
def scaled(A: f16[M, K], B: f16[N, K], a: f32[X], C: {out}[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += A[m, k] @ B[n, k]
        C[m, n] = {what}
"""


def consumer(what: str, out: str = "f16", **given: object) -> tuple[Op, ...]:
    schedule = Schedule(tile=dict(m=64, n=64, k=64), consumers=1, **given)
    made = parse(TEXT.format(what=what, out=out)).scaled.compile(schedule=schedule).scheduled
    (found,) = (p for p in made.body if isinstance(p, Partition) and p.role == "compute")
    return found.body


def loads(body: tuple[Op, ...]) -> tuple[int, int]:
    """In front of the first loop, and in or behind it."""
    first = next(i for i, op in enumerate(body) if isinstance(op, ForRange))
    counts = [
        sum(isinstance(op, LoadGlobal) for op in walk(b)) for b in (body[:first], body[first:])
    ]
    return counts[0], counts[1]


def is_f32(op: Map) -> bool:
    return isinstance(op.result.type, Tile) and op.result.type.dtype == F32


def test_loads_and_what_is_made_of_them_stand_in_front() -> None:
    body = consumer("acc * (a[0] * a[1])")
    assert loads(body) == (2, 0)
    first = next(i for i, op in enumerate(body) if isinstance(op, ForRange))
    assert any(isinstance(op, Map) and op.fn == "mul" and is_f32(op) for op in body[:first])


def test_also_where_each_cta_has_one_tile() -> None:
    assert loads(consumer("acc * a[0]", scheduler="grid")) == (1, 0)


def test_no_more_than_registers_are_left_for() -> None:
    sum = " * ".join(f"a[{i}]" for i in range(6))
    assert loads(consumer(f"acc * ({sum})")) == (4, 2)


def test_what_varies_stays() -> None:
    assert loads(consumer("acc * a[index(m) // 64]")) == (0, 1)
