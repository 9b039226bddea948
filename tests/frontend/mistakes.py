"""The kernel that most wrong programs are bodies of."""

HEAD = """\
@kernel
def k(A: bf16[M, K], B: bf16[N, K], C: bf16[M, N], H: f16[N, K],
      r: i32[M], P: u8[16], alpha: f32, n0: i32):
    for m, n in tiles(M, N):
"""


def body(text: str) -> str:
    return HEAD + "".join(f"        {line}\n" for line in text.strip("\n").split("\n"))
