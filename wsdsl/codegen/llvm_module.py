"""A SCHEDULED kernel as LLVM IR text; the same kernel gives the same text."""

from wsdsl.artifact import signature as s
from wsdsl.codegen import nvvm
from wsdsl.codegen.emission_context import Context, Threads
from wsdsl.codegen.fragment_registers import from_floats
from wsdsl.codegen.launch_signature import signature
from wsdsl.codegen.ops.wgmma import named_accumulators, operands_before_fences
from wsdsl.codegen.region import convert_region
from wsdsl.codegen.value_registers import Pointer, Scalar, Shape, Storage
from wsdsl.codegen.writer import Writer
from wsdsl.diagnostics import CompileError
from wsdsl.gc_pause import held_back
from wsdsl.ir.analysis.tensor_accesses import written_tensors
from wsdsl.ir.analysis.tile_widths import narrowings
from wsdsl.ir.hardware.swizzle import PACKED_SPAN
from wsdsl.ir.op import Kernel, Value
from wsdsl.ir.ops import AllocateGlobal
from wsdsl.ir.types import I32, Tensor

HEADER = """\
target datalayout = "e-p6:32:32-i64:64-i128:128-i256:256-v16:16-v32:32-n16:32:64"
target triple = "nvptx64-nvidia-cuda"

@smem = external addrspace(3) global [0 x i8], align 1024
"""
# `reqntid` and `minctasm` tell ptxas the register budget at entry; without them it ignores
# setmaxnreg (C7508).
FOOTER = """\
attributes #0 = {{ nounwind convergent "nvvm.reqntid"="{threads}" {ctas}{cluster} }}
attributes #1 = {{ nounwind convergent nomerge }}
attributes #2 = {{ nounwind memory(none) }}

!0 = !{{!"branch_weights", i32 1000, i32 1}}
"""
# Without grid_constant LLVM copies the map to local memory, where TMA would not find it.
MAP_TYPE = 'ptr byval([128 x i8]) align 64 "nvvm.grid_constant"'
NARROWER = "%narrower"
"""By how many columns the tiles of a launch are narrower than the widest."""
SIZE_TYPE = "i32 range(i32 0, -2147483648)"


@held_back()
def emit_llvm(kernel: Kernel) -> str:
    if kernel.level != "scheduled":
        message = f"WS0600 codegen needs a scheduled kernel, not a {kernel.level} kernel"
        raise CompileError(message, hint="pass the result of lowering")
    launch = signature(kernel)
    w = Writer()
    body, parameters = _context(w, kernel, launch)
    body.convert(body, kernel.body)
    w.line("ret void")
    declarations = "\n".join(w.declarations[name] for name in sorted(w.declarations))
    structs = "".join(f"{name} = type {body}\n" for body, name in w.structs.items())
    lines = "\n".join(w.lines)
    if declared := "\\0A".join(w.declared):
        lines = f'  call void asm sideeffect "{declared}", ""() #1\n{lines}'
    size = launch.cluster
    cluster = f' "nvvm.cluster_dim"="{size},1,1"' if size > 1 else ""
    beside = f'"nvvm.minctasm"="{launch.ctas_per_sm}"'
    footer = FOOTER.format(threads=launch.threads, ctas=beside, cluster=cluster)
    return (
        f"{HEADER}{structs}\n{declarations}\n\n"
        f"define ptx_kernel void @{launch.name}({', '.join(parameters)}) #0 {{\nentry:\n"
        f"{lines}\n}}\n\n{footer}"
    )


