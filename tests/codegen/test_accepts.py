"""ptxas takes every function, dtype, shape and layout.

Kernels with all functions of a dtype in a row hold so much that they may spill; others may not.
"""

import re

import pytest

from tests.codegen.support import assembled, kernel_of, needs_ptxas, ptx_of
from wsdsl.codegen.arithmetic.float_functions import UNARY
from wsdsl.codegen.ptxas import assemble
from wsdsl.codegen.region import CONVERTERS
from wsdsl.diagnostics import CompileError
from wsdsl.ir.ops import BINARY_FUNCTIONS, COMPARISONS, UNARY_FUNCTIONS
from wsdsl.ir.parser import OPS
from wsdsl.ir.verify.verifier import verify
from wsdsl.prover.ptx.check_ptx import check_skeleton

FLOATS = ("f32", "tf32", "f16", "bf16", "f8e4m3", "f8e5m2")
INTEGERS = ("i32", "u32", "i16", "u16", "i8", "u8")
BITS = {"f32": 32, "tf32": 32, "i32": 32, "u32": 32, "f16": 16, "bf16": 16, "i16": 16, "u16": 16}
INTEGER_UNARY = ("neg", "not", "abs", "relu")
BITWISE = ("and", "or", "xor", "shl", "shr")
INDICES = """
%zero: i32 = constant(value=0)
%r: frag<i32[64x1]> = iota(start=%zero)
%c: frag<i32[1x24]> = iota(start=%zero)
"""
SHAPES = {"x": ("64x24", "%r, %c"), "y": ("1x24", "%zero, %c"), "z": ("64x1", "%r, %zero")}
PARAMS = "%X: tensor<{0}[M, N]>, %Y: tensor<{0}[M, N]>"
FEW_COLUMNS = 8
"""Four elements per thread, two pairs: with a hundred functions the time of ptxas grows with them.
"""


def loads(dtype: str, vector: int = 2, columns: int = 24) -> str:
    made = INDICES.replace("1x24", f"1x{columns}")
    for name, (shape, index) in SHAPES.items():
        shape = shape.replace("x24", f"x{columns}")
        made += (
            f"%{name}: frag<{dtype}[{shape}]> = "
            f"load_global(tensor=%X, index=({index}), vector={vector})\n"
        )
    return made + f"%s: {dtype} = load_global(tensor=%X, index=(%zero, %zero))\n"


def store(name: str, vector: int = 2) -> str:
    return f"store_global(tensor=%Y, index=(%r, %c), value=%{name}, vector={vector})\n"


def test_codegen_converts_every_scheduled_op() -> None:
    assert {cls for cls in OPS.values() if "scheduled" in cls.levels} == CONVERTERS.keys()


def test_float_functions_are_complete() -> None:
    assert set(UNARY) == set(UNARY_FUNCTIONS) - {"not"}


@pytest.mark.sampled(6)
@needs_ptxas
@pytest.mark.parametrize("dtype", FLOATS)
def test_float_functions(dtype: str) -> None:
    body, made = loads(dtype, columns=FEW_COLUMNS), 0
    full = f"frag<{dtype}[64x{FEW_COLUMNS}]>"
    for fn in UNARY:
        body += f'%u{made}: frag<{dtype}[1x{FEW_COLUMNS}]> = map(fn="{fn}", args=(%y,))\n'
        body += f'%v{made}: {full} = map(fn="add", args=(%x, %u{made}))\n{store(f"v{made}")}'
        made += 1
    for fn in BINARY_FUNCTIONS:
        if fn in BITWISE:
            continue
        kind = "bool" if fn in COMPARISONS else dtype
        body += f'%b{made}: frag<{kind}[64x1]> = map(fn="{fn}", args=(%z, %s))\n'
        if fn in COMPARISONS:
            body += f'%v{made}: {full} = map(fn="where", args=(%b{made}, %x, %y))\n'
        else:
            body += f'%v{made}: {full} = map(fn="fma", args=(%x, %b{made}, %y))\n'
        body += store(f"v{made}")
        made += 1
    params = PARAMS.format(dtype)
    assert assemble(ptx_of(kernel_of(body, params)))


