"""The kernels that most wrong programs are bodies of, or that a word is wrong in."""

HEAD = """\
@kernel
def k(A: bf16[M, K], B: bf16[N, K], C: bf16[M, N], H: f16[N, K],
      r: i32[M], P: u8[16], alpha: f32, n0: i32):
    for m, n in tiles(M, N):
"""
SMALL = """\
@kernel
def k(C: f32[M]):
    for m in tiles(M):
        C[m] = 1.0
"""


def body(text: str) -> str:
    return HEAD + "".join(f"        {line}\n" for line in text.strip("\n").split("\n"))


def block(header: str) -> str:
    return body(f"{header}\n    pass\nC[m, n] = 0.0")


def calling(*lines: str, given: str = "1.0") -> str:
    """A function of these lines, and a kernel that calls it."""
    inside = "".join(f"    {line}\n" for line in lines)
    return f"@function\ndef f(x):\n{inside}" + SMALL.replace("1.0", f"f({given})")
