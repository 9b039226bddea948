"""Write docs/ir.md from the docstrings of the ops: `python tools/ir_docs.py` (or `make docs`)."""

from __future__ import annotations

import inspect
from dataclasses import MISSING
from pathlib import Path
from types import ModuleType

from wsdsl.ir import ops, types
from wsdsl.ir.op import LEVELS, OPS, Op
from wsdsl.ir.op_fields import fields_of, op_name

PAGE = Path(__file__).parent.parent / "docs" / "ir.md"

FAMILIES = dict.fromkeys(
    cls.__module__.rpartition(".")[2]
    for level in LEVELS
    for cls in OPS.values()
    if level == cls.levels[0]
)
"""Files of `ir/ops`, by the first level of their ops."""

HEAD = """\
<!-- Made by `make docs` from the docstrings in wsdsl/ir; edit those. -->
# The IR

A kernel has three levels, and one textual form at each: what `Compiled.ir(level)` prints,
`wsdsl.compile_ir(text)` takes back, edited or not.

| level | says |
|---|---|
| `tile` | what the kernel computes: loads, products, maps, reductions, stores on tiles |
| `partitioned` | who does it: partitions of warpgroups, and the circular buffers between them |
| `scheduled` | exactly what runs: SMEM, mbarriers, pipeline state, tensor maps, wgmma, fences |

## The textual form

```
kernel NAME @ LEVEL (%param: type, ...) sizes=(("D", 128),) schedule=Schedule(...) {
  %result: type = op_name(field=value, ...) { region }
}
```

Values (`%name`) are defined once, before they are used, and are unique in a kernel. A field holds a
value, a tuple, an integer, a float, a string, `True`, `False`, `None` or a type; one that has its
default is left out. A field that *binds* defines the arguments of the op's region:
`index=%k: i32`. `#` starts a comment. `sizes` are dimensions fixed at compile time; `schedule` is
there once it is chosen.

"""


def page() -> str:
    parts = [HEAD, "## Types\n\n| written | is |\n|---|---|\n"]
    parts += [f"| `{form}` | {first_paragraph(cls)} |\n" for form, cls in type_forms()]
    parts.append("\n## Ops by level\n\n")
    for level in LEVELS:
        names = [f"[`{name}`](#{name})" for name, cls in OPS.items() if level in cls.levels]
        parts.append(f"**{level}**: {' · '.join(names)}\n\n")
    return "".join(parts) + "\n".join(module_section(getattr(ops, name)) for name in FAMILIES)


def type_forms() -> list[tuple[str, type]]:
    return [
        ("bf16", types.DType),
        ("f32[m, n]", types.Tile),
        ("tensor<bf16[M, K]>", types.Tensor),
        ("axis<m of M by 128 rows>", types.Axis),
        ("ring", types.Ring),
        ("slot", types.Slot),
        ("smem<bf16[m, k]>", types.SharedTile),
        ("frag<f32[64x256]>", types.Fragment),
        ("acc<f32[64x256]>", types.Accumulator),
        ("state", types.State),
        ("mbarrier<4>", types.Barriers),
        ("shared<32768 x 4>", types.Shared),
        ("tensor_map", types.TensorMap),
        ("matrix_descriptor", types.MatrixDescriptor),
    ]


def first_paragraph(cls: type) -> str:
    return " ".join((inspect.getdoc(cls) or "").split())


def module_section(module: ModuleType) -> str:
    ops = [cls for cls in OPS.values() if cls.__module__ == module.__name__]
    name = module.__name__.rpartition(".")[2]
    text = f"## {name} ops\n\n{inspect.getdoc(module) or ''}\n\n"
    return text + "\n".join(op_section(cls) for cls in ops)


def op_section(cls: type[Op]) -> str:
    rows = "".join(
        f"| `{name}` | {kind} | `{annotation(cls, name)}`{default(cls, name)} |\n"
        for name, kind in fields_of(cls)
    )
    table = f"| field | is a | type |\n|---|---|---|\n{rows}\n" if rows else ""
    levels = ", ".join(cls.levels)
    return f"### {op_name(cls)}\n\n*{levels}*\n\n{inspect.getdoc(cls)}\n\n{table}".rstrip() + "\n"


def annotation(cls: type[Op], name: str) -> str:
    return str(cls.__dataclass_fields__[name].type).replace("|", r"\|")


def default(cls: type[Op], name: str) -> str:
    held = cls.__dataclass_fields__[name].default
    return "" if held is MISSING else f" = `{held!r}`"


if __name__ == "__main__":
    PAGE.write_text(page())
    print(f"wrote {PAGE}")