@pytest.mark.sampled(6)
@needs_ptxas
@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_functions(dtype: str) -> None:
    body, made = loads(dtype, columns=FEW_COLUMNS), 0
    full = f"frag<{dtype}[64x{FEW_COLUMNS}]>"
    body += f"%seven: {dtype} = constant(value=7)\n%eight: {dtype} = constant(value=8)\n"
    for fn in INTEGER_UNARY:
        body += f'%v{made}: {full} = map(fn="{fn}", args=(%x,))\n{store(f"v{made}")}'
        made += 1
    for fn in BINARY_FUNCTIONS:
        if fn == "pow":
            continue
        for other in ("y", "s", "seven", "eight"):
            if fn in COMPARISONS:
                held = f"frag<bool[64x{FEW_COLUMNS}]>"
                body += f'%b{made}: {held} = map(fn="{fn}", args=(%x, %{other}))\n'
                body += f'%v{made}: {full} = map(fn="where", args=(%b{made}, %x, %z))\n'
            else:
                body += f'%v{made}: {full} = map(fn="{fn}", args=(%x, %{other}))\n'
            body += store(f"v{made}")
            made += 1
    params = PARAMS.format(dtype)
    assert assemble(ptx_of(kernel_of(body, params)))


@pytest.mark.sampled(8)
@needs_ptxas
@pytest.mark.parametrize("source", [*FLOATS, *INTEGERS, "bool"])
def test_casts(source: str) -> None:
    body, params = loads(source), f"%X: tensor<{source}[M, N]>"
    for target in (*FLOATS, *INTEGERS, "bool"):
        params += f", %T{target}: tensor<{target}[M, 32]>"
        for name, (shape, index) in SHAPES.items():
            made = f"{target}{name}"
            body += f"%{made}: frag<{target}[{shape}]> = cast(x=%{name})\n"
            body += f"store_global(tensor=%T{target}, index=({index}), value=%{made}, vector=2)\n"
        if source != "bool" != target and BITS.get(source) == BITS.get(target):
            body += f"%w{target}: frag<{target}[64x24]> = bitcast(x=%x)\n"
            body += f"store_global(tensor=%T{target}, index=(%r, %c), value=%w{target}, vector=1)\n"
    assert assembled(kernel_of(body, params)).resources.registers


@pytest.mark.sampled(2)
@needs_ptxas
@pytest.mark.parametrize("dtype", [*FLOATS, "i32", "u8"])
def test_reductions_slices_and_full(dtype: str) -> None:
    body = loads(dtype)
    for fn in ("add", "max", "min"):
        body += f"""
%rows{fn}: frag<{dtype}[64x1]> = reduce_columns(fn="{fn}", x=%x)
store_global(tensor=%Y, index=(%r, %zero), value=%rows{fn})
%all{fn}: {dtype} = reduce_columns(fn="{fn}", x=%y)
store_global(tensor=%Y, index=(%zero, %zero), value=%all{fn})
%one{fn}: frag<{dtype}[64x1]> = reduce_columns(fn="{fn}", x=%z)
store_global(tensor=%Y, index=(%r, %zero), value=%one{fn})
"""
    body += f"""
%part: frag<{dtype}[64x8]> = slice_columns(x=%x, start=8)
%cp: frag<i32[1x8]> = slice_columns(x=%c, start=8)
store_global(tensor=%Y, index=(%r, %cp), value=%part, vector=2)
%both: frag<{dtype}[64x24]> = join_columns(parts=(%part, %part, %part))
{store("both")}
%same: frag<{dtype}[64x24]> = full(value=%s)
{store("same")}
"""
    params = PARAMS.format(dtype)
    assert assembled(kernel_of(body, params)).resources.registers


