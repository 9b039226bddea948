"""11. Rows that data chooses.

An index may be a tile of integers: `table[ids[m], n]` loads the rows that `ids` names, as an
embedding does. On the way back `+=` adds to these rows, whoever else adds to them. What an index
finds outside of a tensor is 0, and what is added there is left out, so that -1 stands for no row.

Sums in memory are made in the order in which tiles come. Those of integers are the same in any.
"""

import ml_dtypes
import numpy as np

from wsdsl import bf16, dims, i32, kernel, tiles

V, M, N = dims("V M N")


@kernel
def embedding(table: bf16[V, N], ids: i32[M], Y: bf16[M, N]):
    for m, n in tiles(M, N):
        Y[m, n] = table[ids[m], n]


@kernel
def counted(X: i32[M, N], ids: i32[M], sums: i32[V, N]):
    for m, n in tiles(M, N):
        sums[ids[m], n] += X[m, n]


def main():
    generator = np.random.default_rng(0)
    table = generator.standard_normal((50, 200)).astype(ml_dtypes.bfloat16)
    ids = generator.integers(-1, 50, 150).astype("int32")
    known = ids >= 0

    y = embedding(table, ids)
    assert np.array_equal(y[known], table[ids[known]]) and not y[~known].any()

    x = generator.integers(-100, 100, (150, 200)).astype("int32")
    sums, exact = np.zeros((50, 200), "int32"), np.zeros((50, 200), "int32")
    counted(x, ids, sums)
    np.add.at(exact, ids[known], x[known])
    assert np.array_equal(sums, exact)
    print(f"embedding: {known.sum()} rows exactly, and sums of {len(table)} on the way back")


if __name__ == "__main__":
    main()
