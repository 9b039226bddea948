"""What must not be taken for equal: two sides of a ring that run, or load, by what looks alike."""

from random import Random
from typing import Any

import pytest

from tests.prover.handshake import PRODUCE, ring, verdict
from wsdsl.ir.parser import parse_kernel
from wsdsl.prover.machine.symbolic_terms import FOLD, apply


def two_bounds(more: str, load: str, compute: str) -> str:
    """Each side of the ring has its own number of iterations."""
    head, tail = str(ring()).split('  partition(role="compute"')
    text = head.replace("stop=%size", f"stop={load}") + '  partition(role="compute"'
    text += tail.replace("stop=%size", f"stop={compute}")
    before = '  partition(role="load"'
    return verdict(parse_kernel(text.replace(before, more + before, 1)))


CASTS = """  %h1: {0} = {2}(x=%size{4})
  %b1: i32 = cast(x=%h1)
  %h2: {1} = {2}(x=%size{3})
  %b2: i32 = cast(x=%h2)
"""


@pytest.mark.parametrize(
    ("one", "other", "op", "option", "found"),
    [
        ("i16", "i16", "cast", "", ""),
        ("i8", "i16", "cast", "", "deadlock"),
        ("bf16", "f32", "cast", "", "deadlock"),
        ("i8", "i8", "cast", ", saturate=True", "deadlock"),
        ("f32", "u32", "bitcast", "", "deadlock"),
    ],
)
def test_casts(one: str, other: str, op: str, option: str, found: str) -> None:
    assert two_bounds(CASTS.format(one, other, op, option, ""), "%b1", "%b2") == found


MAPS = """  %wide: f32 = cast(x=%size)
  %e1: f32 = map(fn="exp", args=(%wide,))
  %b1: i32 = cast(x=%e1)
  %e2: f32 = map(fn="exp", args=(%wide,){0})
  %b2: i32 = cast(x=%e2)
"""


@pytest.mark.parametrize(("option", "found"), [("", ""), (", bits=8", "deadlock")])
def test_functions_of_other_precision(option: str, found: str) -> None:
    assert two_bounds(MAPS.format(option), "%b1", "%b2") == found


def loaded_if(*conditions: str) -> str:
    """Loads of the producer under each of the conditions."""
    wait, *load = PRODUCE.strip().splitlines()
    made = [wait]
    for n, condition in enumerate(conditions):
        made += [
            f"%l{n}: bool = map({condition})",
            f"if(cond=%l{n}) {{",
            *load,
            "yield() } { yield() }",
        ]
    return "\n".join(made)


FLOATS = """  %one: i32 = constant(value=1)
  %fx: f32 = load_global(tensor=%F, index=(%zero,))
  %fy: f32 = load_global(tensor=%F, index=(%one,))
"""


@pytest.mark.parametrize(
    ("conditions", "found"),
    [
        (('fn="lt", args=(%size, %limit)', 'fn="ge", args=(%size, %limit)'), ""),
        (('fn="lt", args=(%fx, %fy)', 'fn="ge", args=(%fx, %fy)'), "deadlock"),
        (('fn="eq", args=(%fx, %fx)',), "deadlock"),
    ],
)
def test_nan_is_neither_less_nor_more(conditions: tuple[str, ...], found: str) -> None:
    before = '  partition(role="load"'
    text = str(ring()).replace("%n: tensor<i32[1]>", "%n: tensor<i32[1]>, %F: tensor<f32[2]>")
    start, end = text.index("mbarrier_wait(barriers=%empty"), text.index("%p1: state")
    text = text[:start] + loaded_if(*conditions) + "\n" + text[end:]
    assert verdict(parse_kernel(text.replace(before, FLOATS + before, 1))) == found


def test_constants_wrap_as_their_dtype_does() -> None:
    more = """  %big: i32 = constant(value=1073741824)
  %four: i32 = constant(value=4)
  %product: i32 = map(fn="mul", args=(%big, %four))
  %some: bool = map(fn="gt", args=(%product, %zero))
  %other: i32 = map(fn="where", args=(%some, %size, %zero))
"""
    assert two_bounds(more, "%other", "%size") == "deadlock"
    assert two_bounds(more, "%other", "%zero") == ""


