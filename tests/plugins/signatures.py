"""Signatures of the vLLM functions that examples/plugins/vllm overrides, from a wheel's sources.

`python -m tests.plugins.signatures WHEEL` writes them to vllm.json. Nothing of vLLM is imported.
"""

import ast
import json
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

RECORD = Path(__file__).with_name("vllm.json")
PLUGIN = Path(__file__).parents[2] / "examples" / "plugins" / "vllm" / "wsdsl_vllm"
Record = dict[str, Any]


class Imports(NamedTuple):
    """The syntax tree of a module, and where its names are defined, as "module.name"."""

    tree: ast.Module
    defined: dict[str, str]


def module(source: str, name: str) -> Imports:
    tree, defined = ast.parse(source), {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level == 0:
            defined |= {x.asname or x.name: f"{node.module}.{x.name}" for x in node.names}
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            defined[node.name] = f"{name}.{node.name}"
    return Imports(tree, defined)


def signature(node: ast.FunctionDef) -> str:
    """Parameters without annotations, after the decorators."""
    for arg in ast.walk(node.args):
        if isinstance(arg, ast.arg):
            arg.annotation = None
    return " ".join([*map(ast.unparse, node.decorator_list), f"({ast.unparse(node.args)})"])


def methods(node: ast.ClassDef) -> dict[str, ast.FunctionDef]:
    return {x.name: x for x in node.body if isinstance(x, ast.FunctionDef)}


def attributes(nodes: Any, context: type) -> set[str]:
    """Names of attributes of `self` that are assigned (ast.Store) or read (ast.Load)."""
    return {
        x.attr
        for node in nodes
        for x in ast.walk(node)
        if isinstance(x, ast.Attribute) and isinstance(x.ctx, context)
        if isinstance(x.value, ast.Name) and x.value.id == "self"
    }


class Sources:
    """Modules of a wheel."""

    def __init__(self, wheel: Path) -> None:
        self.files = zipfile.ZipFile(wheel)
        self.modules: dict[str, Imports] = {}

    def module(self, name: str) -> Imports:
        if name not in self.modules:
            paths = f"{name.replace('.', '/')}.py", f"{name.replace('.', '/')}/__init__.py"
            path = next(p for p in paths if p in self.files.namelist())
            self.modules[name] = module(self.files.read(path).decode(), name)
        return self.modules[name]

    def definition(self, path: str) -> ast.ClassDef | ast.FunctionDef:
        name, _, last = path.rpartition(".")
        found = self.module(name)
        if found.defined[last] != path:
            return self.definition(found.defined[last])
        kinds = ast.ClassDef, ast.FunctionDef
        return next(x for x in found.tree.body if isinstance(x, kinds) and x.name == last)

    def bases(self, path: str) -> Iterator[ast.ClassDef]:
        """A class and its base classes in vllm, depth first."""
        yield (node := self.definition(path))
        defined = self.module(path.rpartition(".")[0]).defined
        for base in map(ast.unparse, node.bases):
            if defined.get(base, "").startswith("vllm."):
                yield from self.bases(defined[base])

    def record(self, path: str) -> Record | str:
        node = self.definition(path)
        if isinstance(node, ast.FunctionDef):
            return signature(node)
        found: dict[str, str] = {}
        classes = list(self.bases(path))
        for base in reversed(classes):
            public = {name: x for name, x in methods(base).items() if name[0] != "_"}
            found |= {name: signature(x) for name, x in public.items()}
        starts = [x for base in classes for x in [methods(base).get("__init__")] if x]
        keywords = {x.arg for start in starts for x in (*start.args.args, *start.args.kwonlyargs)}
        return {
            "methods": found,
            "keywords": " ".join(sorted(keywords - {"self"})),
            "attributes": " ".join(sorted(attributes(starts, ast.Store))),
        }


def plugin() -> dict[str, Imports]:
    return {x.stem: module(x.read_text(), f"wsdsl_vllm.{x.stem}") for x in PLUGIN.glob("*.py")}


def imported() -> set[str]:
    """Names of vllm that the plugin imports."""
    found = {path for file in plugin().values() for path in file.defined.values()}
    return {path for path in found if path.startswith("vllm.")}


def recorded(wheel: Path) -> Record:
    sources = Sources(wheel)
    names = {path: sources.record(path) for path in sorted(imported())}
    return {"vllm": wheel.name.split("-")[1], "names": names}


if __name__ == "__main__":
    RECORD.write_text(json.dumps(recorded(Path(sys.argv[1])), indent=1) + "\n")
