"""Compare PTX with the SCHEDULED kernel at sample sizes: waits, TMA copies and semaphores in order,
and between them the threads' accesses.

Both run with numbers for sizes and CTA indices, so that trip counts, conditions and coordinates
are compared, of a semaphore also its address and amount. The first lane of a warpgroup represents
all its threads; `LANES` show where others load and store.
"""

import re
from collections.abc import Iterator, Sequence
from functools import cache, partial
from itertools import chain, islice, product
from math import prod
from typing import Any

from wsdsl.ir import ops
from wsdsl.ir.analysis.tensor_accesses import direct_tensors, sized_dims
from wsdsl.ir.effects import Access, Arrive, Effect, Fence, Wait
from wsdsl.ir.hardware.swizzle import PACKED_LINES, PACKED_SPAN
from wsdsl.ir.op import Kernel, Op, Value, once, operands, regions, results_of
from wsdsl.ir.ops import Iota, Partition, by_warpgroup, grid_of
from wsdsl.ir.rewriter import walk, yielded
from wsdsl.ir.types import I32, State, TensorMap, Tile
from wsdsl.prover.ops.grid import SPECIAL, numbers_of
from wsdsl.prover.ptx import accessed_bytes as a
from wsdsl.prover.ptx.accessed_bytes import POINTER, Allowed, Own
from wsdsl.prover.ptx.ptx_trace import OPERAND, Jump, Program
from wsdsl.prover.ptx.register_slice import read, result, split_address
from wsdsl.prover.ptx.register_values import FOLDED, Definition, computed
from wsdsl.prover.ptx.sync_events import UNKNOWN

SIZE, CLUSTERS, FEW, APART, SAMPLES = 640, 37, 5, 7, 12
"""Most sizes, the clusters of the grid, or a few with many items, from one to the
next, and the samples of data."""
STEPS, MOST = 1 << 13, 84
"""Instructions and events of one thread; events of a loop."""
DATA = "data", 0
"""The values of loads; address and sample choose one."""
LANES = 0, 127, 42
"""Of the first group and of others."""
SEMAPHORE = ("red.release", "red.relaxed", "ld.acquire")
LESS = "setp.lt.s32"
COPIES = re.compile(r"cp\.(?:reduce\.)?async\.bulk\.tensor\..*shared::(cluster\.global)?")
FENCE_OF_PTX = re.compile(r"fence\.proxy|bar\.|barrier\.(?!cluster)")
EVENT_OF_NUMBERS = re.compile(rf"bra|{COPIES.pattern}|{'|'.join(SEMAPHORE)}")
STEP = re.compile(rf"{EVENT_OF_NUMBERS.pattern}|mbarrier\.try_wait|brx|ret|exit|trap")
REGISTER = re.compile(r"%?[a-z]\w*")
FOLDS = FOLDED | {"and": lambda x, y: x and y, "or": lambda x, y: x or y, "not": lambda x: not x}
DIVIDES = ("floordiv", "mod")
Numbers = tuple[int | None, ...]
Seen = tuple[str, Numbers]
"""An event, and of a copy its coordinates; of a semaphore the argument, the byte and the amount."""
ELECTED = "elected"
WAIT: Seen = "a wait", ()
FENCE: Seen = "a fence or barrier", ()
NUMBERS: Seen = "an event with numbers", ()
END: Seen = "the end", ()
STOP: Seen = UNKNOWN, ()
"""Whether there is another event is not known."""
Held = dict[Any, Any]
Events = Iterator[tuple[Seen | Allowed | Own, Any]]
"""With the op, or the line."""


