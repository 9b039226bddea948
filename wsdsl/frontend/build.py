"""Lark's tree -> syntax tree. Reports programs that are in the grammar but not in the language."""

from dataclasses import replace
from typing import Literal, TypeGuard

from lark.lexer import Token
from lark.tree import Meta, Tree

from wsdsl.diagnostics import Finding, Loc, counted
from wsdsl.frontend import syntax as s
from wsdsl.frontend.foreign import meant
from wsdsl.frontend.operators import NUMBERS_HINT, constant, number
from wsdsl.frontend.source import Source

Item = Tree[Token] | Token | None


def _is_tree(item: Item) -> TypeGuard[Tree[Token]]:
    return isinstance(item, Tree)


def _trees(tree: Tree[Token]) -> list[Tree[Token]]:
    return [c for c in tree.children if _is_tree(c)]


Kind = Literal["kernel", "function"]


class Builder:
    """Builds the tree of one source, and collects `findings`.

    `kind` is that of a Python function, whose source here lacks its decorators.
    """

    def __init__(self, source: Source, kind: Kind | None = None) -> None:
        self.source = source
        self.kind: Kind | None = kind
        self.findings: list[Finding] = []
        self.at: Loc | None = None
        """The current statement, for an error about its nesting depth."""

    def report(self, message: str, loc: Loc, hint: str = "") -> None:
        self.findings.append(Finding(message, loc, hint))

    def _twice(self, named: str, loc: Loc) -> None:
        self.report(f"WS0117 {named} occurs twice", loc, "rename or remove one of them")

    def loc(self, at: Tree[Token] | Token) -> Loc:
        place: Meta | Token = at.meta if _is_tree(at) else at  # type: ignore[assignment]
        line, column = place.line or 1, place.column or 1
        return self.source.loc(line, column, place.end_line or line, place.end_column or column)

    # Files and definitions

    def module(self, tree: Tree[Token]) -> s.Module:
        found = s.Module({}, {}, {})
        for child in _trees(tree):
            if child.data == "definition":
                made = self.definition(child)
                if made.name in found.definitions:
                    self._twice(f"definition `{made.name}`", made.loc)
                found.definitions[made.name] = made
            elif child.data != "import_line":
                self._file_line(child, found)
        return found

    def _file_line(self, tree: Tree[Token], module: s.Module) -> None:
        """`M, N = dims("M N")`, `EPS = 1e-5` or a docstring."""
        if tree.data == "expression" and _trees(tree)[0].data == "string":
            return
        if tree.data == "assign":
            left, right = _trees(tree)
            names = self._plain_names(left)
            introduced = _dims_call(right)
            wrong = [n for n in introduced or [] if not (n.isidentifier() and n.isascii())]
            if wrong:
                hint = 'use A-Z a-z 0-9 _ in names, as in dims("M N K")'
                self.report(f"WS0118 `{wrong[0]}` cannot name a dimension", self.loc(right), hint)
                return
            if names and introduced is not None and len(names) == len(introduced):
                module.dims.update(zip(names, introduced, strict=True))
                return
            if names and introduced is not None:
                given, named = counted(len(introduced), "dimension"), counted(len(names), "name")
                hint = 'write one name per dimension, as in `M, N = dims("M N")`'
                self.report(f"WS0119 {given} cannot be assigned to {named}", self.loc(tree), hint)
                return
            before = len(self.findings)
            value = constant(self.expr(right))
            if names and len(names) == 1 and value is not None:
                module.constants[names[0]] = value
                return
            del self.findings[before:]
        message = "WS0120 this is not a kernel, a function, dims(…) or a constant"
        self.report(message, self.loc(tree), "move it into a kernel, or write NAME = number")

    def _plain_names(self, tree: Tree[Token]) -> list[str] | None:
        parts = _trees(tree) if tree.data == "tuple" else [tree]
        if any(p.data != "name" for p in parts):
            return None
        return [str(p.children[0]) for p in parts]

    def definition(self, tree: Tree[Token]) -> s.Definition:
        *decorators, name, params, _, suite = tree.children
        assert isinstance(name, Token) and _is_tree(suite)
        loc = self.loc(name)
        kind: Kind | None = self.kind
        if kind is None:
            kind = self._kind([d for d in decorators if _is_tree(d)], str(name), loc)
        made: list[s.Param] = []
        for p in _trees(params) if _is_tree(params) else []:
            pname, annotation = p.children
            assert isinstance(pname, Token)
            if any(m.name == pname for m in made):
                self._twice(f"parameter `{pname}`", self.loc(pname))
            type_ = self.expr(annotation) if _is_tree(annotation) else None
            made.append(s.Param(str(pname), type_, loc=self.loc(p)))
        body = self.suite(suite)
        self._check_returns(kind, body)
        return s.Definition(kind, str(name), tuple(made), body, loc=loc)

    def _kind(self, decorators: list[Tree[Token]], name: str, loc: Loc) -> Kind:
        kinds: list[str] = []
        for d in decorators:
            dotted, call = d.children
            assert _is_tree(dotted)
            kind = str(dotted.children[-1])
            if kind not in ("kernel", "function"):
                message = f"WS0121 `@{kind}` is not a decorator of the language"
                hint = "write @kernel above a kernel, @function above a function that it calls"
                self.report(message, self.loc(dotted), hint)
                return "kernel"
            kinds.append(kind)
            if _is_tree(call) and _trees(call):
                message = "WS0122 a decorator takes no arguments in a file or string"
                hint = "pass the schedule to the compiler: --set, or compile(schedule=…)"
                self.report(message, self.loc(call), hint)
        if kinds not in (["kernel"], ["function"]):
            message = f"WS0123 `{name}` is neither a kernel nor a function"
            self.report(message, loc, "write either @kernel or @function above the def")
        return "function" if kinds == ["function"] else "kernel"

    def _check_returns(
        self, kind: Kind, body: tuple[s.Statement, ...], inner: bool = False
    ) -> None:
        """Reject `return` in kernels, in `inner` blocks and before the end of a function."""
        for position, statement in enumerate(body):
            if isinstance(statement, s.Return):
                if kind == "kernel" or inner:
                    self._no_return(kind, statement)
                elif position != len(body) - 1:
                    message = "WS0124 `return` is not the last statement"
                    self.report(message, statement.loc, "remove the statements after it")
            elif isinstance(statement, s.For):
                self._check_returns(kind, statement.body, inner=True)
            elif isinstance(statement, s.If):
                self._check_returns(kind, statement.then + statement.orelse, inner=True)

    def _no_return(self, kind: Kind, statement: s.Return) -> None:
        if kind == "kernel":
            block, hint = "a kernel", "store the result in a tensor parameter: C[m, n] = x"
        else:
            block = "a loop or an `if`"
            hint = "assign to a name in it and return that name at the end of the function"
        self.report(f"WS0125 {block} cannot have a `return`", statement.loc, hint)

    # Statements

    def suite(self, tree: Tree[Token]) -> tuple[s.Statement, ...]:
        made: list[s.Statement] = []
        for child in _trees(tree):
            made.extend(self.statement(child))
        return tuple(made)

    def statement(self, tree: Tree[Token]) -> list[s.Statement]:
        self.at = loc = self.loc(tree)
        match str(tree.data):
            case "assign":
                left, right = _trees(tree)
                return [s.Assign(self.targets(left), self.expr(right), loc=loc)]
            case "augmented":
                left, op, right = tree.children
                assert _is_tree(left) and isinstance(op, Token) and _is_tree(right)
                return self._augmented(left, op, right, loc)
            case "expression":
                child = _trees(tree)[0]
                if child.data == "string":
                    return []
                return [s.ExprStatement(self.expr(child), loc=loc)]
            case "return_line":
                value = tree.children[0]
                return [s.Return(self.expr(value) if _is_tree(value) else None, loc=loc)]
            case "for_loop":
                return [self._for(tree)]
            case "if_chain":
                return [self._if(tree)]
            case _:  # pass
                return []

    def _augmented(
        self, left: Tree[Token], op: Token, right: Tree[Token], loc: Loc
    ) -> list[s.Statement]:
        targets = self.targets(left)
        value = self.expr(right)
        if len(targets) != 1:
            message = f"WS0126 `{op}` takes exactly one target"
            self.report(message, self.loc(left), f"write one `{op}` per line")
            return []
        return [s.Augmented(targets[0], str(op)[:-1], value, loc=loc, op_loc=self.loc(op))]

    def targets(self, tree: Tree[Token]) -> tuple[s.Expr, ...]:
        parts = _trees(tree) if tree.data == "tuple" else [tree]
        made: list[s.Expr] = []
        for part in parts:
            inner = _trees(part)[0] if part.data == "group" else part
            if inner.data not in ("name", "subscript"):
                message = "WS0127 only a name or an indexed tensor can be assigned to"
                self.report(message, self.loc(part), "write `acc = …` or `C[m, n] = …`")
            else:
                made.append(self.expr(inner))
        return tuple(made)

    def _for(self, tree: Tree[Token]) -> s.For:
        names, source, body = _trees(tree)
        targets: list[s.Name] = []
        for part in _trees(names) if names.data == "tuple" else [names]:
            if part.data == "name":
                targets.append(s.Name(str(part.children[0]), loc=self.loc(part)))
            else:
                message = "WS0128 a loop variable must be a name"
                self.report(message, self.loc(part), "write `for m, n in tiles(M, N):`")
        start, end = tree.meta, source.meta
        loc = self.source.loc(start.line, start.column, end.end_line, end.end_column)
        return s.For(tuple(targets), self.expr(source), self.suite(body), loc=loc)

    def _if(self, tree: Tree[Token]) -> s.If:
        *parts, last = tree.children
        cond, then, *elifs = [p for p in parts if _is_tree(p)]
        orelse: tuple[s.Statement, ...] = self.suite(_trees(last)[0]) if _is_tree(last) else ()
        for part in reversed(elifs):
            other, body = _trees(part)
            orelse = (self._branch(part, other, body, orelse),)
        return self._branch(tree, cond, then, orelse)

    def _branch(
        self,
        tree: Tree[Token],
        cond: Tree[Token],
        then: Tree[Token],
        orelse: tuple[s.Statement, ...],
    ) -> s.If:
        start, end = tree.meta, cond.meta
        loc = self.source.loc(start.line, start.column, end.end_line, end.end_column)
        return s.If(self.expr(cond), self.suite(then), orelse, loc=loc)

    # Expressions

    def expr(self, tree: Tree[Token]) -> s.Expr:
        loc = self.loc(tree)
        match str(tree.data):
            case "name":
                return s.Name(str(tree.children[0]), loc=loc)
            case "number":
                value = number(str(tree.children[0]))
                if value is None:
                    message = "WS0129 this number does not fit any element type"
                    self.report(message, loc, NUMBERS_HINT)
                return s.Number(0 if value is None else value, loc=loc)
            case "constant":
                return s.Number(str(tree.children[0]) == "True", loc=loc)
            case "string":
                hint = "write types and `inf` without quotes, and remarks as # comments"
                self.report("WS0130 a kernel cannot contain strings", loc, hint)
                return s.Number(0, loc=loc)
            case "group":
                return replace(self.expr(_trees(tree)[0]), loc=loc)
            case "unary":
                op, operand = tree.children
                assert _is_tree(operand)
                return s.Unary(str(op), self.expr(operand), loc=loc)
            case "binary" | "comparison":
                return self._binary(tree, loc)
            case "call":
                return self._call(tree, loc)
            case "subscript":
                base, entries = _trees(tree)
                made = tuple(
                    s.Colon(loc=self.loc(base if e.meta.empty else e))
                    if e.data == "whole"
                    else self.expr(e)
                    for e in _trees(entries)
                )
                return s.Subscript(self.expr(base), made, loc=loc)
            case _:  # tuple
                return s.TupleExpr(tuple(self.expr(t) for t in _trees(tree)), loc=loc)

    def _binary(self, tree: Tree[Token], loc: Loc) -> s.Expr:
        left, op, right, *more = tree.children
        assert _is_tree(left) and isinstance(op, Token) and _is_tree(right)
        if more:
            message = f"WS0131 a comparison takes 2 values, not {2 + len(more) // 2}"
            self.report(message, loc, "compare in pairs: (a <= b) & (b < c)")
        return s.Binary(str(op), self.expr(left), self.expr(right), loc=loc, op_loc=self.loc(op))

    def _call(self, tree: Tree[Token], loc: Loc) -> s.Expr:
        function, arguments = tree.children
        assert _is_tree(function)
        args: list[s.Expr] = []
        keywords: list[s.Keyword] = []
        quiet = len(self.findings)
        for a in _trees(arguments) if _is_tree(arguments) else []:
            if a.data == "keyword":
                name, value = a.children
                assert _is_tree(value)
                if any(k.name == name for k in keywords):
                    self._twice(f"argument `{name}=`", self.loc(a))
                keywords.append(s.Keyword(str(name), self.expr(value), loc=self.loc(a)))
            else:
                if keywords:
                    message = "WS0132 a positional argument follows a keyword argument"
                    self.report(
                        message, self.loc(a), "write keyword arguments last: max(x, over=k)"
                    )
                args.append(self.expr(a))
        if function.data == "name" and function.children[0] == "print":
            del self.findings[quiet:]
            self.report("WS0133 a kernel cannot print", loc, meant("print"))
        return s.Call(self.expr(function), tuple(args), tuple(keywords), loc=loc)


def _dims_call(tree: Tree[Token]) -> list[str] | None:
    """The names of `dims("M N")`."""
    if tree.data != "call":
        return None
    function, arguments = tree.children
    if not (_is_tree(function) and _is_tree(arguments) and len(arguments.children) == 1):
        return None
    argument = _trees(arguments)[0]
    if function.data != "name" or function.children[0] != "dims" or argument.data != "string":
        return None
    return str(argument.children[0]).strip("\"'").replace(",", " ").split()
