"""Typed tree -> TILE: expressions are flattened to ops, values get readable names."""

from typing import Any

from wsdsl.diagnostics import Loc
from wsdsl.frontend import typed_tree as t
from wsdsl.frontend.ranges import may_wrap
from wsdsl.ir import ops
from wsdsl.ir.op import Kernel, OneResult, Op, Region, Value
from wsdsl.ir.rewriter import Namer
from wsdsl.ir.types import I32, Axis, Tile


def to_ir(kernel: t.TypedKernel) -> Kernel:
    converter = _Converter()
    params = tuple(converter.param(p) for p in kernel.params)
    body = converter.region(kernel.body)
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

    def region(
        self,
        body: tuple[t.Statement, ...],
        last: list[t.Expr] | None = None,
        loc: Loc | None = None,
    ) -> Region:
        """A block; `last`: the values that it yields, if it is that of a loop or an `if`."""
        outer, self.ops = self.ops, []
        axes = dict(self.axes)
        for statement in body:
            self.statement(statement)
        if last is not None:
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
        outer = dict(self.axes)
        op: type[ops.DimLoop]
        fields: dict[str, Any]
        if isinstance(node, t.ForTiles):
            start = None if node.start is None else self.expr(node.start)
            stop = None if node.stop is None else self.expr(node.stop)
            kind = Axis(node.axis.name, node.axis.dim, node.axis.by)
            index = self.axes[node.axis.name] = Value(self.namer.new(node.axis.name), kind)
            op, fields = ops.ForTiles, dict(start=start, stop=stop)
        else:
            index = self.name(node.var)
            op, fields = ops.ForEach, dict(dim=node.dim)
        fields["body"] = self.region(node.body, [c.next for c in node.carried], node.loc)
        self.axes = outer
        result = tuple(self.name(c.result) for c in node.carried)
        self.ops.append(
            op(result=result, index=index, init=init, args=args, loc=node.loc, **fields)
        )

    def entry(self, entry: t.Entry, loc: Loc) -> Value:
        return self.axis(entry, loc) if isinstance(entry, t.AxisRef) else self.expr(entry)

    def axis(self, ref: t.AxisRef, loc: Loc) -> Value:
        if ref.name not in self.axes:
            made = Value(self.namer.new(ref.name), Axis(ref.name, ref.dim))
            self.ops.append(ops.Whole(result=made, loc=loc))
            self.axes[ref.name] = made
        return self.axes[ref.name]

    def expr(self, node: t.Expr, wish: str = "t") -> Value:
        loc, kind = node.loc, node.type
        op: type[OneResult]
        fields: dict[str, Any]
        match node:
            case t.Ref():
                return self.values[node.var]
            case t.Const():
                wish = wish if wish != "t" else "c"
                op, fields = ops.Constant, dict(value=node.value)
            case t.Map():
                args = tuple(self.expr(a) for a in node.args)
                op, fields = ops.Map, dict(fn=node.fn, args=args, wraps=may_wrap(node))
            case t.Cast():
                op, fields = ops.Cast, dict(x=self.expr(node.x))
            case t.Bitcast():
                op, fields = ops.Bitcast, dict(x=self.expr(node.x))
            case t.Contract():
                op, fields = ops.Contract, dict(a=self.expr(node.a), b=self.expr(node.b))
            case t.Reduce():
                op = ops.ReduceBlocks if node.per else ops.Reduce
                fields = dict(fn=node.fn, x=self.expr(node.x), axis=node.axis.name)
                fields |= dict(size=node.per) if node.per else {}
            case t.Scan():
                op, fields = ops.Scan, dict(x=self.expr(node.x), axis=node.axis.name)
            case t.TopK():
                x, into = self.expr(node.x), self.axis(node.into, loc)
                before = tuple(self.expr(e) for e in node.before)
                op, fields = ops.TopK, dict(x=x, axis=node.axis.name, into=into, before=before)
                fields["places"] = node.places
            case t.Full():
                op, fields = ops.Full, dict(value=self.expr(node.value))
                for axis in node.axes:
                    self.axis(axis, loc)
            case t.Index():
                op, fields = ops.Index, dict(axis=self.axis(node.axis, loc))
            case t.End():
                op, fields = ops.End, dict(axis=self.axis(node.axis, loc))
            case t.Load():
                index = tuple(self.entry(e, loc) for e in node.index)
                op, fields = ops.Load, dict(tensor=self.tensors[node.tensor.name], index=index)
            case t.Lookup():
                table = self.tensors[node.table.name]
                op, fields = ops.Lookup, dict(table=table, i=self.expr(node.i))
            case t.DimSize():
                kind, wish = Tile(I32), f"size_{node.dim}"
                op, fields = ops.DimSize, dict(dim=node.dim)
        made = Value(self.namer.new(wish), kind)
        self.ops.append(op(result=made, loc=loc, **fields))
        return made
