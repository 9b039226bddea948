"""Words of Python, NumPy, torch, Triton and CUDA, with the hint for each.

Text in backticks works, for tiles `x` and `y` over an axis `n` of dimension N.
"""

_LOOPS = "`for m in tiles(M):`, or `for i in each(N):`"
_MEAN = "`sum(x, over=n) / cast(N, f32)`"
_LOAD = "load a tile by its index: `X[n]`"
_STORE = "store a tile by its index: Y[n] = x"
_PRODUCT = "`A[m, k] @ B[n, k]`, which sums over the shared axis"
_TYPES = "use an element type: {}"
_NO_THREADS = "write loops over tiles: a kernel has no threads and no blocks"
_BY_NAME = "for {}, order the axes in the index of the store: axes have names, not positions"
_JOIN = "store each part by its index: Y[0, n] = x, and Y[1, n] = y"
_IN_LOOP = "carry it through a loop over `each(N)`, or compute it before the call"
_BEFORE = "compute it before the call, and pass it as a tensor: it is not lowered"
_ATOMIC = "carry `max(x, over=n)` through a loop: only `+=` combines the stores of tiles"
_COMPLEX = "store real and imaginary parts as two tensors: complex types are not lowered"
_SIZE = "`N`, the dimension's name, for its size"
_INDEX = "`index(n)` for the indices along an axis"
_BACKWARDS = "`X[N - 1 - index(n)]`, which loads backwards"
_GATHER = "index by an integer tile, as in `X[cast(x, i32)]`"
_ADD = "add to a tensor with +=, which is atomic: Y[n] += x"
_RANDOM = "pass random values as a tensor"

