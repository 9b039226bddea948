"""Make a failing program smaller, as long as it fails in the same way."""

from __future__ import annotations

import ast
import copy
import time
from collections.abc import Callable, Iterator

SECONDS = 60.0


def shrunk(text: str, fails: Callable[[str], bool], seconds: float = SECONDS) -> str:
    """Greedily: statements, loops, parameters and parts of expressions are left out."""
    progress, end = True, time.perf_counter() + seconds
    while progress:
        progress = False
        for smaller in _smaller(text):
            if time.perf_counter() > end:
                return text
            if fails(smaller):
                text, progress = smaller, True
                break
    return text


def _smaller(text: str) -> Iterator[str]:
    """Every program with one thing less; the big things first."""
    tree = ast.parse(text)
    for number in range(_count(tree)):
        for change in (_Change(number, flat=False), _Change(number, flat=True)):
            made = change.visit(copy.deepcopy(tree))
            if change.changed:
                yield _written(made)
    for number in range(sum(isinstance(n, ast.arg) for n in ast.walk(tree))):
        made = copy.deepcopy(tree)
        for function in (n for n in ast.walk(made) if isinstance(n, ast.FunctionDef)):
            args = function.args.args
            if function.name == "made" and number < len(args):
                used = {n.id for n in ast.walk(function) if isinstance(n, ast.Name)}
                if args[number].arg not in used:
                    del args[number]
                    yield _written(made)
    for number in range(sum(isinstance(n, ast.expr) for n in ast.walk(tree))):
        for choice in range(4):
            inner = _Inner(number, choice)
            made = inner.visit(copy.deepcopy(tree))
            if inner.changed:
                yield _written(made)


def _written(tree: ast.AST) -> str:
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def _count(tree: ast.AST) -> int:
    return sum(isinstance(n, ast.stmt) for n in ast.walk(tree))


class _Change(ast.NodeTransformer):
    """Leave out one statement, or (flat) put its body in its place."""

    def __init__(self, number: int, flat: bool) -> None:
        self.number, self.flat, self.changed = number, flat, False

    def generic_visit(self, node: ast.AST) -> ast.AST | list[ast.stmt] | None:
        if isinstance(node, ast.stmt):
            self.number -= 1
            if self.number == -1:
                body = getattr(node, "body", None)
                if not self.flat and not (
                    isinstance(node, ast.FunctionDef) and node.name == "made"
                ):
                    self.changed = True
                    return None
                if self.flat and isinstance(node, ast.For | ast.If) and body:
                    self.changed = True
                    return list(body)
        found = super().generic_visit(node)
        if isinstance(node, ast.For | ast.If | ast.FunctionDef) and not node.body:
            node.body = [ast.Pass()]
        return found


class _Inner(ast.NodeTransformer):
    """Put one of its parts in an expression's place."""

    def __init__(self, number: int, choice: int) -> None:
        self.number, self.choice, self.changed = number, choice, False

    def generic_visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.expr):
            self.number -= 1
            if self.number == -1:
                parts = [n for n in ast.iter_child_nodes(node) if isinstance(n, ast.expr)]
                if isinstance(node, ast.Call):
                    parts = parts[1:]
                if isinstance(node, ast.Subscript):
                    parts = []
                if self.choice < len(parts):
                    self.changed = True
                    return parts[self.choice]
        return super().generic_visit(node)
