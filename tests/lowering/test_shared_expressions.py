"""A value that is used several times is looked at once: what is made of it 2^n times over compiles
as soon as what is made of it n times.
"""

import pytest

from wsdsl import parse

DEPTH = 24
KERNELS = {
    "rows": (
        "X: f32[M, N], Y: f32[M]",
        "x = X[m, :]",
        "x = x * x * 0.5 + x",
        "Y[m] = sum(x, over=N)",
    ),
    "functions": (
        "X: f32[M, N], Y: f32[M, N]",
        "x = X[m, :]",
        "x = exp(x - x * x) + x",
        "Y[m, :] = x / sum(x, over=N)",
    ),
    "indices": ("Y: f32[M]", "x = index(m)", "x = x * x // 2 + x", "Y[m] = cast(x, f32)"),
    "ends": (
        "X: f32[M, N], L: i32[M], Y: f32[N]",
        "x = L[0]",
        "x = max(x // 2, min(x, 100))",
        "for n in tiles(0, x, of=N):\n            Y[n] += sum(X[m, n], over=m)",
    ),
}
COLUMNS = """
@kernel
def f(X: f32[M, N], Y: f32[N]):
    for n in tiles(N):
        total = zeros(f32[n])
        for m in tiles(M):
            x = X[m, n]
            {lines}
            total += sum(x, over=m)
        Y[n] = total
"""


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", [*KERNELS, "columns"])
def test_depth_does_not_multiply(name: str) -> None:
    if name == "columns":
        text = COLUMNS.format(lines="\n            ".join(["x = x * x * 0.5 + x"] * DEPTH))
    else:
        params, first, line, last = KERNELS[name]
        body = "\n        ".join([first, *[line] * DEPTH, last])
        text = f"@kernel\ndef f({params}):\n    for m in tiles(M):\n        {body}\n"
    sizes = {dim: 512 for dim in "MN" if f"{dim}]" in text}
    parse(text).f.compile(**sizes).prove()
