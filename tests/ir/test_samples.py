"""Every op is documented, and its text parses back to it."""

from dataclasses import replace

import pytest

from tests.ir.samples import SAMPLES
from wsdsl.diagnostics import Loc
from wsdsl.ir.op import LEVELS, op_name
from wsdsl.ir.parser import OPS, parse_kernel
from wsdsl.ir.printer import print_kernel, print_op
from wsdsl.ir.walk import walk


def sample_kernel(name: str) -> str:
    values, text = SAMPLES[name]
    body = "".join(f"  {line}\n" for line in text.splitlines())
    return f"kernel sample @ {OPS[name].levels[-1]} ({values}) {{\n{body}}}\n"


def test_every_op_has_a_sample_and_every_sample_an_op():
    assert sorted(SAMPLES) == sorted(OPS)


@pytest.mark.parametrize("name", OPS)
def test_op_is_documented_and_stands_at_some_level(name):
    cls = OPS[name]
    assert op_name(cls) == name
    assert cls.__doc__
    assert not cls.__doc__.startswith(f"{cls.__name__}("), "the docstring is the dataclass's own"
    assert cls.levels
    assert set(cls.levels) <= set(LEVELS)


@pytest.mark.parametrize("name", SAMPLES)
def test_round_trip(name):
    text = sample_kernel(name)
    kernel = parse_kernel(text)
    assert name in {op_name(type(op)) for op in walk(kernel.body)}
    assert print_kernel(kernel) == text
    assert parse_kernel(print_kernel(kernel)) == kernel
    assert str(kernel) == text


@pytest.mark.parametrize("name", SAMPLES)
def test_loc_takes_no_part_in_equality_or_text(name):
    op = parse_kernel(sample_kernel(name)).body[0]
    moved = replace(op, loc=Loc("elsewhere.py", 7, 1, 2))
    assert op.loc is not None
    assert moved == op
    assert print_op(moved) == print_op(op)
