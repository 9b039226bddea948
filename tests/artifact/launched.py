"""Calls kernels on a GPU that is not there, as a process of its own: `python -m
tests.artifact.launched`. It prints what was launched, and which modules that took.
"""

import itertools
import json
import sys
from types import SimpleNamespace

import wsdsl
from tests.runtime.fake_driver import MAIN, FakeDriver
from tests.runtime.fake_torch import Tensor
from wsdsl import Schedule, bf16, dims, f32, kernel, tiles, zeros

M, N, K = dims("M N K")
TWO = 2.0
SMALL = Schedule(tile=dict(m=64, n=64, k=64), consumers=1)


@kernel
def doubled(A: bf16[M, K], B: bf16[N, K], C: bf16[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += A[m, k] @ B[n, k]
        C[m, n] = acc * TWO


def main() -> None:
    fake = FakeDriver()
    fake.install()
    addresses = itertools.count(0x5000_0000, 1 << 20)
    sys.modules["torch"] = SimpleNamespace(
        empty=lambda shape, dtype, device: Tensor(shape, next(addresses), dtype, device=device),
        bfloat16="torch.bfloat16",
        _C=SimpleNamespace(
            _increment_version=lambda tensors: None,
            _cuda_getCurrentRawStream=lambda index: MAIN,
            _is_any_autocast_enabled=lambda: False,
        ),
    )
    fake.args_bytes = 3 * 128
    a, b = Tensor((128, 64), 0x1000_0000), Tensor((64, 64), 0x2000_0000)
    # Rows that TMA can not take, of which copies are weighed.
    odd = Tensor((128, 63), 0x3000_0000), Tensor((64, 63), 0x4000_0000)
    doubled(a, b, schedule=SMALL)
    # A number of rows that others stand for.
    doubled(Tensor((61, 64), 0x1000_0000), b)
    wsdsl.kernels.matmul(a, b)
    wsdsl.kernels.matmul(odd[0], odd[1], transpose_b=True, schedule=SMALL)
    wsdsl.parse("@kernel\n" + doubled.source.partition("\n")[2].replace("TWO", "3.0"))
    print(json.dumps({"launched": len(fake.launched), "modules": sorted(sys.modules)}))


if __name__ == "__main__":
    main()