def _context(w: Writer, kernel: Kernel, launch: s.Signature) -> tuple[Context, list[str]]:
    """The state before the first op, and the parameters of the function."""
    values: dict[Value, Storage] = {}
    lent = kernel.of(AllocateGlobal)
    names = {p.name: p for p in (*kernel.params, *(op.result for op in lent))}
    strides: dict[tuple[str, int], str] = {}
    sizes = {d: Scalar(str(n), I32, known=n, nonnegative=True) for d, n in kernel.sizes}
    maps: list[Pointer] = []
    threads = _threads(w)
    named, zeroed = named_accumulators(kernel)
    parameters: list[str] = []
    for argument in launch.arguments:
        match argument:
            case s.NarrowingArgument():
                most = narrowings(launch.widths)[-1]
                parameters.append(f"i32 range(i32 0, {most + 1}) {NARROWER}")
            case s.MapArgument(tensor, box, swizzle):
                kind, packed = names[tensor].type, swizzle in PACKED_SPAN
                in_pairs = isinstance(kind, Tensor) and kind.dtype.bits == 4
                parameters.append(f"{MAP_TYPE} %map.{len(maps)}")
                maps.append(Pointer(f"%map.{len(maps)}", box, packed, in_pairs))
            case s.PointerArgument(tensor):
                parameters.append(f"ptr addrspace(1) %tensor.{tensor}")
                values[names[tensor]] = Pointer(f"%tensor.{tensor}")
            case s.StrideArgument(tensor, dim, known):
                parameters.append(f"i64 %stride.{tensor}.{dim}")
                strides[tensor, dim] = f"%stride.{tensor}.{dim}" if known is None else str(known)
            case s.SizeArgument(dim):
                parameters.append(f"{SIZE_TYPE} %size.{dim}")
                sizes.setdefault(dim, Scalar(f"%size.{dim}", I32, nonnegative=True))
            case s.ScalarArgument(name, dtype):
                parameters.append(f"{'float' if dtype.is_float else 'i32'} %scalar.{name}")
                values[names[name]] = _scalar(w, argument)
    # The grid has one dimension.
    zero = nvvm.special_register(w, "ctaid.z")
    context = Context(
        w=w,
        threads=threads,
        smem=w.value("ptrtoint ptr addrspace(3) @smem to i32"),
        convert=convert_region,
        stored=written_tensors(kernel),
        fragments=frozenset(op.result.name for op in lent if op.fragments),
        unaligned=frozenset(kernel.unaligned),
        sizes=sizes,
        strides=strides,
        maps=iter(maps),
        never=w.compare("ne", zero, 0),
        zero=zero,
        apart=w.value(f"zext i32 {w.binary('and', 'i32', threads.lane, zero)} to i64"),
        before_fences=operands_before_fences(kernel),
        named=named,
        zeroed=zeroed,
        definers=kernel.definers,
        values=values,
    )
    return context, parameters


def _scalar(w: Writer, argument: s.ScalarArgument) -> Scalar:
    """Narrow scalars travel as f32 and i32."""
    dtype, text = argument.dtype, f"%scalar.{argument.name}"
    if dtype.is_float:
        text = from_floats(w, dtype, Shape(1, 1), [text]).texts[0]
    elif dtype.name == "bool":
        text = w.compare("ne", text, 0)
    elif dtype.bits < 32:
        text = w.value(f"trunc i32 {text} to i{dtype.bits}")
    return Scalar(text, dtype)


def _threads(w: Writer) -> Threads:
    tid = nvvm.special_register(w, "tid.x")
    lane = w.binary("and", "i32", tid, 31)
    warp = nvvm.shuffle_any(w, "i32", w.binary("lshr", "i32", tid, 5), "0")
    inner = w.binary("and", "i32", warp, 3)
    eighth = w.binary("lshr", "i32", lane, 2)
    thread = w.binary("and", "i32", tid, 127)
    return Threads(
        tid=tid,
        lane=lane,
        warp=inner,
        warpgroup=w.binary("lshr", "i32", warp, 2),
        row=w.add(w.binary("shl", "i32", inner, 4), eighth),
        column=w.binary("shl", "i32", w.binary("and", "i32", lane, 3), 1),
        first_lane=w.compare("eq", lane, 0),
        first_thread=w.compare("eq", thread, 0),
    )