@needs_ptxas
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "i32", "u32"])
def test_atomic_addition(dtype: str) -> None:
    body = loads(dtype) + "%one: i32 = constant(value=1)\n"
    body += '%p: bool = map(fn="gt", args=(%i, %one))\n'
    for name, (_, index) in SHAPES.items():
        for vector in (1, 2):
            body += (
                f"store_global(tensor=%Y, index=({index}), value=%{name}, vector={vector}, "
                "accumulate=True, pred=%p)\n"
            )
    body += "store_global(tensor=%Y, index=(%r, %zero), value=%x, accumulate=True)\n"
    body += "store_global(tensor=%Y, index=(%zero, %zero), value=%s, accumulate=True)\n"
    params = PARAMS.format(dtype) + ", %i: i32"
    found = assembled(kernel_of(body, params))
    assert "red.global.add" in found.ptx


def test_atomic_addition_without_instruction_is_an_error() -> None:
    body = loads("u8") + "store_global(tensor=%Y, index=(%r, %c), value=%x, accumulate=True)"
    with pytest.raises(CompileError, match="cannot add u8 elements atomically"):
        ptx_of(kernel_of(body, "%X: tensor<u8[M, N]>, %Y: tensor<u8[M, N]>"))


STAGING = '%staging: shared<{bytes} x 2> = allocate_shared(label="staging", offset=1024)\n'


