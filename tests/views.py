"""Arrays that are no contiguous ones: what each operand of a batched product may be a view of."""

from dataclasses import dataclass

G, M, N, K = 3, 130, 40, 72


@dataclass(frozen=True)
class View:
    """Strides and offset in elements, of a buffer of `size` elements."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0

    @property
    def size(self) -> int:
        reach = sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True) if s > 0)
        return self.offset + reach + 1


def contiguous(*shape: int) -> View:
    _, rows, columns = shape
    return View(shape, (rows * columns, columns, 1))


A, B, C = contiguous(G, M, K), contiguous(G, N, K), contiguous(G, M, N)
VIEWS: dict[str, tuple[View, View, View]] = {
    "contiguous": (A, B, C),
    "some batches": (View((G, M, K), (2 * M * K, K, 1)), B, View((G, M, N), (3 * M * N, N, 1))),
    "one for all batches": (A, View((G, N, K), (0, K, 1)), C),
    "one row for all": (View((G, M, K), (K, 0, 1)), B, C),
    "one element of all": (View((G, M, K), (0, 0, 1)), View((G, N, K), (0, 0, 1)), C),
    "batches inside": (View((G, M, K), (K, G * K, 1)), B, View((G, M, N), (N, G * N, 1))),
    "part of a larger one": (
        View((G, M, K), (400 * 200, 200, 1), 8 * 200 + 16),
        View((G, N, K), (N * 80, 80, 1), 8),
        View((G, M, N), (M * 64, 64, 1), 8),
    ),
    "rows that overlap": (View((G, M, K), (M * 8, 8, 1)), B, C),
    "dimensions of one": (View((1, M, K), (7, K, 1)), View((1, N, K), (5, K, 1)),
                          View((1, M, N), (3, N, 1))),
    "one row": (View((G, 1, K), (K, 3, 1)), View((G, N, K), (0, K, 1)), View((G, 1, N), (N, 1, 1))),
    "odd row strides": (View((G, M, K), (M * 75, 75, 1)), B, View((G, M, N), (M * 43, 43, 1))),
    "odd address": (View((G, M, K), (M * K, K, 1), 1), View((G, N, K), (0, K, 1), 3), C),
    "odd output": (A, B, View((G, M, N), (M * N, N, 1), 3)),
}  # fmt: skip
