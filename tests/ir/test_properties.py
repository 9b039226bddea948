"""Ops are documented, and `parse_kernel(str(k)) == k` for kernels made at random from the
ops' annotations, each op in some of them.
"""

import types
import typing
from dataclasses import MISSING, replace

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from wsdsl.diagnostics import Loc
from wsdsl.ir import types as t
from wsdsl.ir.op import LEVELS, Kernel, Op, Value
from wsdsl.ir.op_fields import fields_of, op_name
from wsdsl.ir.parser import OPS, parse_kernel
from wsdsl.ir.printer import print_op
from wsdsl.ir.rewriter import definitions, uses
from wsdsl.schedule import Schedule

names = st.from_regex(r"[A-Za-z_][A-Za-z_0-9]{0,8}", fullmatch=True)
dtypes = st.sampled_from(list(t.DTYPES.values()))
axes = st.lists(names, max_size=3).map(tuple)
some_axes = st.lists(names, min_size=1, max_size=3).map(tuple)
positive = st.integers(1, 1 << 20)
dims = st.lists(names | positive, min_size=1, max_size=4).map(tuple)
roles = st.sampled_from(["", "rows", "columns"])
lanes = st.builds(t.Lanes, positive, positive, st.booleans(), positive)
value_types = st.one_of(
    st.builds(t.Tile, dtypes, axes),
    st.builds(t.Tensor, dtypes, dims, st.booleans()),
    st.builds(t.Axis, names, names, st.integers(0, 512), roles, positive),
    st.builds(t.SharedTile, dtypes, some_axes),
    st.builds(t.Fragment, dtypes, positive, positive, st.sampled_from(["accumulator", "operand"])),
    st.builds(t.Fragment, dtypes, positive, positive, lanes=lanes),
    st.builds(t.Accumulator, dtypes, positive, positive),
    st.builds(t.Barriers, positive),
    st.builds(t.Shared, positive, positive),
    st.builds(t.TensorMemory, positive),
    st.builds(t.Columns, positive, positive),
    st.sampled_from([t.Ring(), t.Slot(), t.State(), t.TensorMap(), t.MatrixDescriptor()]),
)
sizes_by_name = st.dictionaries(names, positive, max_size=2)
schedules = st.builds(
    Schedule,
    tile=st.none() | sizes_by_name,
    stages=st.none() | st.integers(1, 32),
    mode=st.sampled_from([None, "cooperative", "pingpong"]),
    registers=st.none() | st.dictionaries(names, st.sampled_from([24, 40, 232]), max_size=2),
    raster=st.none() | names,
)


class Maker:
    """Draws ops whose operands are defined, and whose values have names of their own."""

    def __init__(self, draw):
        self.draw, self.values = draw, []

    def new(self) -> Value:
        value = Value(f"v{len(self.values)}", self.draw(value_types))
        self.values.append(value)
        return value

    def several(self, make, least=0) -> tuple:
        return tuple(make() for _ in range(self.draw(st.integers(least, 2))))

    def region(self, depth: int) -> tuple[Op, ...]:
        return self.several(lambda: self.op(depth)) if depth else ()

    def op(self, depth: int, name: str | None = None) -> Op:
        cls = OPS[name or self.draw(st.sampled_from(list(OPS)))]
        hints = typing.get_type_hints(cls)
        held = {}
        # Uses first: an op can not refer to what it defines itself.
        for order in ("operand", "attribute", "bind", "region", "result"):
            for name, kind in fields_of(cls):
                has_default = cls.__dataclass_fields__[name].default is not MISSING
                if kind != order or (has_default and self.draw(st.booleans())):
                    continue
                held[name] = (
                    self.region(depth - 1)
                    if kind == "region"
                    else self.field(hints[name], fresh=kind in ("bind", "result"))
                )
        return cls(**held)

    def field(self, hint, fresh: bool):
        origin, arguments = typing.get_origin(hint), typing.get_args(hint)
        if origin in (typing.Union, types.UnionType):
            return self.field(self.draw(st.sampled_from(arguments)), fresh)
        if origin is tuple and arguments[-1] is Ellipsis:
            return self.several(lambda: self.field(arguments[0], fresh))
        if origin is tuple:
            return tuple(self.field(a, fresh) for a in arguments)
        if hint is Value:
            return self.new() if fresh else self.draw(st.sampled_from(self.values))
        literals = {
            int: st.integers(),
            float: st.floats(allow_nan=False),
            bool: st.booleans(),
            str: st.text(),
            t.Tile: st.builds(t.Tile, dtypes, axes),
            types.NoneType: st.none(),
        }
        return self.draw(literals[hint])


@st.composite
def kernels(draw, first: str | None = None) -> Kernel:
    maker = Maker(draw)
    maker.new()
    params = tuple(maker.values) + maker.several(maker.new)
    return Kernel(
        name=draw(names),
        level=draw(st.sampled_from(LEVELS)),
        params=params,
        body=(maker.op(2, first), *maker.several(lambda: maker.op(2))),
        sizes=draw(sizes_by_name.map(lambda d: tuple(d.items()))),
        schedule=draw(st.none() | schedules),
    )


@pytest.mark.parametrize("name", OPS)
def test_op_is_documented_and_stands_at_some_level(name: str) -> None:
    cls = OPS[name]
    assert op_name(cls) == name
    assert cls.__doc__
    assert not cls.__doc__.startswith(f"{cls.__name__}("), "the docstring is the dataclass's own"
    assert cls.levels
    assert set(cls.levels) <= set(LEVELS)


@pytest.mark.parametrize("name", OPS)
@settings(max_examples=8, deadline=None, derandomize=True, phases=[Phase.generate])
@given(data=st.data())
def test_text_parses_back(name: str, data: st.DataObject) -> None:
    kernel = data.draw(kernels(name))
    text = str(kernel)
    again = parse_kernel(text)
    assert again == kernel
    assert str(again) == text
    op = again.body[0]
    moved = replace(op, loc=Loc("elsewhere.py", 7, 1, 2))
    assert op.loc is not None and moved == op and print_op(moved) == print_op(op)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(kernels())
def test_walks_see_every_value(kernel):
    names = [v.name for v in definitions(kernel)]
    assert len(names) == len(set(names))
    assert {v.name for v in uses(kernel.body)} <= set(names)
