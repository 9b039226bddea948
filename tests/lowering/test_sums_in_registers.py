"""A sum whose registers products add to may be wanted as it was, too."""

import numpy as np
import pytest

from wsdsl import Schedule, parse

SOURCE = """
@kernel
def sums(X: f16[M, K], Z: f16[E, N, K], C: f32[M, N]):
    for m, n in tiles(M, N):
        a = zeros(f32[m, n])
{body}
        C[m, n] = a
"""
BODIES = {
    "behind": """
        a = a + X[m, :] @ Z[0, n, :]
        d = a + X[m, :] @ Z[1, n, :]
        a = a * d""",
    "by two": """
        a = a + X[m, :] @ Z[0, n, :]
        b = a + X[m, :] @ Z[1, n, :]
        c = a + X[m, :] @ Z[2, n, :]
        a = b * c""",
    "in the next iteration": """
        b = a
        for e in each(E):
            b = a
            a += X[m, :] @ Z[e, n, :]
        a = a * 0.5 + b""",
    "behind a loop": """
        a = a + X[m, :] @ Z[0, n, :]
        b = a
        for k in tiles(K):
            b += X[m, k] @ Z[1, n, k]
        a = a * b""",
    "by two loops": """
        for k in tiles(K):
            a += X[m, k] @ Z[0, n, k]
        b = a
        for k in tiles(K):
            b += X[m, k] @ Z[1, n, k]
        for k in tiles(K):
            a += X[m, k] @ Z[2, n, k]
        a = a * b""",
    "while another product is in flight": """
        b = zeros(f32[m, n])
        a = a + X[m, :] @ Z[0, n, :]
        b = b + X[m, :] @ Z[1, n, :]
        C[m, n] = a
        a = b * 2.0""",
}


def data(k: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x, z = rng.integers(-2, 3, (72, k)), rng.integers(-2, 3, (3, 40, k))
    return x.astype(np.float16), z.astype(np.float16)


@pytest.mark.parametrize("body", BODIES)
def test_a_sum_is_read_before_products_add_to_it(body: str) -> None:
    made = parse(SOURCE.format(body=BODIES[body].strip("\n"))).sums
    x, z = data(48)
    found, right = (np.zeros((72, 40), np.float32) for _ in range(2))
    made.simulate(x, z, found, schedule=Schedule(tile=dict(m=64, n=24)))
    made.reference(x, z, right)
    np.testing.assert_array_equal(found, right)


@pytest.mark.parametrize("first", ["[m, :] @ Z[0, n, :]", "[m, k] @ Z[0, n, k]"])
def test_a_loop_that_turns_once_leaves_the_ptx_what_the_kernel_is(first: str) -> None:
    """A dimension that is taken whole is a number, and so is how often a loop over it turns."""
    product = {True: "        a = a + X{}", False: "        for k in tiles(K): a += X{}"}
    both = (first, "[m, k] @ Z[1, n, k]" if ":" in first else "[m, :] @ Z[1, n, :]")
    body = "\n".join(product[":" in each].format(each) for each in both)
    made = parse(SOURCE.format(body=body)).sums
    for k in (64, 128):
        compiled = made.compile(schedule=Schedule(tile=dict(m=64, n=64, k=64)), M=512, K=k)
        compiled.prove()


def test_what_a_sum_began_with_is_in_what_is_stored_of_it_on_the_way() -> None:
    made = parse("""
@kernel
def sums(X: f16[M, K], Z: f16[N, K], S: f32[M, N], C: f32[T, M, N]):
    for m, n in tiles(M, N):
        a = S[m, n]
        for k in tiles(K, by=64):
            a += X[m, k] @ Z[n, k]
            C[(end(k) - 1) // 64, m, n] = a
""").sums
    x, z = data(128)
    began = np.full((72, 40), 5, np.float32)
    found = np.zeros((2, 72, 40), np.float32)
    made.simulate(x, z[0], began, found)
    steps = [began + x[:, :end].astype(np.float32) @ z[0, :, :end].T for end in (64, 128)]
    np.testing.assert_array_equal(found, steps)
