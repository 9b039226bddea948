"""Records compare, hash, print, copy and pickle as frozen dataclasses do."""

import copy
import pickle
from dataclasses import dataclass, field, replace
from typing import Any

from wsdsl.record import record


@dataclass(frozen=True, slots=True)
class Frozen:
    name: str
    sizes: tuple[int, ...] = ()
    note: Any = field(default=None, compare=False, repr=False)


@record
class Point:
    name: str
    sizes: tuple[int, ...] = ()
    note: Any = field(default=None, compare=False, repr=False)


class Special(Point):
    __slots__ = ()


@record
class Empty:
    def __repr__(self) -> str:
        return "own"


def test_record_is_a_frozen_dataclass() -> None:
    one, other = Point("a", (1, 2), note=[]), Point("b")
    assert one == Point("a", (1, 2)) != other and one != Frozen("a", (1, 2))
    assert hash(one) == hash(Point("a", (1, 2))) and {one: 1}[Point("a", (1, 2))] == 1
    assert repr(one) == repr(Frozen("a", (1, 2))).replace("Frozen", "Point")
    assert replace(other, sizes=(3,)) == Point("b", (3,))
    assert copy.deepcopy(one) == pickle.loads(pickle.dumps(one)) == one
    assert not hasattr(one, "__dict__")
    assert Special("b") == Special("b") != Point("b") != Special("b")
    assert Empty() == Empty() and hash(Empty()) == hash(Empty()) and repr(Empty()) == "own"