FOREIGN: dict[str, str] = {
    # Python
    "print": "inspect values with k.reference(…) or k.simulate(…) on NumPy arrays",
    **dict.fromkeys(("range", "static_range"), _LOOPS),
    **dict.fromkeys(("len", "shape", "size"), _SIZE),
    **dict.fromkeys(("pow", "power"), "`x ** y`"),
    **dict.fromkeys(("enumerate", "arange"), _INDEX),
    "zip": "`for m, n in tiles(M, N):` for several dimensions",
    "float": _TYPES.format("`f32`, `f16`, `bf16` …"),
    "int": _TYPES.format("`i32`, `i8`, `u8` …"),
    "divmod": "`floor(x / y)` and `x % y`",
    **dict.fromkeys(("complex", "c32", "c64", "c128", "complex64", "complex128"), _COMPLEX),
    **dict.fromkeys(("reversed", "flip"), _BACKWARDS),
    **dict.fromkeys(("sorted", "sort", "argsort", "median", "quantile"), "sort before the call"),
    "mode": "sort before the call",
    # Products
    **dict.fromkeys(("dot", "matmul", "mm", "addmm", "einsum", "tensordot", "inner"), _PRODUCT),
    **dict.fromkeys(("mma", "gemm"), _PRODUCT),
    "bmm": f"loop over the batch with `each`, and write {_PRODUCT}",
    "outer": "multiply tiles of two axes, which broadcast by name: x[m] * y[n]",
    # Reductions
    **dict.fromkeys(("mean", "average"), _MEAN),
    "var": f"compute mu = {_MEAN}, then the mean of `(x - y) * (x - y)`, with mu as y",
    "std": f"`sqrt(x)` of the variance; a mean is {_MEAN}",
    "norm": "`sqrt(sum(x * x, over=n))`",
    **dict.fromkeys(("prod", "cumprod", "cummax", "cummin"), _IN_LOOP),
    "amax": "`max(x, over=n)`",
    "amin": "`min(x, over=n)`",
    "nanmax": "`max(x, over=n)`, which ignores NaN",
    "nanmin": "`min(x, over=n)`, which ignores NaN",
    "nansum": "`sum(where(x == x, x, 0.0), over=n)`",
    "any": "`max(cast(x > 0, i32), over=n) != 0`",
    "all": "`min(cast(x > 0, i32), over=n) != 0`",
    "count_nonzero": "`sum(cast(x != 0, i32), over=n)`",
    "logsumexp": "`log(sum(exp(x - max(x, over=n)), over=n)) + max(x, over=n)`",
    "softmax": "`exp(x - max(x, over=n))`, divided by its `sum(x, over=n)`",
    "log_softmax": "`x - max(x, over=n) - log(sum(exp(x - max(x, over=n)), over=n))`",
    # Elementwise
    **dict.fromkeys(("maximum", "fmax", "fmaxf"), "`max(x, y)`"),
    **dict.fromkeys(("minimum", "fmin", "fminf"), "`min(x, y)`"),
    **dict.fromkeys(("clamp", "clip", "hardtanh"), "`min(max(x, -1.0), 1.0)`"),
    "clamp_min": "`max(x, 0.0)`",
    "clamp_max": "`min(x, 1.0)`",
    "isnan": "`x != x`",
    "isinf": "`abs(x) == inf`",
    "isfinite": "`abs(x) < inf`",
    "isclose": "`abs(x - y) < 1e-6`",
    "nan_to_num": "`where(x == x, x, 0.0)`",
    **dict.fromkeys(("nan", "NaN"), "`x != x` to detect NaN"),
    **dict.fromkeys(("infinity", "Infinity", "INFINITY"), "`inf`"),
    "pi": "define a constant of the file: pi = 3.14159265",
    **dict.fromkeys(("fabs", "fabsf", "absolute"), "`abs(x)`"),
    "sign": "`where(x > 0, 1.0, where(x < 0, -1.0, x))`",
    "ceil": "`-floor(-x)`",
    "trunc": "`where(x < 0, -floor(-x), floor(x))`",
    "rint": "`round(x)`",
    "square": "`x * x`",
    **dict.fromkeys(("reciprocal", "rcp"), "`1.0 / x`"),
    "add": "`x + y`",
    **dict.fromkeys(("sub", "subtract"), "`x - y`"),
    **dict.fromkeys(("mul", "multiply"), "`x * y`"),
    **dict.fromkeys(("div", "divide", "true_divide"), "`x / y`"),
    "floor_divide": "`floor(x / y)`, or // of integers",
    "cdiv": "write (x + y - 1) // y of integers",
    **dict.fromkeys(("mod", "fmod", "remainder"), "`x % y`"),
    **dict.fromkeys(("neg", "negative"), "`-x`"),
    "logical_and": "`(x > 0) & (y > 0)`",
    "logical_or": "`(x > 0) | (y > 0)`",
    "logical_not": "`~(x > 0)`",
    "logical_xor": "`(x > 0) ^ (y > 0)`",
    "expf": "`exp(x)`",
    "logf": "`log(x)`",
    "sqrtf": "`sqrt(x)`",
    "tanhf": "`tanh(x)`",
    "expm1": "`exp(x) - 1.0`",
    "log1p": "`log(1.0 + x)`",
    "log10": "`log(x) * 0.4342944819`",
    "tan": "`sin(x) / cos(x)`",
    "sinh": "`0.5 * (exp(x) - exp(-x))`",
    **dict.fromkeys(("asin", "acos", "atan", "atan2", "erfinv", "lgamma", "nonzero"), _BEFORE),
    **dict.fromkeys(("cross", "kron", "sinc"), _BEFORE),
    "asinh": "`log(x + sqrt(x * x + 1.0))`",
    "acosh": "`log(x + sqrt(x * x - 1.0))`",
    "atanh": "`0.5 * log((1.0 + x) / (1.0 - x))`",
    "exp10": "`10.0 ** x`",
    "logit": "`log(x / (1.0 - x))`",
    "cosh": "`0.5 * (exp(x) + exp(-x))`",
    "erfc": "`1.0 - erf(x)`",
    "hypot": "`sqrt(x * x + y * y)`",
    **dict.fromkeys(("addcmul", "fmaf"), "`fma(x, y, x)`"),
    "lerp": "`x + 0.5 * (y - x)`",
    "swish": "`silu(x)`",
    "leaky_relu": "`where(x > 0, x, 0.01 * x)`",
    "relu6": "`min(relu(x), 6.0)`",
    "elu": "`where(x > 0, x, exp(x) - 1.0)`",
    "softplus": "`log(1.0 + exp(x))`",
    "mish": "`x * tanh(log(1.0 + exp(x)))`",
    "select": "`where(x > 0, x, y)`",
    "masked_fill": "`where(x > 0, x, 0.0)`",
    "tril": "`where(index(m) >= index(n), x, 0.0)`",
    "triu": "`where(index(m) <= index(n), x, 0.0)`",
    **dict.fromkeys(("astype", "convert"), "`cast(x, bf16)`"),
    "view": "`bitcast(x, i32)`",
    # Tiles
    "linspace": "`cast(index(n), f32) * 0.5`",
    **dict.fromkeys(("ones", "ones_like", "full_like"), "`full(f32[n], 1.0)`"),
    **dict.fromkeys(("empty", "zeros_like"), "`zeros(f32[n])`"),
    **dict.fromkeys(("array", "tensor"), "`full(f32[n], 1.0)`, or a tensor parameter"),
    "eye": "`where(index(m) == index(n), 1.0, 0.0)`",
    "load": _LOAD,
    "store": _STORE,
    **dict.fromkeys(("gather", "take", "embedding"), _GATHER),
    "scatter": "store by an index that is an integer tile: Y[rows[n]] = x",
    **dict.fromkeys(("atomic_add", "atomicAdd"), _ADD),
    **dict.fromkeys(("atomic_max", "atomic_min", "atomicMax", "atomicMin"), _ATOMIC),
    **dict.fromkeys(("transpose", "trans"), _BY_NAME.format("a transpose")),
    "permute": _BY_NAME.format("a permutation"),
    **dict.fromkeys(("reshape", "squeeze", "unsqueeze", "expand_dims"), _BY_NAME.format("a shape")),
    "broadcast_to": "`x + zeros(f32[m, n])`: operands broadcast by axis name",
    **dict.fromkeys(("cat", "concat", "concatenate", "stack"), _JOIN),
    **dict.fromkeys(("rand", "randn", "dropout"), _RANDOM),
    # Types
    **dict.fromkeys(("float32", "float16", "fp32"), _TYPES.format("`f32`, `f16`, `bf16`, `i32` …")),
    **dict.fromkeys(("float64", "double", "f64"), "`f32`, the widest float type"),
    **dict.fromkeys(("u64", "uint64"), "`u32`, the widest unsigned type"),
    **dict.fromkeys(("i64", "int64"), "`i32`, the widest signed type"),
    "bfloat16": _TYPES.format("`bf16`, `f16`, `f32`, `i32` …"),
    **dict.fromkeys(("half", "fp16"), _TYPES.format("`f16`, `bf16`, `f32`, `i32` …")),
    "fp8": _TYPES.format("`f8e4m3`, `f8e5m2`, `bf16` …"),
    "int32": _TYPES.format("`i32`, `i16`, `i8`, `u8`, `f32` …"),
    "int8": _TYPES.format("`i8`, `i16`, `i32`, `u8`, `f32` …"),
    "uint8": _TYPES.format("`u8`, `u16`, `u32`, `i8`, `f32` …"),
    "uint32": _TYPES.format("`u32`, `u16`, `u8`, `i32`, `f32` …"),
    # Threads
    **dict.fromkeys(("program_id", "num_programs", "threadIdx", "blockIdx"), _NO_THREADS),
    **dict.fromkeys(("blockDim", "syncthreads", "__syncthreads", "grid"), _NO_THREADS),
}


def meant(name: str) -> str:
    """The hint for a foreign word; empty for other words."""
    hint = FOREIGN.get(name, "")
    return f"write {hint}" if hint.startswith("`") else hint
