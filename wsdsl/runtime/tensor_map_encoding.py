"""CUtensorMaps: the descriptors of tensors for TMA, in CUDA's order (the contiguous axis first)."""

import ctypes
import threading
from typing import NamedTuple

from wsdsl.artifact.signature import MapArgument
from wsdsl.diagnostics import LaunchError
from wsdsl.ir.hardware.packed_layout import UNIT, block_bytes, num_blocks
from wsdsl.ir.hardware.swizzle import PACKED_LINES, PACKED_SPAN
from wsdsl.ir.hardware.tma_box import TMA_ALIGN, box_fault
from wsdsl.ir.types import DTYPES
from wsdsl.runtime import driver
from wsdsl.runtime.arrays.views import ArrayView, contiguous_strides, normalise, tma_faults

MAP_BYTES = 128
MAX_CACHED = 1024

DATA_TYPES = {
    "f32": "FLOAT32",
    # As it is in GMEM: wgmma ignores the lower bits, TFLOAT32 would round them.
    "tf32": "FLOAT32",
    "f16": "FLOAT16",
    "bf16": "BFLOAT16",
    "i32": "INT32",
}
"""Others are unsigned integers of their bits. Two of 4 bits are a byte: dimensions and boxes are
those of the bytes."""
SWIZZLES = {"none": "NONE", "32B": "32B", "64B": "64B", "128B": "128B"}


class TiledMap(NamedTuple):
    """The arguments of cuTensorMapEncodeTiled. `strides` are bytes, of all axes but the first."""

    data_type: str
    address: int
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: str
    promotion: str


def tiled_map(
    view: ArrayView, argument: MapArgument, *, written: bool = False, zeros: int = 0
) -> TiledMap:
    """The fields of the tensor map of `argument` over the array `view`.

    A map cannot have an axis of size 0. An empty tensor is mapped as one zero element at the
    address `zeros`, which every load of the kernel then reads or is outside of.
    """
    faults = tma_faults(view)
    if view.dtype.name not in DTYPES:
        faults.append(f"TMA has no data type {view.dtype}")
    if fault := box_fault(argument.box, len(view.shape), view.dtype, argument.swizzle):
        faults.append(fault)
    if faults:
        raise LaunchError(f"WS0764 no tensor map for {argument.tensor}: {'; '.join(faults)}")
    if argument.swizzle in PACKED_SPAN:
        return _packed_map(view, argument, zeros)
    dtype = view.dtype
    address, dims = view.pointer, view.shape
    strides = [dtype.size(s) for s in normalise(view).strides]
    box = argument.box
    if dtype.bits < 8:
        dims, box = ((*shape[:-1], dtype.size(shape[-1])) for shape in (dims, box))
    if view.is_empty:
        address, dims, strides = zeros, (1,) * len(dims), [TMA_ALIGN] * len(dims)
    for axis in range(len(dims) - 1):
        if dims[axis] == 1:
            # Never used, but the driver asks for a multiple of 16 of it too.
            strides[axis] = TMA_ALIGN
    return TiledMap(
        DATA_TYPES.get(view.dtype.name, f"UINT{max(8, view.dtype.bits)}"),
        address,
        tuple(reversed(dims)),
        tuple(reversed(strides[:-1])),
        tuple(reversed(box)),
        SWIZZLES[argument.swizzle],
        # L2 promotion: a load fetches at most its cache line in addition to the box. 256 bytes cost
        # 1 to 7 % in memory-bound kernels (16 x 28672 x 8192, H200).
        "NONE" if written else "L2_128B",
    )


def _packed_map(view: ArrayView, argument: MapArgument, zeros: int) -> TiledMap:
    """Of whole blocks: lines of 256 bytes, those of a block, blocks along both dimensions."""
    block, *outer = block_bytes(view.dtype), *view.shape[:-2]
    blocks = [num_blocks(n) for n in view.shape[-2:]]
    dims = (*outer, *blocks, block // UNIT, UNIT)
    strides = contiguous_strides(dims)
    box = (*argument.box[:-2], *(n // PACKED_LINES for n in argument.box[-2:]), *dims[-2:])
    address = view.pointer
    if view.is_empty:
        address, dims = zeros, (1,) * len(dims)
    outward = dims[::-1], strides[-2::-1]
    return TiledMap("UINT8", address, *outward, box[::-1], "NONE", "L2_128B")


_encoded: dict[TiledMap, bytes] = {}
_encoded_lock = threading.Lock()


def encode(tiled: TiledMap) -> bytes:
    """The 128 bytes of the map; those of the last calls are kept."""
    found = _encoded.get(tiled)
    if found is None:
        found = _encode(tiled)
        with _encoded_lock:
            if len(_encoded) >= MAX_CACHED:
                del _encoded[next(iter(_encoded))]
            _encoded[tiled] = found
    return found


def _encode(tiled: TiledMap) -> bytes:
    cuda = driver.api()
    u64, u32 = cuda.cuuint64_t, cuda.cuuint32_t
    rank = len(tiled.dims)
    types, swizzles = cuda.CUtensorMapDataType, cuda.CUtensorMapSwizzle
    promotions = cuda.CUtensorMapL2promotion
    try:
        encoded = driver.call(
            "cuTensorMapEncodeTiled",
            getattr(types, f"CU_TENSOR_MAP_DATA_TYPE_{tiled.data_type}"),
            rank,
            tiled.address,
            [u64(n) for n in tiled.dims],
            # A map of one dimension has no strides, but the driver rejects an empty array.
            [u64(n) for n in tiled.strides or (16,)],
            [u32(n) for n in tiled.box],
            [u32(1)] * rank,
            cuda.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
            getattr(swizzles, f"CU_TENSOR_MAP_SWIZZLE_{tiled.swizzle}"),
            getattr(promotions, f"CU_TENSOR_MAP_L2_PROMOTION_{tiled.promotion}"),
            cuda.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
    except driver.DriverError as error:
        raise LaunchError(f"WS0765 the driver rejects {tiled}: {error.code}") from None
    return ctypes.string_at(int(encoded.getPtr()), MAP_BYTES)


def replace_address(encoded_at: int, address: int) -> None:
    """Let the map that lies at `encoded_at`, a multiple of 64 bytes in the host's memory, be of a
    tensor at `address`.
    """
    driver.call("cuTensorMapReplaceAddress", driver.api().CUtensorMap(_ptr=encoded_at), address)
