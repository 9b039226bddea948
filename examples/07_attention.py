"""7. Products of products.

Attention: the scores of a tile of queries against one tile of keys after another, and the values
weighted by them. The second product's operand is made of the first one's results. It stays in
registers, and while it is made, the tensor cores have the values of the tile before: which runs
beside which is the compiler's business, and so is that Q is loaded once, and that K and V have
circular buffers of their own. `exp2` of scores times log2(e) costs less than `exp`.
"""

import ml_dtypes
import numpy as np

from wsdsl import bf16, cast, dims, each, exp2, f32, fma, full, inf, kernel, max, sum, tiles, zeros

B, H, S, T, D = dims("B H S T D")


@kernel
def attention(
    Q: bf16[B, H, S, D], K: bf16[B, H, T, D], V: bf16[B, H, T, D], Y: bf16[B, H, S, D], scale: f32
):
    for b, h in each(B, H):
        for q in tiles(S):
            top, total, acc = full(f32[q], -inf), zeros(f32[q]), zeros(f32[q, D])
            for t in tiles(T):
                s = Q[b, h, q, :] @ K[b, h, t, :]
                new_top = max(top, max(s, over=t) * scale)
                p, shrink = exp2(fma(s, scale, -new_top)), exp2(top - new_top)
                total = total * shrink + sum(p, over=t)
                acc = acc * shrink + cast(p, bf16) @ V[b, h, t, :]
                top = new_top
            Y[b, h, q, :] = acc / total


def main():
    generator = np.random.default_rng(0)
    q, k, v = (
        generator.standard_normal((1, 2, length, 64), "float32").astype(ml_dtypes.bfloat16)
        for length in (96, 200, 200)
    )
    scale = 1 / np.sqrt(64)

    y = attention(q, k, v, scale=float(scale * np.log2(np.e)))

    wide = [x.astype("float64") for x in (q, k, v)]
    scores = np.einsum("bhsd,bhtd->bhst", wide[0], wide[1]) * scale
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    exact = np.einsum("bhst,bhtd->bhsd", weights / weights.sum(-1, keepdims=True), wide[2])
    error = np.linalg.norm(y.astype("float64") - exact) / np.linalg.norm(exact)
    assert error < 2**-7
    print(f"attention: relative error {error:.2g} against float64")


if __name__ == "__main__":
    main()
