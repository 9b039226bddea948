"""A schedule as text: its repr, read back."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from wsdsl.schedule import Schedule


def parse_schedule(text: str) -> Schedule:
    """A Schedule from its repr, which is read and not run. ValueError for what is none,
    ScheduleError for one that is wrong.
    """
    held: dict[str, Any] = {}
    try:
        for name, tree in _arguments(ast.parse(text.strip(), mode="eval").body, "Schedule"):
            if isinstance(tree, ast.Call):
                held[name] = {k: ast.literal_eval(v) for k, v in _arguments(tree, "dict")}
            else:
                held[name] = ast.literal_eval(tree)
    except (SyntaxError, TypeError, RecursionError, MemoryError) as error:
        raise ValueError(text) from error
    return Schedule(**held)


def _arguments(tree: ast.expr, name: str) -> Iterator[tuple[str, ast.expr]]:
    """Of a call of `name` by keywords. ValueError for anything else."""
    if not (isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and not tree.args):
        raise ValueError(name)
    given: set[str] = set()
    for keyword in tree.keywords:
        if tree.func.id != name or keyword.arg is None or keyword.arg in given:
            raise ValueError(name)
        given.add(keyword.arg)
        yield keyword.arg, keyword.value
