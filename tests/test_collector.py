"""The collector is held back by whoever compiles, and comes back."""

import gc
from threading import Barrier, Thread

import pytest

from wsdsl.gc_pause import held_back


def test_it_comes_back_behind_the_last_of_several_threads() -> None:
    meet, seen = Barrier(2, timeout=10), list[bool]()

    def other() -> None:
        with held_back():
            meet.wait()
            meet.wait()
            seen.append(gc.isenabled())

    thread = Thread(target=other)
    thread.start()
    with held_back():
        meet.wait()
    assert not gc.isenabled()
    meet.wait()
    thread.join()
    assert seen == [False]
    assert gc.isenabled()


def test_it_comes_back_behind_an_error() -> None:
    with pytest.raises(ValueError, match="no"), held_back():
        raise ValueError("no")
    assert gc.isenabled()


def test_it_stays_off_for_who_had_it_off() -> None:
    gc.disable()
    try:
        with held_back():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