@pytest.mark.parametrize(("step", "found"), [("num_ctas()", ""), ("constant(value=0)", "misuse")])
def test_steps_are_positive(step: str, found: str) -> None:
    """What is read from memory as a step the spec refuses."""
    text, own = str(ring()), "%step: i32 = constant(value=64)"
    assert own in text
    assert verdict(parse_kernel(text.replace(own, f"%step: i32 = {step}"))) == found


def summed(name: str, step: str, fn: str = "add", start: str = "%zero") -> str:
    """A number that a loop makes, and which never comes again."""
    return f"""
    %{name}: i32 = for_range(index=%{name}_i: i32, start=%zero, stop=%limit, step=%step,
        init=({start},), args=(%{name}_1: i32,)) {{
      %{name}_v: i32 = load_global(tensor=%n, index=({step},))
      %{name}_2: i32 = map(fn="{fn}", args=(%{name}_1, %{name}_v))
      yield(values=(%{name}_2,))
    }}
"""


@pytest.mark.parametrize(
    ("compute", "found"),
    [
        (summed("t", "%t_i"), ""),
        (summed("t", "%t_i", "max"), "deadlock"),
        (summed("t", "%t_1"), "deadlock"),
        (summed("t", "%t_i", start="%step"), "deadlock"),
    ],
)
def test_what_loops_carry(compute: str, found: str) -> None:
    head, tail = str(ring()).split('  partition(role="compute") {\n')
    head = head.replace('(role="load") {\n', '(role="load") {\n' + summed("s", "%s_i"))
    head = head.replace("stop=%size", "stop=%s")
    tail = compute + tail.replace("stop=%size", "stop=%t")
    assert verdict(parse_kernel(head + '  partition(role="compute") {\n' + tail)) == found


@pytest.mark.parametrize("by", [-1, 40])
def test_shifts_that_have_no_meaning_are_left_open(by: int) -> None:
    more = f"""  %by: i32 = constant(value={by})
  %stop: i32 = map(fn="shl", args=(%step, %by))
"""
    assert two_bounds(more, "%stop", "%stop") == ""
    assert two_bounds(more, "%stop", "%size") == "deadlock"


def as_i32(number: int) -> int:
    return (number + 2**31) % 2**32 - 2**31


def test_terms_are_what_they_stand_for() -> None:
    """Also where sums and products wrap: only how many CTAs there are is known to stay in i32."""
    random = Random(1)
    for _ in range(4000):
        ctas = random.choice((2, 4, 8))
        numbers: dict[Any, int] = {
            ("index", 1): random.choice((0, 1, 2**24, 2**30, 2**31 - 1, -(2**31), -3)),
            ("group", ctas): random.choice((0, 1, 5, (2**31 - 1) // ctas - 1)),
        }
        leaf = random.choice(list(numbers))
        made, number = leaf, numbers[leaf]
        for _ in range(random.choice((2, 3, 4))):
            fn = random.choice(("add", "mul", "mul", "sub", "floordiv", "mod"))
            by = random.choice((1, 2, 3, 4, 8, 128, 1 << 20))
            made, number = apply(fn, (made, by)), as_i32(FOLD[fn](number, by))
            assert value(made, numbers) == number, (made, numbers)


def value(term: Any, numbers: dict[Any, int]) -> int:
    if term in numbers:
        return numbers[term]
    if isinstance(term, int):
        return as_i32(term)
    fn, x, y = term
    return as_i32(FOLD[fn](value(x, numbers), value(y, numbers)))


def test_ctas_of_a_group_are_of_its_clusters() -> None:
    cta = apply("add", (apply("mul", (("group", 4), 4)), 3))
    assert apply("mod", (cta, 2)) == 1
    assert apply("floordiv", (cta, 4)) == ("group", 4)
