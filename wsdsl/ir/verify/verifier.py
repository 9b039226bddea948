"""Verify a kernel at its level by one table of small rules, after the last pass of the level, and
after every pass by `WSDSL_VERIFY`.

A rule yields findings; all of them are gathered and raised as one VerifyError, each with a caret
under the op in the kernel's text. `STEPS` are the rules of SCHEDULED: first the threads of an op
(`ir/verify/threads.py`) and the range of its attributes (`ir/verify/attribute_ranges.py`), then
the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from inspect import isfunction
from types import ModuleType

from wsdsl.diagnostics import Finding, VerifyError
from wsdsl.ir.analysis import early_start
from wsdsl.ir.analysis.launch_narrowing import each_width, narrowing_of
from wsdsl.ir.analysis.scale_factor_indices import in_atoms
from wsdsl.ir.op import (
    Kernel,
    Level,
    Op,
    Problem,
    Region,
    bound,
    once,
    operands,
    regions,
    results_of,
)
from wsdsl.ir.op_fields import op_name
from wsdsl.ir.ops import (
    BESIDE_FIRST,
    COMPARISONS,
    Block,
    Cast,
    Contract,
    If,
    Load,
    Map,
    Partition,
    SlotElements,
    Yield,
)
from wsdsl.ir.printer import IR_HINT, print_head
from wsdsl.ir.rewriter import definitions
from wsdsl.ir.types import BOOL, Axis, Fragment, Tile, Value
from wsdsl.ir.verify import (
    attribute_agreement,
    attribute_ranges,
    clc_responses,
    fragment_lanes,
    launch_widths,
    mma_operands,
    operand_types,
    overlapping_tiles,
    pipeline_stages,
    privatized_bins,
    scale_factors,
    synchronization,
    threads,
    tmem_accesses,
    vector_alignment,
    workspaces,
)

Rule = Callable[[Kernel], Iterator[Problem]]


def rules_of(*modules: ModuleType) -> tuple[Rule, ...]:
    """The rules of modules: their public functions that yield the problems of a kernel."""
    form = {"kernel": "Kernel", "return": "Iterator[Problem]"}
    return tuple(
        rule
        for module in modules
        for name, rule in vars(module).items()
        if isfunction(rule) and rule.__module__ == module.__name__
        if rule.__annotations__ == form and name[0] != "_"
    )


def ops_match_level(kernel: Kernel) -> Iterator[Problem]:
    """While a PARTITIONED kernel is being lowered, it may have ops of SCHEDULED already."""
    allowed = {kernel.level, "scheduled"} if kernel.level == "partitioned" else {kernel.level}
    for op in kernel.ops:
        if allowed.isdisjoint(op.levels):
            yield op, f"{op_name(type(op))} does not belong to the level {kernel.level}"


def names_are_unique(kernel: Kernel) -> Iterator[Problem]:
    seen: set[str] = set()
    for value in definitions(kernel):
        if value.name in seen:
            yield None, f"{value} is defined twice"
        seen.add(value.name)


def values_are_defined_before_use(kernel: Kernel) -> Iterator[Problem]:
    known = {value.name: value for value in kernel.params}

    def visit(region: Region, first: tuple[Value, ...] = ()) -> Iterator[Problem]:
        here: list[str] = []

        def define(values: tuple[Value, ...]) -> None:
            for value in values:
                if value.name not in known:
                    known[value.name] = value
                    here.append(value.name)

        define(first)
        for op in region:
            for value in operands(op):
                defined = known.get(value.name)
                if defined is not value and defined != value:
                    yield op, f"{value} is not defined here, or has another type"
            for body in regions(op):
                yield from visit(body, bound(op))
            define(results_of(op))
        for name in here:
            del known[name]

    yield from visit(kernel.body)


def regions_yield_carried_values(kernel: Kernel) -> Iterator[Problem]:
    for op in kernel.ops:
        if not (inside := regions(op)):
            continue
        init, args = getattr(op, "init", None), getattr(op, "args", None)
        made = results_of(op)
        if init is not None and isinstance(args, tuple) and hasattr(op, "index"):
            carried: tuple[Value, ...] = args
            if not [v.type for v in init] == [v.type for v in carried] == [v.type for v in made]:
                yield op, "types of carried values differ between init, args and result"
        if not made and not (init is not None or isinstance(op, If)):
            continue
        for inner in inside:
            last = inner[-1] if inner else None
            handed = last.values if isinstance(last, Yield) else ()
            if isinstance(op, If) and not isinstance(last, Yield):
                yield op, "a region of an if must end with a yield"
            if [v.type for v in handed] != [v.type for v in made]:
                yield op, "types of yielded values and results differ"


def yields_come_last(kernel: Kernel) -> Iterator[Problem]:
    bodies = [kernel.body, *[inner for op in kernel.ops for inner in regions(op)]]
    for op in (op for body in bodies for op in body[:-1]):
        if isinstance(op, Yield):
            yield op, "a yield must end its region"


def maps_have_one_dtype(kernel: Kernel) -> Iterator[Problem]:
    for op in kernel.of(Map):
        args = op.args[1:] if op.fn in BESIDE_FIRST else op.args
        dtypes = [v.type.dtype for v in args if isinstance(v.type, (Tile, Fragment))]
        made = getattr(op.result.type, "dtype", None)
        if not dtypes or dtypes.count(dtypes[0]) < len(dtypes):
            yield op, f"operands of {op.fn} differ in dtype"
        elif (made == BOOL) != (op.fn in COMPARISONS or dtypes[0] == BOOL):
            yield op, f"{op.fn} of {dtypes[0]} cannot give {op.result.type}"
        condition = op.args[0].type if op.fn == "where" else None
        if isinstance(condition, (Tile, Fragment)) and condition.dtype != BOOL:
            yield op, "the condition of where must be bool"


def tensors_are_indexed_whole(kernel: Kernel) -> Iterator[Problem]:
    for op in kernel.having("index"):
        tensor, index = getattr(op, "tensor", None), getattr(op, "index", None)
        if isinstance(tensor, Value) and isinstance(index, tuple):
            entries: tuple[Value, ...] = index
            atoms = isinstance(op, Load) and in_atoms(op)
            if len(entries) != len(tensor.as_tensor.dims) and not atoms:
                yield op, f"{tensor} is {tensor.type}; the index has {len(entries)} entries"
            whole = len(entries) - (1 + atoms) * (getattr(op, "block", 1) > 1)
            for entry, dim in zip(entries[:whole], tensor.as_tensor.dims, strict=False):
                if isinstance(entry.type, Axis) and entry.type.dim != str(dim):
                    yield op, f"{entry} iterates over {entry.type.dim}, not {dim}"


def contractions_share_an_axis(kernel: Kernel) -> Iterator[Problem]:
    for op in kernel.of(Contract):
        a, b = getattr(op.a.type, "axes", ()), getattr(op.b.type, "axes", ())
        if not set(a) & set(b):
            yield op, "operands of a contraction share no axis"
        elif {*a} ^ {*b} != {*getattr(op.result.type, "axes", ())}:
            yield op, f"a contraction of {op.a.type} and {op.b.type} cannot give {op.result.type}"
        elif op.acc is not None and op.acc.type != op.result.type:
            yield op, f"a contraction of type {op.result.type} cannot accumulate into {op.acc.type}"


def blocks_contain_whole_tiles(kernel: Kernel) -> Iterator[Problem]:
    for op in kernel.of(Block):
        kind = op.axis.type
        if not isinstance(kind, Axis) or kind.role:
            continue
        if kind.size and op.size % kind.size:
            yield op, f"a tile of {kind.size} may cross a multiple of {op.size}"


def casts_keep_the_shape(kernel: Kernel) -> Iterator[Problem]:
    for op in kernel.of(Cast):
        before, after = op.x.type, op.result.type
        shape = ("axes", "rows", "columns")
        if any(getattr(before, s, None) != getattr(after, s, None) for s in shape):
            yield op, "a cast can change only the dtype"


def tiles_span_their_operands(kernel: Kernel) -> Iterator[Problem]:
    """Along the axes that a map adds all elements are the same."""
    for op in kernel.of(Load, SlotElements, Map):
        sources = op.args if isinstance(op, Map) else op.index
        axes = {axis for v in sources for axis in getattr(v.type, "axes", ())}
        axes |= {v.type.name for v in sources if isinstance(v.type, Axis)}
        own = {*getattr(op.result.type, "axes", ())}
        if not (axes <= own if isinstance(op, Map) else axes == own):
            told = ", ".join(sorted(axes)) or "none"
            yield op, f"{op.result} is {op.result.type}; its operands have the axes {told}"


def partitions_are_top_level(kernel: Kernel) -> Iterator[Problem]:
    outer = {id(op) for op in kernel.body}
    for op in kernel.of(Partition):
        if id(op) not in outer:
            yield op, "a partition must be at the top level of a kernel"


def ops_have_no_faults(kernel: Kernel) -> Iterator[Problem]:
    """Check each op alone (`Op.faults`)."""
    made = kernel.definers
    for op in (op for op in kernel.ops if type(op).faults is not Op.faults):
        yield from ((op, fault) for fault in op.faults(made))


COMMON: tuple[Rule, ...] = (
    ops_match_level,
    names_are_unique,
    values_are_defined_before_use,
    regions_yield_carried_values,
    yields_come_last,
    maps_have_one_dtype,
    tensors_are_indexed_whole,
    casts_keep_the_shape,
    tiles_span_their_operands,
    partitions_are_top_level,
)
_PRODUCTS: tuple[Rule, ...] = (contractions_share_an_axis, blocks_contain_whole_tiles)
RULES: dict[Level, tuple[Rule, ...]] = {
    "tile": (*COMMON, *_PRODUCTS, overlapping_tiles.tile_overlaps_are_legal),
    "partitioned": (
        *COMMON,
        *_PRODUCTS,
        *rules_of(workspaces),
        overlapping_tiles.partition_overlaps_agree,
        attribute_ranges.results_have_buffers,
        *rules_of(pipeline_stages),
    ),
    "scheduled": COMMON,
}
STEPS: tuple[tuple[Rule, ...], ...] = (
    (
        threads.ops_match_threads,
        attribute_ranges.attributes_are_in_range,
        attribute_ranges.partitions_are_lowered,
    ),
    (
        ops_have_no_faults,
        *rules_of(workspaces),
        overlapping_tiles.overlapping_grids_only_write,
        *rules_of(
            attribute_agreement, fragment_lanes, synchronization, early_start, mma_operands,
            tmem_accesses, scale_factors, clc_responses, vector_alignment,
            launch_widths, privatized_bins,
        ),
    ),
)  # fmt: skip
"""Of SCHEDULED kernels, in this order."""


def _finding(kernel: Kernel, op: Op | None, message: str) -> Finding:
    """In the user's file; with the op, if the file does not have it."""
    loc = (op.loc if op else None) or kernel.loc
    if op is not None and not (loc and f"{op_name(type(op))}(" in loc.text):
        message += f": {print_head(op)}"
    return Finding(f"WS0218 {message}", loc, IR_HINT)


@once
def _problems(kernel: Kernel) -> list[Problem]:
    problems: list[Problem] = []
    steps = STEPS if kernel.level == "scheduled" else ()
    if steps and narrowing_of(kernel):
        steps = (*steps[:1], rules_of(launch_widths))
    for rules in ((operand_types.values_have_legal_types,), RULES[kernel.level], *steps):
        # Rules of a later step take it that those of the ones before hold.
        problems = problems or [problem for rule in rules for problem in rule(kernel)]
    return problems


def verify(kernel: Kernel) -> None:
    """Raises VerifyError with every broken rule; of a kernel of several widths also at each."""
    if problems := _problems(kernel):
        raise VerifyError([_finding(kernel, *problem) for problem in dict.fromkeys(problems)])
    if kernel.level == "scheduled" and narrowing_of(kernel):
        for each in each_width(kernel):
            verify(each)