@pytest.mark.sampled(6)
@needs_ptxas
@pytest.mark.parametrize(
    "dtype", ["f16", "bf16", "i16", "f32", "tf32", "i32", "u8", "f8e4m3", "bool"]
)
def test_store_shared(dtype: str) -> None:
    size = BITS.get(dtype, 8) // 8
    body, setup = INDICES, ""
    count = 0
    for swizzle, span in (("128B", 128), ("64B", 64), ("32B", 32), ("none", 16)):
        for transposed in (False, True):
            for columns in (8, 16, 24, 64):
                lines, line = (columns, 16) if transposed else (16, columns)
                if line * size > span and swizzle != "none":
                    continue
                count += 1
                item = -(-4 * lines * max(line * size, span) // 1024) * 1024
                setup += (
                    f"%m{count}: shared<{item} x 2> = "
                    f'allocate_shared(label="m{count}", offset={16384 * count})\n'
                )
                body += f"""
%c{count}: frag<i32[1x{columns}]> = iota(start=%zero)
%x{count}: frag<{dtype}[64x{columns}]> = load_global(tensor=%X, index=(%r, %c{count}), vector=2)
store_shared(value=%x{count}, shared=%m{count}, item=%i, swizzle="{swizzle}",
  transposed={transposed})
"""
    params = f"%X: tensor<{dtype}[M, N]>, %i: i32"
    assert assembled(kernel_of(body, params, setup)).resources.registers
    assert count > 5


def test_store_shared_too_wide() -> None:
    body = f"""{INDICES}
%x: frag<f32[64x24]> = load_global(tensor=%X, index=(%r, %c))
store_shared(value=%x, shared=%staging, item=%zero, swizzle="64B")
"""
    with pytest.raises(CompileError, match="do not fit a panel"):
        ptx_of(kernel_of(body, "%X: tensor<f32[M, N]>", STAGING.format(bytes=8192)))


def product(n: int, swizzle: str, dtype: str, a_k: bool, b_k: bool, k: int = 64) -> str:
    """One product on panels that somebody else has filled."""
    a, b = ((64, k) if a_k else (k, 64)), ((n, k) if b_k else (k, n))
    return f"""
%zero: i32 = constant(value=0)
%yes: bool = constant(value=False)
%st: state = initial_state(parity=0)
%a: matrix_descriptor = smem_descriptor(shared=%smem, state=%st, start=%zero,
  dtype="{dtype}", rows={a[0]}, columns={a[1]}, swizzle="{swizzle}", k_major={a_k})
%b: matrix_descriptor = smem_descriptor(shared=%smem, offset=16384, state=%st,
  dtype="{dtype}", rows={b[0]}, columns={b[1]}, swizzle="{swizzle}", k_major={b_k})
%acc: acc<f32[64x{n}]> = empty_accumulator()
wgmma_fence()
%acc1: acc<f32[64x{n}]> = wgmma_mma_async(acc=%acc, a=%a, b=%b,
    accumulate=%yes, dtype="{dtype}", k={k},
  a_k_major={a_k}, b_k_major={b_k})
wgmma_commit()
%sum: frag<f32[64x{n}]> = wgmma_wait(pending=0, accumulators=(%acc1,))
%r: frag<i32[64x1]> = iota(start=%zero)
%c: frag<i32[1x{n}]> = iota(start=%zero)
store_global(tensor=%Y, index=(%r, %c), value=%sum, vector=2)
"""


SMEM = '%smem: shared<131072 x 1> = allocate_shared(label="smem", offset=0)\n'


@pytest.mark.sampled(6)
@needs_ptxas
@pytest.mark.parametrize("swizzle", ["128B", "64B", "32B", "none"])
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_products(swizzle: str, dtype: str) -> None:
    for n, a_k, b_k in ((8, True, True), (72, False, True), (96, True, False), (128, False, False)):
        body = product(n, swizzle, dtype, a_k, b_k)
        found = assembled(kernel_of(body, "%Y: tensor<f32[M, N]>", SMEM))
        assert "C75" not in found.log
        assert f"m64n{n}k16.f32.{dtype}.{dtype}" in found.ptx
        assert f", {int(not a_k)}, {int(not b_k)};" in found.ptx


PAIRS = [
    ("tf32", "tf32", "f32"), ("f8e4m3", "f8e4m3", "f32"), ("f8e5m2", "f8e5m2", "f32"),
    ("f8e4m3", "f8e5m2", "f32"), ("i8", "i8", "i32"), ("u8", "u8", "i32"), ("u8", "i8", "i32"),
]  # fmt: skip
PTX = {"f8e4m3": "e4m3", "f8e5m2": "e5m2", "i8": "s8", "u8": "u8", "tf32": "tf32"}


def product_of(a: str, b: str, total: str, n: int, swizzle: str) -> str:
    """As `product`, with operands of other types than 16-bit ones."""
    steps = {"128B": 4, "64B": 2, "32B": 1}[swizzle]
    k = 2 * steps * (8 if a == "tf32" else 32)
    body = product(n, swizzle, a, True, True, k)
    head, tail = body.split("%b: matrix_descriptor", 1)
    tail = tail.replace(f'dtype="{a}"', f'dtype="{b}"', 1)
    if a != b:
        tail = tail.replace(f'dtype="{a}", k', f'dtype="{a}", b_dtype="{b}", k')
    body = head + "%b: matrix_descriptor" + tail
    return body.replace(f"acc<f32[64x{n}]", f"acc<{total}[64x{n}]").replace(
        f"%sum: frag<f32[64x{n}]", f"%sum: frag<{total}[64x{n}]"
    )


@pytest.mark.sampled(6)
@needs_ptxas
@pytest.mark.parametrize(
    ("a", "b", "total", "swizzle"),
    [
        *((*types, ("128B", "64B", "32B")[i % 3]) for i, types in enumerate(PAIRS)),
        ("tf32", "tf32", "f32", "64B"),
        ("tf32", "tf32", "f32", "32B"),
    ],
)
def test_products_of_other_types(a: str, b: str, total: str, swizzle: str) -> None:
    wide = "s32" if total == "i32" else total
    ending = "" if total == "i32" else ", 1, 1"
    for n in (8, 24, 48, 112, 256):
        kernel = kernel_of(product_of(a, b, total, n, swizzle), f"%Y: tensor<{total}[M, N]>", SMEM)
        verify(kernel)
        found = assembled(kernel)
        assert "C75" not in found.log
        shape = f"m64n{n}k{8 if a == 'tf32' else 32}.{wide}.{PTX[a]}.{PTX[b]} "
        lines = [x for x in found.ptx.splitlines() if shape in x]
        assert len(lines) == 2 * {"128B": 4, "64B": 2, "32B": 1}[swizzle]
        assert all(re.search(rf"\}}, a, b, [01]{ending};$", x) for x in lines)
        check_skeleton(kernel, found.ptx)


def test_operand_that_begins_inside_an_atom() -> None:
    body = product(64, "128B", "bf16", True, True).replace("start=%zero,", "start=%four,")
    body = f"%four: i32 = constant(value=4)\n{body}"
    with pytest.raises(CompileError, match="cannot start 4 elements into its tile"):
        ptx_of(kernel_of(body, "%Y: tensor<f32[M, N]>", SMEM))


@needs_ptxas
def test_indices_of_every_kind() -> None:
    """Gathers, transposed and strided accesses, fixed sizes, negative indices."""
    body = f"""{INDICES}
%three: i32 = constant(value=3)
%g: frag<i32[64x1]> = load_global(tensor=%I, index=(%r,))
%gc: frag<i32[1x24]> = load_global(tensor=%I, index=(%c,))
%x: frag<f32[64x24]> = load_global(tensor=%X, index=(%g, %c), vector=2)
%y: frag<f32[64x24]> = load_global(tensor=%X, index=(%c, %g))
%before: frag<i32[1x24]> = map(fn="sub", args=(%c, %three))
%twice: frag<i32[1x24]> = map(fn="mul", args=(%c, %three))
%z: frag<f32[64x24]> = load_global(tensor=%X, index=(%r, %before))
%u: frag<f32[64x24]> = load_global(tensor=%X, index=(%gc, %r))
%both: frag<i32[64x24]> = map(fn="add", args=(%g, %gc))
%v: frag<f32[64x24]> = load_global(tensor=%X, index=(%three, %both))
%w: frag<f32[64x24]> = load_global(tensor=%F, index=(%three, %r, %twice))
%s1: frag<f32[64x24]> = map(fn="fma", args=(%x, %y, %z))
%s2: frag<f32[64x24]> = map(fn="fma", args=(%u, %v, %s1))
%s3: frag<f32[64x24]> = map(fn="add", args=(%w, %s2))
store_global(tensor=%X, index=(%r, %c), value=%s3)
store_global(tensor=%F, index=(%three, %r, %c), value=%s3, vector=2)
"""
    params = "%X: tensor<f32[M, N]>, %F: tensor<f32[4, 64, 24]>, %I: tensor<i32[M]>"
    assert assembled(kernel_of(body, params)).resources.registers


@needs_ptxas
def test_control() -> None:
    """Ifs and loops that yield scalars, fragments and states; scalar parameters of every kind."""
    body = f"""{INDICES}
%n: i32 = dim_size(dim="N")
%one: i32 = constant(value=1)
%zeros: frag<f32[64x24]> = full(value=%x)
%st: state = initial_state(parity=1)
%sum: frag<f32[64x24]>, %last: state, %ci: frag<i32[1x24]> = for_range(
    index=%i: i32, start=%zero, stop=%n, step=%one,
    init=(%zeros, %st, %c), args=(%s: frag<f32[64x24]>, %t: state, %cc: frag<i32[1x24]>)) {{
  %y: frag<f32[64x24]> = if(cond=%b) {{
    %l: frag<f32[64x24]> = load_global(tensor=%X, index=(%r, %cc))
    %m: frag<f32[64x24]> = map(fn="add", args=(%l, %s))
    yield(values=(%m,))
  }} {{
    yield(values=(%s,))
  }}
  %u: state = advance(state=%t, num=1)
  %cn: frag<i32[1x24]> = map(fn="add", args=(%cc, %k))
  yield(values=(%y, %u, %cn))
}}
store_global(tensor=%Y, index=(%r, %ci), value=%sum)
%h32: f32 = cast(x=%h)
%g32: f32 = cast(x=%g)
%hg: f32 = map(fn="mul", args=(%h32, %g32))
elect() {{
  store_global(tensor=%Y, index=(%zero, %zero), value=%hg)
}}
"""
    params = (
        "%X: tensor<f32[M, N]>, %Y: tensor<f32[M, N]>, %x: f32, %b: bool, %k: i32, %h: f16, %g: u8"
    )
    assert assembled(kernel_of(body, params)).resources.registers
