"""Tensors that look like torch's, on a GPU that is not there."""

import itertools
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Gpu:
    index: int = 0
    type: str = "cuda"


@dataclass(eq=False)
class Tensor:
    """As torch's."""

    shape: tuple[int, ...]
    at: int
    dtype: str = "torch.bfloat16"
    strides: tuple[int, ...] = ()
    device: Gpu = field(default_factory=Gpu)
    layout: str = "torch.strided"
    is_cuda: bool = True
    requires_grad: bool = False
    negated: bool = False
    writes: int = 0

    def __post_init__(self) -> None:
        steps = [1, *itertools.accumulate(self.shape[:0:-1], lambda x, y: x * y)]
        self.strides = self.strides or tuple(reversed(steps[: len(self.shape)]))

    def count_write(self) -> None:
        self.writes += 1

    def is_neg(self) -> bool:
        return self.negated

    def data_ptr(self) -> int:
        return self.at

    def stride(self) -> tuple[int, ...]:
        return self.strides

    def element_size(self) -> int:
        return {"torch.float32": 4, "torch.bfloat16": 2}.get(self.dtype, 1)