def differing_event(kernel: Kernel, program: Program, ranks: int) -> tuple[Op | None, str] | None:
    """The first difference. An unknown branch or bound ends a comparison."""
    arguments, steps = _arguments(kernel), cache(partial(_steps, program))
    of_items = dict(grid.tiles) if (grid := grid_of(kernel)) else {}
    # The number of items is an i32.
    too_many = prod(-(-SIZE // by) for by in of_items.values()) >= 1 << 31
    # Of many groups most have no item of a CTA.
    fewer = too_many or (grid is not None and grid.ragged)
    of_ones = {("size", dim): FEW for dim, by in of_items.items() if fewer and by == 1}
    plain, half = (
        {x: size for x in arguments if not isinstance(x, Value) or x.type == Tile(I32)}
        | {x: n << POINTER for n, x in enumerate(arguments) if _points(x)}
        | of_ones
        | {("size", dim): size for dim, size in kernel.sizes}
        for size in (SIZE, SIZE // 2)
    )
    dims = _open_dims(kernel)
    some = [(dim, n) for dim in sorted(dims) for n in (0, 1) if n == 0 or dim not in of_items]
    near, samples = _near_thresholds(kernel), 1
    loads = (v for op in kernel.ops if op.repeatable and not op.pure for v in results_of(op))
    if any(v.type == Tile(I32) for v in loads):
        samples = SAMPLES
    few = [(FEW, i, plain | {("size", dim): n}) for dim, n in some for i in range(0, samples, 3)]
    unknown = {**plain, DATA: (near, 0), Own: True}
    for partition, groups, warp, of in _roles(kernel):
        body = [op for op in kernel.body if op is partition or not isinstance(op, Partition)]
        anywhere = [x for x, _ in _anywhere(kernel, body, unknown)]
        lanes = LANES if of == 1 and anywhere else LANES[:1]
        inside = {id(op): _events_of(kernel).get(id(op)) for op in walk(partition.body)}
        flags = {op for op, x in inside.items() if getattr(x, "on", None) == "semaphore"}
        compared = set[int]()
        of_flags = [(CLUSTERS, n, plain if n < 8 else half) for n in range(16)]
        many = [*(of_flags if flags else of_flags[1 : samples + 1]), *few]
        for (clusters, n, given), rank, group, lane in product(many, range(ranks), groups, lanes):
            more, full = n > 1 and compared >= flags, n == (clusters == CLUSTERS)
            if lane and (not full or rank or clusters == FEW or lane != LANES[1 + group % 2]):
                continue
            if (more and samples == 1) or ((more or clusters == FEW) and group > groups.start):
                continue
            if not (launched := _launched(kernel, given, clusters)):
                continue
            cta = n * APART % launched * ranks + rank
            special: Held = {SPECIAL[x]: n for x, n in numbers_of(cta, clusters, ranks).items()}
            special |= {"%tid.x": 128 * group + 32 * warp + lane, DATA: (near, n), Own: full}
            held = {"%warpgroup": group - groups.start, **special, **given}
            held |= {ELECTED: not special["%tid.x"], Partition: group == groups.start and lane < 32}
            own = _events(_kernel_events(kernel, body, held), lane)
            sizes = [given.get(x) for x in arguments]
            found = _events(_ptx_events(program, steps(full), special, sizes), lane)
            for has, line, touches in islice(found, MOST if full else MOST // 2):
                wanted, op, permits = (STOP, None, []) if has == STOP else next(own)
                compared.add(id(op))
                if STOP in (wanted, has):
                    break
                if not _agree(wanted, has):
                    told = f"expected {_shown(wanted)} here, the PTX has {_shown(has)}"
                elif differs := (permits or touches) and a.misplaced(
                    permits, touches, anywhere, lane
                ):
                    line, told = program.text.count("\n", 0, differs[0]) + 1, differs[1]
                else:
                    continue
                return op, f"{told} in line {line} (thread {special['%tid.x']})"
    return None


def _open_dims(kernel: Kernel) -> set[str]:
    return {op.dim for op in kernel.of(ops.DimSize)} - {*dict(kernel.sizes)}


def _roles(kernel: Kernel) -> Iterator[tuple[Partition, range, int, int]]:
    """Each partition with its warpgroups, its warp, and the number of warps with partitions."""
    first = 0
    for together in by_warpgroup(kernel.of(Partition)):
        groups = range(first, first + together[0].num_warpgroups)
        first = groups.stop
        yield from ((x, groups, warp, len(together)) for warp, x in enumerate(together))


def _launched(kernel: Kernel, given: Held, clusters: int) -> int:
    """At most one cluster for each item, where none looks for more than its own."""
    grid = grid_of(kernel)
    if grid is None or grid.scheduler not in ("grid", "dynamic"):
        return clusters
    return min(clusters, prod(-(-given.get(("size", x), SIZE) // by) for x, by in grid.tiles))


def _events(all_of_them: Events, lane: int) -> Iterator[tuple[Seen, Any, list[Any]]]:
    """With the accesses before each. Lanes but the first wait, and are not asked for the rest."""
    between = list[Any]()
    for event, origin in chain(all_of_them, [(END, None)]):
        if isinstance(event, Allowed | Own):
            between.append(event)
        elif not lane or event in (WAIT, FENCE, END, STOP):
            yield event, origin, between
            between = []


def _agree(wanted: Seen, has: Seen) -> bool:
    """A coordinate that is not known is not compared."""
    (kind, numbers), (other, found) = wanted, has
    if kind != other or len(numbers) != len(found) or not found:
        return wanted == has
    pairs = zip(numbers, found, strict=True)
    if kind == FLAG:
        return all(x is not None and x == y for x, y in pairs)
    return all(None in pair or pair[0] == pair[1] for pair in pairs)


def _shown(event: Seen) -> str:
    return f"{event[0]} {', '.join(UNKNOWN if x is None else str(x) for x in event[1])}".rstrip()


FLAG = "a flag (argument, byte, amount)"


def _flag(at: int | None, amount: int | None) -> Seen:
    place = (None, None) if at is None else divmod(at, 1 << POINTER)
    return FLAG, (*place, None if amount is None else amount % (1 << 32))


def _kernel_events(kernel: Kernel, region: Sequence[Op], held: Held) -> Events:
    around = _around(kernel)
    for op in region:
        events = around.get(id(op)) or (False if held[Own] and id(op) in around else None)
        if held[Own] and id(op) in a.accessing(kernel):
            yield from ((x, op) for x in a.allowed(kernel, op, held))
        match op:
            case Partition():
                held[ELECTED] = held[Partition]
                yield from _kernel_events(kernel, op.body, held)
            case ops.Elect():
                if events and held[ELECTED]:
                    yield from _kernel_events(kernel, op.body, held)
            case ops.If():
                cond = held.get(op.cond)
                if cond is None:
                    yield from [(STOP, op)] if events else _anywhere(kernel, [op], held)
                body = op.then if cond else op.orelse
                yield from _kernel_events(kernel, body, held)
                given = [None if cond is None else held.get(x) for x in yielded(body)]
                held |= zip(op.result, given, strict=True)
            case ops.ForRange() if events is not None or any(
                x.type == Tile(I32) for x in op.result
            ):
                bounds: list[Any] = [held.get(x) for x in (op.start, op.stop, op.step)]
                if None in bounds or (not events and len(range(*bounds)) > MOST):
                    yield from [(STOP, op)] if events else _anywhere(kernel, op.body, held)
                    held |= dict.fromkeys(op.result)
                    continue
                carried = [held.get(x) for x in op.init]
                for index in range(*bounds):
                    held |= zip((op.index, *op.args), (index, *carried), strict=False)
                    yield from _kernel_events(kernel, op.body, held)
                    if op.claimed:
                        yield STOP, op
                    carried = [held.get(x) for x in yielded(op.body)]
                held |= zip(op.result, carried, strict=True)
            case _:
                effect = _events_of(kernel).get(id(op))
                if (event := _kind(effect)) == NUMBERS:
                    yield from [(STOP, op)] if getattr(op, "lines", 0) else []
                    event = _event(kernel, op, effect, held)
                if event is not None and (event != FENCE or held[Own]):
                    yield event, op
                held |= dict.fromkeys(results_of(op), _value(kernel, op, held))


def _event(kernel: Kernel, op: Any, effect: Effect | None, held: Held) -> Seen:
    """A copy with its coordinates, or a semaphore with its amount."""
    if isinstance(effect, Access):
        box: Any = kernel.definers[op.map]
        at = [held.get(x) for x in reversed(op.coordinates)]
        if box.swizzle in PACKED_SPAN:
            at = [0, 0, *(x if x is None else x // PACKED_LINES for x in at[:2]), *at[2:]]
        elif box.tensor.type.dtype.bits == 4 and at[0] is not None:
            at[0] >>= 1  # In bytes.
        return _copy(effect.kind == "read", held["map", box], at)
    by = op.count if isinstance(effect, Wait) else op.by or op.wrap or op.amount
    index = held.get(op.index[0])
    at = None if index is None else held["tensor", op.tensor.name] + 4 * index
    return _flag(at, held.get(by) if isinstance(by, Value) else by)


def _value(kernel: Kernel, op: Op, held: Held) -> Any:
    """A scalar, or the bounds of the elements of a fragment."""
    match op:
        case ops.Map():
            args, of = [held.get(x) for x in op.args], FOLDS.get(op.fn)
            if of is None or None in args or (op.fn in DIVIDES and not args[-1]):
                return None
            return a.spread(op.fn, args) if tuple in map(type, args) else of(*args)
        case ops.Constant():
            return op.value
        case ops.DimSize():
            return held.get(("size", op.dim))
        case _ if op.repeatable and not op.pure:
            return _loaded(kernel, op, held)
        case _:
            return _state(op, held)


def _state(op: Any, held: Held) -> Any:
    """A pipeline stage, the bounds of indices, or a special register."""
    if op.result_type is State and operands(op):
        stage = held.get(op.state)
        return None if stage is None else (stage + 1) % op.num
    if op.result_type is State:
        return 0
    if isinstance(op, Iota) and (start := held.get(op.start)) is not None:
        return start, start + op.extent - 1
    return held.get(SPECIAL.get(type(op)))


def _anywhere(kernel: Kernel, region: Sequence[Op], held: Held) -> Iterator[tuple[Allowed, Op]]:
    """The accesses of ops whose indices are not known."""
    known = {x: value for x, value in held.items() if not isinstance(x, Value)}
    every = walk(region) if held[Own] else ()
    found = ((x, op) for op in every for x in a.allowed(kernel, op, known))
    return ((x._replace(bytes=0), op) for x, op in found)


@once
def _around(kernel: Kernel) -> dict[int, bool]:
    """By the id of an op in which there are accesses or events, whether there are events."""
    inside = [(op, x) for op in kernel.ops for inner in regions(op) for x in walk(inner)]
    found = {id(op): False for op, x in inside if id(x) in a.accessing(kernel)}
    return found | {id(op): True for op, x in inside if id(x) in _events_of(kernel)}


@once
def _events_of(kernel: Kernel) -> dict[int, Effect]:
    """Waits, fences and barriers; and events that have numbers."""
    effects = ((id(op), effect) for op in kernel.ops for effect in op.effects(kernel.definers))
    return {op: effect for op, effect in effects if _kind(effect) is not None}


def _kind(effect: Effect | None) -> Seen | None:
    match effect:
        case Wait(on="mbarrier"):
            return WAIT
        case Fence(of="mbarrier" | "smem" | "gmem") | Arrive(on="cta" | "warp" | "named barrier"):
            return FENCE
        case (
            Access(space="gmem", asynchronous=True) | Arrive(on="semaphore") | Wait(on="semaphore")
        ):
            return NUMBERS
        case _:
            return None


def _loaded(kernel: Kernel, op: Any, held: Held) -> int | None:
    """0 outside of the tensor."""
    tensor, name = op.tensor.as_tensor, op.tensor.name
    at: list[Any] = [held.get(x) for x in op.index]
    if not all(isinstance(x, int) for x in at):
        return None
    sizes = (held.get(("size", d), d) for d in tensor.dims)
    if not all(0 <= x < n for x, n in zip(at, sizes, strict=True)):
        return 0
    apart = (*(held["stride", name, d] for d in tensor.dims[:-1]), 1)
    number = sum(x * n for x, n in zip(at, apart, strict=True)) * tensor.dtype.bits // 8
    return _datum(held["tensor", name] + number, held)


def _datum(address: int, held: Held) -> int:
    values, sample = held[DATA]
    return values[(hash((address, sample // len(values))) + sample) % len(values)]


@once
def _near_thresholds(kernel: Kernel) -> list[int]:
    """Small numbers, and those around the constants that scalars are compared with."""
    compared = (op for op in kernel.of(ops.Map) if op.fn in ops.COMPARISONS)
    made = (kernel.definers.get(x) for op in compared for x in op.args)
    found = {op.value for op in made if isinstance(op, ops.Constant) and isinstance(op.value, int)}
    near = {n + by for n in found if abs(n) < SIZE for by in (-1, 0, 1)}
    return sorted({*range(4), *near})


def _copy(loads: bool, box: int | None, at: Sequence[int | None]) -> Seen:
    by = UNKNOWN if box is None else box >> POINTER
    kind = f"a TMA {'load' if loads else 'store'} by argument {by}"
    return kind, tuple(x and x % (1 << 32) for x in at)


@once
def _arguments(kernel: Kernel) -> list[Any]:
    """Tensor maps, pointers, each with the strides of its tensor, scalars and sizes."""
    direct = direct_tensors(kernel)
    found: list[Any] = [("map", op) for op in kernel.ops if op.result_type is TensorMap]
    for name, tensor in direct.items():
        found += [("tensor", name), *(("stride", name, d) for d in tensor.dims[:-1])]
    used = {x for op in kernel.ops for x in operands(op)}
    found += [p for p in kernel.params if isinstance(p.type, Tile) and p in used]
    return [*found, *(("size", d) for d in sized_dims(kernel))]


Steps = tuple[list[tuple[int, str, Any]], dict[str, int]]
"""Also the step at each label."""


def _points(argument: Any) -> bool:
    return not isinstance(argument, Value) and argument[0] in ("map", "tensor")


def _steps(program: Program, accesses: bool) -> Steps:
    """By places in the text: tokens by number, and the definitions on which branches and events
    depend by name, each with its operands; and the threads' own `accesses`."""
    tokens, operand, defined = program.tokens, program.values.operand, program.values.defined
    of_token = ((f"{x.guard} {x.args}", x.at) for x in tokens if EVENT_OF_NUMBERS.match(x.op))
    own = [*a.own_accesses(program.text)] if accesses else []
    of_own = ((f"{x.guard} {x.register}", x.at) for x in own)
    texts = chain(of_token, of_own)
    asked = [operand(x, at)[1] for text, at in texts for x in REGISTER.findall(text)]
    # The tests of semaphores' waits are within braces.
    asked += [name for name, made in defined.items() if "/" in name and made[0].op == LESS]
    found: list[tuple[int, str, Any]] = [
        (x.at, "", i)
        for i, x in enumerate(tokens)
        if x.label or STEP.match(x.op) or (accesses and FENCE_OF_PTX.match(x.op))
    ]
    found += [(x.at, "", x) for x in own]
    names = set[str]()
    while asked:
        if (name := asked.pop()) not in names:
            names.add(name)
            for d in defined.get(name, ()):
                operands = [operand(x, d.at) for x in _sources(d)]
                argument = re.search(r"_param_(\d+)\]?$", d.operands)
                number = int(argument[1]) if argument else None
                found.append((d.at, name, (d, operands, computed(d.op), number)))
                asked += [x for _, x, _ in operands]
                asked += [operand(x, d.at)[1] for x in REGISTER.findall(d.guard)]
    found.sort(key=lambda step: step[:2])
    labels = [(i, tokens[x].label) for i, (_, _, x) in enumerate(found) if isinstance(x, int)]
    return found, {label: i for i, label in labels if label}


def _sources(d: Definition) -> Sequence[str]:
    if d.op.startswith("ld.global"):
        return (split_address(d.operands)[0],)
    return d.args if computed(d.op) or read(d) else ()


def _ptx_events(
    program: Program, steps_and_labels: Steps, special: Held, sizes: Sequence[Any]
) -> Events:
    held, values, i = Held(special), program.values, 0
    steps, labels = steps_and_labels

    def value(text: str, at: int) -> Any:
        number, name, elected = values.operand(text, at)
        return held.get(name, elected) if number is None else number

    def passes(guard: str, at: int) -> bool | None:
        found = value(guard.removeprefix("!"), at) if guard else 1
        return None if found is None else bool(found) != (guard[:1] == "!")

    def made(d: Definition, operands: Sequence[tuple[Any, ...]], of: Any, argument: Any) -> Any:
        if argument is not None:
            return [*sizes, None][argument]
        if d.op.startswith("ld.global"):
            start = held.get(operands[0][1])
            place = None if start is None else start + split_address(d.operands)[1]
            return None if place is None else _datum(place, held) % (1 << 32)
        args = [held.get(name, own) if number is None else number for number, name, own in operands]
        if of is not None and None not in args:
            return of(args)
        return args[0] if d.op.startswith("shfl.sync.idx") else result(d, args, of)

    for _ in range(STEPS):
        if i == len(steps):
            return
        (at, name, x), i = steps[i], i + 1
        if name:
            definition = x[0]
            does = passes(definition.guard, at) if definition.guard else True
            if does is not False:
                held[name] = made(*x) if does else None
            continue
        if isinstance(x, Own):
            if (does := passes(x.guard, at)) is not False:
                start = value(x.register, at) if does else None
                yield x if start is None else Own(*x[:-1], address=start + x.plus), None
            continue
        token, of = program.tokens[x], program.read[x]
        does = passes(token.guard, at)
        if isinstance(of, Jump):
            does = does if token.way < 0 else bool(of.may >> special["%tid.x"] & 1)
            if does is None or len(of.targets) > 1:
                break
            if does:
                i = labels.get("".join(of.targets), len(steps))
        elif token.op.startswith("mbarrier.try_wait") and does is not False:
            yield WAIT, of.line
        elif FENCE_OF_PTX.match(token.op) and does is not False:
            yield FENCE, of.line
        elif (copy := COPIES.match(token.op)) and does is not False:
            told = re.search(r"\[[^\]]*\{[^}]*\}", token.args)
            box, *place = re.findall(r"[%\w-]+", told[0] if told else "none")
            coordinates = [value(x, at) for x in place]
            yield _copy(bool(copy[1]), value(box, at), coordinates), of.line
        elif token.op.startswith(SEMAPHORE) and does is not False:
            args, test = OPERAND.findall(token.args), steps[min(i + 1, len(steps) - 1)][2]
            to, by = args[0], args[-1]
            if token.op.startswith("ld"):
                test = test[0] if isinstance(test, tuple) else test
                to, asked = args[1], isinstance(test, Definition) and test.op == LESS
                by = test.args[1] if asked and test.args[0] == args[0] else ""
            register, plus = split_address(to)
            start = value(register, at)
            yield (
                _flag(None if start is None else start + plus, value(by, at) if by else None),
                of.line,
            )
    yield STOP, None
