"""Typed tree -> TILE: expressions are flattened to ops, values get readable names."""

from __future__ import annotations

from typing import Any

from wsdsl.diagnostics import Loc
from wsdsl.frontend import typed as t
from wsdsl.frontend.ranges import may_wrap
from wsdsl.ir import tile_ops as ops
from wsdsl.ir.op import Kernel, Op, Region, Value
from wsdsl.ir.types import I32, Axis, Tile
from wsdsl.ir.walk import Namer


def to_ir(kernel: t.TypedKernel) -> Kernel:
    converter = _Converter()
    params = tuple(converter.param(p) for p in kernel.params)
    body = converter.block(kernel.body)
    return Kernel(name=kernel.name, level="tile", params=params, body=body, loc=kernel.loc)


class _Converter:
    def __init__(self) -> None:
        self.namer = Namer()
        self.values: dict[t.Var, Value] = {}
        self.tensors: dict[str, Value] = {}
        self.axes: dict[str, Value] = {}
        self.ops: list[Op] = []

    def param(self, p: t.TensorRef | t.Var) -> Value:
        if isinstance(p, t.TensorRef):
            self.tensors[p.name] = Value(self.namer.new(p.name), p.type)
            return self.tensors[p.name]
        return self.name(p)

    def name(self, var: t.Var) -> Value:
        self.values[var] = Value(self.namer.new(var.hint), var.type)
        return self.values[var]

    def fresh(self, kind: Tile, wish: str = "t") -> Value:
        return Value(self.namer.new(wish), kind)

    def block(self, body: tuple[t.Statement, ...]) -> Region:
        outer, self.ops = self.ops, []
        axes = dict(self.axes)
        for statement in body:
            self.statement(statement)
        made, self.ops, self.axes = tuple(self.ops), outer, axes
        return made

    def region(self, body: tuple[t.Statement, ...], last: list[t.Expr], loc: Loc) -> Region:
        """A block that ends by handing on values."""
        outer, self.ops = self.ops, []
        axes = dict(self.axes)
        for statement in body:
            self.statement(statement)
        self.ops.append(ops.Yield(values=tuple(self.expr(e) for e in last), loc=loc))
        made, self.ops, self.axes = tuple(self.ops), outer, axes
        return made

    def statement(self, node: t.Statement) -> None:
        match node:
            case t.Let():
                self.values[node.var] = self.expr(node.value, node.var.hint)
            case t.Store():
                value = self.expr(node.value)
                self.ops.append(
                    ops.Store(
                        tensor=self.tensors[node.tensor.name],
                        index=tuple(self.entry(e, node.loc) for e in node.index),
                        value=value,
                        accumulate=node.accumulate,
                        loc=node.loc,
                    )
                )
            case t.ForTiles() | t.ForEach():
                self.loop(node)
            case t.If():
                cond = self.expr(node.cond)
                then = self.region(node.then, [m.then for m in node.merged], node.loc)
                orelse = self.region(node.orelse, [m.orelse for m in node.merged], node.loc)
                result = tuple(self.name(m.result) for m in node.merged)
                self.ops.append(
                    ops.If(result=result, cond=cond, then=then, orelse=orelse, loc=node.loc)
                )

    def loop(self, node: t.ForTiles | t.ForEach) -> None:
        init = tuple(self.expr(c.init) for c in node.carried)
        args = tuple(self.name(c.arg) for c in node.carried)
        last = [c.next for c in node.carried]
        if isinstance(node, t.ForTiles):
            start = None if node.start is None else self.expr(node.start)
            stop = None if node.stop is None else self.expr(node.stop)
            kind = Axis(node.axis.name, node.axis.dim, node.axis.by)
            index = Value(self.namer.new(node.axis.name), kind)
            outer = dict(self.axes)
            self.axes[node.axis.name] = index
            body = self.region(node.body, last, node.loc)
            self.axes = outer
            result = tuple(self.name(c.result) for c in node.carried)
            self.ops.append(
                ops.ForTiles(
                    result=result, index=index, start=start, stop=stop, init=init, args=args,
                    body=body, loc=node.loc,
                )
            )  # fmt: skip
            return
        index = self.name(node.var)
        body = self.region(node.body, last, node.loc)
        result = tuple(self.name(c.result) for c in node.carried)
        self.ops.append(
            ops.ForEach(
                result=result, dim=node.dim, index=index, init=init, args=args, body=body,
                loc=node.loc,
            )
        )  # fmt: skip

    def entry(self, entry: t.Entry, loc: Loc) -> Value:
        return self.axis(entry, loc) if isinstance(entry, t.AxisRef) else self.expr(entry)

    def axis(self, ref: t.AxisRef, loc: Loc) -> Value:
        if ref.name not in self.axes:
            made = Value(self.namer.new(ref.name), Axis(ref.name, ref.dim))
            self.ops.append(ops.Whole(result=made, loc=loc))
            self.axes[ref.name] = made
        return self.axes[ref.name]

    def expr(self, node: t.Expr, wish: str = "t") -> Value:
        loc = node.loc
        match node:
            case t.Ref():
                return self.values[node.var]
            case t.Const():
                made = self.fresh(node.type, wish if wish != "t" else "c")
                op: Op = ops.Constant(result=made, value=node.value, loc=loc)
            case t.Map():
                args = tuple(self.expr(a) for a in node.args)
                made = self.fresh(node.type, wish)
                op = ops.Map(result=made, fn=node.fn, args=args, wraps=may_wrap(node), loc=loc)
            case t.Cast():
                x = self.expr(node.x)
                made = self.fresh(node.type, wish)
                op = ops.Cast(result=made, x=x, loc=loc)
            case t.Bitcast():
                x = self.expr(node.x)
                made = self.fresh(node.type, wish)
                op = ops.Bitcast(result=made, x=x, loc=loc)
            case t.Contract():
                a, b = self.expr(node.a), self.expr(node.b)
                made = self.fresh(node.type, wish)
                op = ops.Contract(result=made, a=a, b=b, loc=loc)
            case t.Reduce():
                x = self.expr(node.x)
                made = self.fresh(node.type, wish)
                over = dict[str, Any](result=made, fn=node.fn, x=x, axis=node.axis.name, loc=loc)
                op = ops.ReduceBlocks(**over, size=node.per) if node.per else ops.Reduce(**over)
            case t.Scan():
                x = self.expr(node.x)
                made = self.fresh(node.type, wish)
                op = ops.Scan(result=made, x=x, axis=node.axis.name, loc=loc)
            case t.TopK():
                x, into = self.expr(node.x), self.axis(node.into, loc)
                before = tuple(self.expr(e) for e in node.before)
                made = self.fresh(node.type, wish)
                over = dict[str, Any](result=made, x=x, axis=node.axis.name, loc=loc)
                op = ops.TopK(**over, into=into, before=before, places=node.places)
            case t.Full():
                value = self.expr(node.value)
                for axis in node.axes:
                    self.axis(axis, loc)
                made = self.fresh(node.type, wish)
                op = ops.Full(result=made, value=value, loc=loc)
            case t.Index():
                axis_value = self.axis(node.axis, loc)
                made = self.fresh(node.type, wish)
                op = ops.Index(result=made, axis=axis_value, loc=loc)
            case t.End():
                axis_value = self.axis(node.axis, loc)
                made = self.fresh(node.type, wish)
                op = ops.End(result=made, axis=axis_value, loc=loc)
            case t.Load():
                index = tuple(self.entry(e, loc) for e in node.index)
                made = self.fresh(node.type, wish)
                tensor = self.tensors[node.tensor.name]
                op = ops.Load(result=made, tensor=tensor, index=index, loc=loc)
            case t.Lookup():
                i = self.expr(node.i)
                made = self.fresh(node.type, wish)
                op = ops.Lookup(result=made, table=self.tensors[node.table.name], i=i, loc=loc)
            case t.DimSize():
                made = self.fresh(Tile(I32), f"size_{node.dim}")
                op = ops.DimSize(result=made, dim=node.dim, loc=loc)
        self.ops.append(op)
        return made
