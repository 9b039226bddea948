"""Launch compiled kernels: `Launcher.prepare` resolves a call once, for any number of launches."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from wsdsl.artifact.artifact import Access, Artifact
from wsdsl.artifact.signature import MapArgument, Signature
from wsdsl.diagnostics import LaunchError
from wsdsl.ir.tile_scheduler import TileScheduler, count_work, tile_scheduler
from wsdsl.runtime import driver
from wsdsl.runtime.arguments import Scalar
from wsdsl.runtime.arrays.copies import Copies
from wsdsl.runtime.arrays.padded_copies import Padded, padded, to_pad
from wsdsl.runtime.arrays.streams import (
    FixedStream,
    StreamOf,
    current_stream,
    given_stream,
    legacy_stream,
)
from wsdsl.runtime.arrays.views import ArrayView
from wsdsl.runtime.device import (
    Context,
    EachContext,
    context_for,
    current,
    is_capturing,
    may_allocate,
    require_arch,
)
from wsdsl.runtime.loaded_module import Function, Module
from wsdsl.runtime.packed_arguments import pack
from wsdsl.runtime.prepared import Prepared, fills_of
from wsdsl.runtime.tensor_map_encoding import MAP_BYTES, encode, tiled_map
from wsdsl.runtime.workspace import Lending, Workspaces, lent_for

MAX_CTAS = 2**31 - 2**16
"""Of a work item each, or of a cluster each: a grid has no more, and kernels count items in i32 and
step past the last one."""

ZEROS_BYTES = 256


def num_ctas(
    signature: Signature, dims: Mapping[str, int], num_sms: int, max_clusters: int | None = None
) -> int:
    """The grid, by the tile scheduler: "grid" and "dynamic" a cluster each item, others at most as
    many as can be resident, `ctas_per_sm` on an SM; 0 where nothing is to do.

    `max_clusters`: how many can be resident. A cluster lies in one GPC, where SMs may be left over.

    Where tiles are split, CTAs wait for others of their grid. All fit on the GPU, but concurrent
    kernels may occupy it. Kernels that end by themselves only delay it. Two such grids cannot
    deadlock, whichever CTAs are resident: the hardware starts CTAs (clusters) in the order of their
    index, and each waits only for lower ones (`wsdsl/ir/tile_scheduler.py`; `check_work` verifies
    it), so the first incomplete one makes progress. A cooperative launch would start all or none,
    but only when the last CTA of the kernel before has made room, and would lose the overlap of an
    early start. It is needed only where all work units of a tile wait for each other (`together`).
    """
    scheduler, items, depth = _work(signature, dims)
    if items * signature.cluster > MAX_CTAS:
        sizes = ", ".join(f"{dim} = {dims[dim]} by {size}" for dim, size in signature.tiles)
        ctas = "a CTA" if signature.cluster == 1 else f"a cluster of {signature.cluster} CTAs"
        message = f"WS0750 {signature.name} has {items} work units ({sizes}) of {ctas}, expected "
        message += f"at most {MAX_CTAS} CTAs"
        raise LaunchError(message, hint="use larger tiles, or split the call")
    room = num_sms * signature.ctas_per_sm // signature.cluster
    room = room if max_clusters is None else min(room, max_clusters)
    if told := scheduler.fault(items, depth, room):
        hint = 'use fewer splits, or reduction="serial"'
        raise LaunchError(f"WS0751 {signature.name}: {told}", hint=hint)
    return scheduler.num_workers(items, depth, room) * signature.cluster


def has_room(signature: Signature, dims: Mapping[str, int], num_sms: int) -> bool:
    """Whether all that wait for each other can run at the same time."""
    scheduler, items, depth = _work(signature, dims)
    return scheduler.num_together(items, depth) <= num_sms // signature.cluster


def num_slots(signature: Signature, dims: Mapping[str, int], grid: int) -> int:
    """Number of split tiles in a grid of `grid` CTAs. LaunchError if the work units are wrong."""
    scheduler, items, depth = _work(signature, dims)
    if not scheduler.splits_tiles or not grid:
        return 0
    work = items, depth, grid // signature.cluster
    slots = scheduler.num_slots(*work)
    from wsdsl.runtime.work_check import check_work  # NumPy

    check_work(signature.name, scheduler, *work, slots)
    return slots


def _work(signature: Signature, dims: Mapping[str, int]) -> tuple[TileScheduler, int, int]:
    """The tile scheduler, the number of work items, and the tiles along K per work item."""
    scheduler = tile_scheduler(signature.scheduler, signature.splits, signature.together)
    return scheduler, *count_work(signature.tiles, signature.contraction, lambda dim: dims[dim])


def reject_capture(view: ArrayView, stream: Any) -> None:
    """Raise LaunchError if the stream of a recorded call is captured into a CUDA graph."""
    context_for(view.device_index)
    now = current_stream(view)() if stream is None else given_stream(stream)
    if is_capturing(now):
        message = "WS1140 a CUDA graph is captured in a `precompiling` block; nothing is launched"
        raise LaunchError(message, hint="capture after the block")


class Launcher:
    """One compiled kernel: its image (cubin bytes or PTX text), what it takes and what it does."""

    def __init__(
        self, image: bytes | str, signature: Signature, access: Access, arch: str = "sm_90a"
    ) -> None:
        self.signature, self.access, self.arch = signature, access, arch
        self.module = Module(image, signature.name, signature.smem_bytes)
        self.workspaces = Workspaces(signature.name)
        self._resident: dict[int, int] = {}
        self._fits: set[int] = set()

    def max_clusters(self, kernel: Function) -> int | None:
        """How many clusters the GPU holds at once; None where each is one CTA."""
        size, context = self.signature.cluster, kernel.context
        if size == 1:
            return None
        found = self._resident.get(context.id)
        if found is None:
            own = self.signature
            config = driver.launch_config(size, own.threads, own.smem_bytes)
            with current(context):
                found = int(driver.call("cuOccupancyMaxActiveClusters", kernel.handle, config))
            self._resident[context.id] = found
        return found

    def require_room(self, kernel: Function) -> None:
        """LaunchError if the GPU holds not one CTA (cluster); asked where CTAs wait for others."""
        context = kernel.context
        if context.id in self._fits:
            return
        resident = self.max_clusters(kernel)
        if resident is None:
            limits = self.signature.threads, self.signature.smem_bytes
            query = "cuOccupancyMaxActiveBlocksPerMultiprocessor"
            with current(context):
                resident = int(driver.call(query, kernel.handle, *limits))
        if resident < 1:
            what = "cluster" if self.signature.cluster > 1 else "CTA"
            uses = f"{self.signature.smem_bytes} bytes of SMEM, {self.signature.threads} threads"
            message = f"WS0752 no {what} of {self.signature.name} ({uses}) fits on {context.device}"
            raise LaunchError(message, hint="use smaller tiles, or fewer stages")
        self._fits.add(context.id)

    def prepare(
        self,
        views: Mapping[str, ArrayView],
        scalars: Mapping[str, Scalar],
        dims: Mapping[str, int],
        stream: Any = None,
        zeroed: Collection[str] = (),
        *,
        keepalive: bool = True,
    ) -> Prepared:
        """Load, encode and pack for arrays that `resolve` has checked and that are on a GPU.

        Before each launch, TMA-incompatible tensors that the kernel only reads are copied, and
        tensors in `zeroed` are filled with zeros.
        With `keepalive` the result refers to the arrays; without, the caller must keep them alive.
        """
        first = next(iter(views.values()), None)
        context = context_for(first.device_index if first else 0)
        require_arch(context.device, self.arch)
        if stream is not None:
            stream_of: StreamOf = FixedStream(given_stream(stream))
        else:
            stream_of = current_stream(first) if first else legacy_stream
        now = stream_of()
        kernel = self.module.function(context, now)
        if tile_scheduler(self.signature.scheduler).splits_tiles:
            self.require_room(kernel)
        room, num_sms = self.max_clusters(kernel), context.device.num_sms
        signature = self.signature.at(self.signature.narrowing(dims, num_sms, room))
        grid = num_ctas(signature, dims, num_sms, room)
        lent = lent_for(signature, num_slots(signature, dims, grid))
        zeros = _zeros(context, now) if grid and _needs_zeros(signature, views) else 0
        # Copies keep the addresses of arrays, not the arrays.
        own = {name: replace(view, keepalive=None) for name, view in views.items()}
        copies = self._padded(own) if grid else {}
        seen = {**own, **{name: copy.view for name, copy in copies.items()}}

        def map_at(argument: MapArgument, address: int) -> bytes:
            written, view = argument.tensor in self.access.writes, seen[argument.tensor]
            view = replace(view, pointer=address)
            return encode(tiled_map(view, argument, written=written, zeros=zeros))

        def map_bytes(argument: MapArgument) -> bytes:
            if not grid or argument.tensor in copies:
                return bytes(MAP_BYTES)
            return map_at(argument, own[argument.tensor].pointer)

        arguments, all_views = signature.arguments, {**seen, **lent.views}
        packed = pack(arguments, all_views, scalars, {**dims, **lent.dims}, map_bytes)
        # JAX tracks only its own stream, so its outputs must be complete when the call returns.
        sync = any(views[name].framework == "jax" for name in self.access.writes if name in views)
        held = tuple(v.keepalive for v in views.values()) if keepalive else ()
        outputs = (view for name, view in views.items() if name in self.access.writes)
        written = tuple(view.keepalive for view in outputs if view.framework == "torch")
        made = partial(
            Prepared, signature, kernel, grid, packed, stream_of, sync=sync,
            fills=fills_of({name: own[name] for name in zeroed}), movable=not zeros,
            written=written if keepalive else (),
        )  # fmt: skip
        copied = Copies(context, copies, map_at) if copies else None
        if not lent.needs or not grid:
            return made(keepalive=held, copies=copied)
        lending = Lending(self.workspaces, context, lent.needs, packed)
        if not is_capturing(now):
            # So that the first call allocates no more than later ones.
            lending.arguments(now)
        return made(keepalive=held, lending=lending, copies=copied)

    def _padded(self, views: Mapping[str, ArrayView]) -> dict[str, Padded]:
        """Copies of TMA-incompatible tensors; `tiled_map` raises for those that have no copy."""
        found = {name: padded(views[name]) for name in to_pad(self.access, views)}
        return {name: copy for name, copy in found.items() if copy is not None}


_launchers: WeakKeyDictionary[Artifact, Launcher] = WeakKeyDictionary()


def launcher_of(artifact: Artifact) -> Launcher:
    """The artifact's only launcher: its code is loaded once for all kernels that refer to it."""
    found = _launchers.get(artifact)
    if found is None:
        a = artifact
        made = Launcher(a.image, a.signature, a.access, a.schedule.arch)
        found = _launchers.setdefault(artifact, made)
    return found


def _needs_zeros(signature: Signature, views: Mapping[str, ArrayView]) -> bool:
    return any(isinstance(a, MapArgument) and views[a.tensor].is_empty for a in signature.arguments)


@EachContext
def _zeros(context: Context, stream: int) -> int:
    """Address of a few zero bytes, one buffer a context, for the maps of empty tensors."""
    if is_capturing(stream):
        message = "WS0753 an empty tensor needs an allocation, but a CUDA graph is captured"
        raise LaunchError(message, hint="call the kernel once with these arrays before the capture")
    with current(context), may_allocate():
        address = int(driver.call("cuMemAlloc", ZEROS_BYTES))
        driver.call("cuMemsetD8", address, 0, ZEROS_BYTES)
    return address
