"""LLVM intrinsics that several conversions use, one function each."""

from wsdsl.codegen.writer import Writer

ALL_LANES = "-1"


def special_register(w: Writer, name: str) -> str:
    """tid.x, ctaid.x, nctaid.x; none of them is negative."""
    return w.call(f"llvm.nvvm.read.ptx.sreg.{name}", "i32")


def pick_bytes(w: Writer, low: str, high: str, selector: str) -> str:
    """Four of the eight bytes, as the digits of `selector` number them."""
    return w.call("llvm.nvvm.prmt", "i32", [("i32", low), ("i32", high), ("i32", selector)])


def shuffle_xor(w: Writer, type: str, x: str, mask: int) -> str:
    """The value of lane ^ mask; `type` is float or i32."""
    return _shuffle(w, "bfly", type, x, str(mask))


def shuffle_up(w: Writer, type: str, x: str, lanes: int) -> str:
    """The value of the lane with a number lower by `lanes`; the first lanes get their own."""
    return _shuffle(w, "up", type, x, str(lanes), "0")


def shuffle_any(w: Writer, type: str, x: str, lane: str) -> str:
    """The value of the lane that each lane names; `type` is float or i32."""
    return _shuffle(w, "idx", type, x, lane)


def _shuffle(w: Writer, mode: str, type: str, x: str, lane: str, clamp: str = "31") -> str:
    args = [("i32", ALL_LANES), (type, x), ("i32", lane), ("i32", clamp)]
    return w.call(f"llvm.nvvm.shfl.sync.{mode}.{'f32' if type == 'float' else type}", type, args)


def fence_async_proxy(w: Writer, everywhere: bool = False) -> None:
    space = "" if everywhere else ".shared_cta"
    w.call(f"llvm.nvvm.fence.proxy.async{space}", "void")


def to_half_pair(w: Writer, dtype: str, low: str, high: str) -> str:
    """Two floats, rounded to nearest even to bf16 or f16, packed in an i32."""
    type = "<2 x bfloat>" if dtype == "bf16" else "<2 x half>"
    result = w.call(f"llvm.nvvm.ff2{dtype}x2.rn", type, [("float", high), ("float", low)])
    return w.value(f"bitcast {type} {result} to i32")


F8_NAMES = {"f8e4m3": "e4m3x2", "f8e5m2": "e5m2x2"}


def to_f8_pair(w: Writer, dtype: str, low: str, high: str) -> str:
    """Two floats, rounded to nearest even within the finite values, packed in an i16."""
    name = f"llvm.nvvm.ff.to.{F8_NAMES[dtype]}.rn"
    return w.call(name, "i16", [("float", high), ("float", low)])


def from_f8_pair(w: Writer, dtype: str, pair: str) -> tuple[str, str]:
    """The two elements of an i16 as f32."""
    result = w.call(f"llvm.nvvm.{F8_NAMES[dtype]}.to.f16x2.rn", "<2 x half>", [("i16", pair)])
    halves = [w.value(f"extractelement <2 x half> {result}, i32 {i}") for i in (0, 1)]
    low, high = (w.value(f"fpext half {x} to float") for x in halves)
    return low, high


def float_unary(w: Writer, name: str, x: str) -> str:
    """A function of one float."""
    return w.call(name, "float", [("float", x)])


def double_fma(w: Writer, a: str, b: str, c: str) -> str:
    return w.call("llvm.fma.f64", "double", [("double", a), ("double", b), ("double", c)])


def reciprocal_approx(w: Writer, x: str) -> str:
    """1 / x, relative error 2^-23; results below 2^-126 are 0."""
    return float_unary(w, "llvm.nvvm.rcp.approx.ftz.f", x)


def integer_binary(w: Writer, name: str, type: str, a: str, b: str) -> str:
    """smin, smax, umin, umax."""
    return w.call(f"llvm.{name}.{type}", type, [(type, a), (type, b)])
