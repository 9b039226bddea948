"""Which names are read later: only those have to be carried by a loop or merged after an `if`.

Without it a temporary that two loops happen to share would make the second one sequential.
"""

from collections.abc import Iterable

from wsdsl.frontend import syntax as s

Names = frozenset[str]


def used(node: s.Expr | s.Colon) -> set[str]:
    """Names that an expression reads."""
    match node:
        case s.Name():
            return {node.name}
        case s.Unary():
            return used(node.operand)
        case s.Binary():
            return used(node.left) | used(node.right)
        case s.Call():
            return _all([node.function, *node.args, *(k.value for k in node.keywords)])
        case s.Subscript():
            return _all([node.base, *node.entries])
        case s.TupleExpr():
            return _all(node.items)
        case _:
            return set()


def _all(nodes: Iterable[s.Expr | s.Colon]) -> set[str]:
    return {name for node in nodes for name in used(node)}


def assigned(body: tuple[s.Statement, ...]) -> dict[str, None]:
    """Names that a block binds, loop variables left out; a dict for its order."""
    found: dict[str, None] = {}
    for statement in body:
        match statement:
            case s.Assign():
                found.update((t.name, None) for t in statement.targets if isinstance(t, s.Name))
            case s.Augmented():
                if isinstance(statement.target, s.Name):
                    found[statement.target.name] = None
            case s.For():
                found.update(assigned(statement.body))
            case s.If():
                found.update(assigned(statement.then))
                found.update(assigned(statement.orelse))
            case _:
                pass
    return found


def loop_variables(body: tuple[s.Statement, ...]) -> set[str]:
    """Of the loops in a block, and in those."""
    found = set[str]()
    for statement in body:
        if isinstance(statement, s.For):
            found |= {target.name for target in statement.targets}
            found |= loop_variables(statement.body)
        elif isinstance(statement, s.If):
            found |= loop_variables(statement.then) | loop_variables(statement.orelse)
    return found


class Liveness:
    """`after[id(loop or if)]`: names that are read after it; `around[id(loop)]`: names that are
    read after an iteration, by the next one or after the loop."""

    def __init__(self, definition: s.Definition) -> None:
        self.definition = definition  # keeps the nodes, and so their ids, alive
        self.after: dict[int, Names] = {}
        self.around: dict[int, Names] = {}
        self._exposed: dict[int, Names] = {}
        self._block(definition.body, frozenset())

    def _block(self, body: tuple[s.Statement, ...], after: Names) -> Names:
        for statement in reversed(body):
            after = self._before(statement, after)
        return after

    def _before(self, node: s.Statement, after: Names) -> Names:
        """Names that are live before `node`, given those after it."""
        match node:
            case s.Assign():
                names = {t.name for t in node.targets if isinstance(t, s.Name)}
                stored = _all(t for t in node.targets if not isinstance(t, s.Name))
                return frozenset((after - names) | stored | used(node.value))
            case s.Augmented():
                return after | used(node.target) | used(node.value)
            case s.For():
                around = after | self._exposed_by(node)
                self.after[id(node)] = after
                self.around[id(node)] = around
                self._block(node.body, around)
                return around | used(node.source)
            case s.If():
                self.after[id(node)] = after
                branches = self._block(node.then, after) | self._block(node.orelse, after)
                return branches | used(node.cond)
            case s.ExprStatement():
                return after | used(node.expr)
            case s.Return():
                return after | used(node.value) if node.value else after

    def _exposed_by(self, loop: s.For) -> Names:
        """Names that an iteration may read before it binds them; kept, or nests would cost 2^n."""
        if id(loop) not in self._exposed:
            inside = Liveness.__new__(Liveness)
            inside.after, inside.around, inside._exposed = {}, {}, self._exposed
            live = inside._block(loop.body, frozenset())
            self._exposed[id(loop)] = live - {t.name for t in loop.targets}
        return self._exposed[id(loop)]
