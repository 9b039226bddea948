"""What an op keeps of itself, and a kernel of its ops."""

from __future__ import annotations

import inspect

import pytest

from wsdsl.ir.op import Kernel, Op, Value, operands, regions, results_of, with_fields
from wsdsl.ir.ops import Constant, Load, Map, Store, Yield
from wsdsl.ir.types import I32, Tile

A, B, C = (Value(name, Tile(I32)) for name in "abc")
ONE, SUM = Constant(result=A, value=1), Map(result=B, fn="add", args=(A, A))


def test_asking_a_class_changes_nothing_of_its_ops() -> None:
    """As `help` does: a class that has no such fields keeps `()` for all of its ops."""
    inspect.getmembers(Op)
    inspect.getmembers(Yield)
    assert operands(Yield(values=(A,))) == (A,)
    assert (operands(SUM), results_of(SUM), regions(SUM)) == ((A, A), (B,), ())


def test_a_changed_op_has_nothing_of_the_old_one() -> None:
    assert operands(SUM) == (A, A)
    changed = with_fields(SUM, args=(A, C))
    assert operands(changed) == (A, C)
    assert changed == Map(result=B, fn="add", args=(A, C))
    with pytest.raises(TypeError, match="Map has no value"):
        with_fields(SUM, value=1)


def test_ops_of_several_classes_come_in_order() -> None:
    kernel = Kernel("k", "tile", (), (ONE, SUM, Constant(result=C, value=2)))
    assert [*kernel.of(Map, Constant, Load)] == [*kernel.body]
    assert [*kernel.of(Map)] == [SUM]
    assert not kernel.of(Load, Store)
    assert not kernel.of()


def test_a_kernel_with_its_own_body_stays_itself() -> None:
    kernel = Kernel("k", "tile", (), (ONE, SUM))
    assert kernel.with_body((ONE, SUM)) is kernel
    assert kernel.with_body((ONE,)).body == (ONE,)
